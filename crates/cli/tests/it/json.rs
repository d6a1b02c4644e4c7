//! JSON: nothing is lost in it, names have one form, and reports and errors have it too.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use serde_json::Value;

use crate::host::{UEXT4, scratch, text, uext4, uext4_ok};
use crate::mounting::{Place, can_mount};

fn parsed(bytes: &[u8]) -> Value {
    let shown = String::from_utf8_lossy(bytes);
    serde_json::from_slice(bytes).unwrap_or_else(|error| panic!("{error}: {shown}"))
}

#[test]
fn names_that_look_encoded_differ_from_encoded_ones() {
    let scratch = scratch();
    let source = scratch.path().join("source");
    fs::create_dir_all(source.join("dir")).unwrap();
    let names: [&[u8]; 4] = [b"\xff", b"hex:ff", b"hex:6", b"plain"];
    for name in names {
        fs::write(source.join("dir").join(OsStr::from_bytes(name)), name).unwrap();
    }
    std::os::unix::fs::symlink("hex:ff", source.join("link")).unwrap();
    let image = scratch.path().join("image");
    uext4_ok(&["build", text(&source), "-o", text(&image)]);
    let manifest = uext4_ok(&["manifest", text(&image), "/dir"]);
    let lines = String::from_utf8(manifest).unwrap();
    let paths: Vec<Value> = lines.lines().map(|line| parsed(line.as_bytes())).collect();
    let paths: Vec<&str> = paths
        .iter()
        .map(|line| line["path"].as_str().unwrap())
        .collect();
    let hex = |name: &[u8]| format!("hex:{}", hex::encode(name));
    let expected = [".", &hex(b"hex:6"), &hex(b"hex:ff"), &hex(b"\xff"), "plain"];
    let mut sorted = expected.to_vec();
    sorted.sort_unstable();
    assert_eq!(paths, sorted);
    // What is shown is taken back, for a name and for a whole path.
    for name in names {
        for path in [
            format!("/dir/{}", hex(name)),
            hex(&[b"/dir/", name].concat()),
        ] {
            assert_eq!(uext4_ok(&["cat", text(&image), &path]), name, "{path}");
            uext4_ok(&["touch", "-c", text(&image), &path]);
        }
    }
    let link = parsed(&uext4_ok(&["stat", "--json", text(&image), "/link"]));
    assert_eq!(link[0]["target"], hex(b"hex:ff"));
    // A name that is no encoding of another one is itself.
    assert_eq!(uext4_ok(&["cat", text(&image), "/dir/hex:6"]), b"hex:6");
    let copy = scratch.path().join("copy");
    fs::create_dir(&copy).unwrap();
    uext4_ok(&["get", text(&image), "/dir/hex:ff", text(&copy)]);
    assert_eq!(
        fs::read(copy.join(OsStr::from_bytes(b"\xff"))).unwrap(),
        b"\xff"
    );
    uext4_ok(&["mv", text(&image), "/dir/hex:ff", "/dir/moved"]);
    assert_eq!(uext4_ok(&["cat", text(&image), "/dir/moved"]), b"\xff");
    uext4_ok(&["rm", text(&image), &format!("/dir/{}", hex(b"hex:ff"))]);
    let left = String::from_utf8(uext4_ok(&["ls", text(&image), "/dir"])).unwrap();
    assert_eq!(left, "hex:6\nmoved\nplain\n");
}

/// What JSON would not show so is a name like others.
#[test]
fn new_names_are_read_as_they_are_shown() {
    let scratch = scratch();
    let hex = |name: &[u8]| format!("hex:{}", hex::encode(name));
    let place = scratch.path().join("new.img");
    let image = text(&place);
    uext4_ok(&["mkfs", "-q", image, "16M"]);
    let [dir, file] = [b"\xfe", b"\xfd"].map(|name| hex(name));
    uext4_ok(&["mkdir", image, &format!("/{dir}"), "/hex:6162", "/hex:6"]);
    uext4_ok(&["touch", image, &format!("/{dir}/{file}")]);
    uext4_ok(&[
        "put",
        image,
        "/proc/version",
        &format!("/{dir}/{}", hex(b"hex:x")),
    ]);
    uext4_ok(&[
        "ln",
        image,
        &format!("/{dir}/{file}"),
        &format!("/{}", hex(b"\xfc")),
    ]);
    uext4_ok(&["mv", image, "/hex:6", &format!("/{}/", hex(b"\xfb"))]);
    let tree = crate::oracle::parse(&uext4_ok(&["manifest", image]));
    for name in [
        dir.clone(),
        format!("{dir}/{file}"),
        format!("{dir}/{}", hex(b"hex:x")),
        hex(b"\xfc"),
        hex(b"\xfb"),
        hex(b"hex:6162"),
    ] {
        assert!(tree.contains_key(&name), "{name}: {:?}", tree.keys());
    }
}

#[test]
fn times_reports_and_errors_are_whole() {
    let scratch = scratch();
    let source = scratch.path().join("source");
    fs::write(&source, "contents").unwrap();
    let image = scratch.path().join("image");
    uext4_ok(&["mkfs", "-q", text(&image), "16M"]);
    let put = parsed(&uext4_ok(&[
        "put",
        "--json",
        text(&image),
        text(&source),
        "/file",
    ]));
    assert_eq!(
        (&put["path"], &put["entries"]),
        (&"/file".into(), &1.into())
    );
    for (date, expected) in [
        ("@1795363611.637230762", "1795363611.637230762"),
        ("@-2", "-2.000000000"),
        ("@-1.5", "-1.500000000"),
    ] {
        uext4_ok(&["touch", "-d", date, text(&image), "/file"]);
        let stat = parsed(&uext4_ok(&["stat", "--json", text(&image), "/file"]));
        assert_eq!(stat[0]["mtime"], expected);
        let number = expected.replace('.', "").parse::<i64>().unwrap();
        assert_eq!(stat[0]["mtime_ns"], number);
    }
    let copy = scratch.path().join("copy");
    let got = parsed(&uext4_ok(&[
        "get",
        "--json",
        text(&image),
        "/file",
        text(&copy),
    ]));
    assert_eq!(got["entries"], 1);
    let synced = parsed(&uext4_ok(&["sync", "--json", text(&image)]));
    assert_eq!(synced["was_clean"], true);
    assert!(parsed(&uext4_ok(&["trim", "--json", text(&image)]))["trimmed"].is_number());
    let moved = parsed(&uext4_ok(&["dedup-xattrs", "--json", text(&image)]));
    assert_eq!(moved["moved"], 0);
    for (arguments, exit, said) in [
        (
            &["stat", "--json", text(&image), "/none"][..],
            1,
            "/none: no such file",
        ),
        (&["ls", "--json", "/no/such"], 8, "/no/such"),
        (
            &["ls", "--json", "--nonsense", "x"],
            2,
            "unexpected argument",
        ),
        (
            &["get", "--json", text(&image), "/file", "/no/such/dir"],
            8,
            "/no/such",
        ),
    ] {
        let output = uext4(arguments);
        assert_eq!(output.status.code(), Some(exit), "{output:?}");
        let error = parsed(&output.stderr);
        assert_eq!(error["exit"], exit, "{error}");
        assert!(error["error"].as_str().unwrap().contains(said), "{error}");
    }
}

#[test]
fn mount_prints_image_and_directory_as_json() {
    if !can_mount() {
        return;
    }
    let place = Place::new(&["-t", "ext4"], 16);
    let (image, dir) = (place.image(), place.dir());
    let (image, dir) = (text(&image), text(&dir));
    let expected = serde_json::json!({ "image": image, "dir": dir });
    assert_eq!(
        parsed(&uext4_ok(&["mount", "--json", image, dir])),
        expected
    );
    let again = uext4(&["mount", "--json", image, dir]);
    assert!(again.stdout.is_empty());
    assert_eq!(parsed(&again.stderr)["exit"], again.status.code().unwrap());
    assert_eq!(parsed(&uext4_ok(&["umount", "--json", dir])), expected);
    let again = uext4(&["umount", "--json", dir]);
    assert!(again.stdout.is_empty());
    assert_eq!(parsed(&again.stderr)["exit"], 32);
    assert_eq!(again.status.code(), Some(32));
    // What cannot be said changes nothing of what is done.
    for arguments in [
        &["mount", "--json", image, dir][..],
        &["umount", "--json", dir],
    ] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let done = Command::new(UEXT4).args(arguments).stdout(full).output();
        let done = done.unwrap();
        assert!(done.status.success());
        assert!(parsed(&done.stderr)["warning"].is_string());
    }
    place.judge();
}
