//! The statistics of a running mount: text, JSON, Prometheus, a screen.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::host::{UEXT4, has_tool, mke2fs, run, scratch, text, uext4, uext4_ok};
use crate::mounting::{Place, can_mount};

/// A mount that has been used.
fn used(options: &str) -> Place {
    let place = Place::new(&["-t", "ext4"], 64);
    place.mount(options);
    for number in 0..50 {
        let path = place.dir().join(format!("file{number}"));
        fs::write(&path, vec![7; 20_000]).unwrap();
    }
    let file = fs::File::open(place.dir().join("file7")).unwrap();
    file.sync_all().unwrap();
    assert!(fs::metadata(place.dir().join("none")).is_err());
    // What programs ask for and expect is no error.
    let file = place.dir().join("file8");
    let none = rustix::fs::getxattr(&file, "user.none", &mut [0; 8]);
    assert_eq!(none, Err(rustix::io::Errno::NODATA));
    place
}

#[test]
fn a_mount_of_root_has_the_kernel_read_two_requests_ahead() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        println!("skipped: needs root");
        return;
    }
    let place = Place::new(&["-t", "ext4"], 16);
    place.mount("rw");
    let number = fs::metadata(place.dir()).unwrap().dev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let path = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    assert_eq!(fs::read_to_string(path).unwrap(), "2048\n");
}

#[test]
fn a_mount_reports_its_statistics() {
    if !can_mount() {
        return;
    }
    let place = used("rw");
    let dir = place.dir();
    let printed = String::from_utf8(uext4_ok(&["stats", text(&dir)])).unwrap();
    for line in [
        "sandbox: capabilities, landlock, seccomp",
        ", rw, over ",
        "requests ",
        ", 0 with errors",
        "create ",
        "journal ",
        "shrinker ",
        "dirty ",
        "writers ",
        "allocator ",
        "caches ",
    ] {
        assert!(printed.contains(line), "{line}: {printed}");
    }
    let printed = uext4_ok(&["stats", "--json", text(&dir)]);
    let printed: serde_json::Value = serde_json::from_slice(&printed).unwrap();
    let of = |name: &str, label: &str, text: &str| {
        let all = printed[name].as_array().unwrap().iter();
        let mut found = all.filter(|one| one[label] == text);
        found.next().unwrap()["value"].as_f64().unwrap()
    };
    assert_eq!(of("uext4_request_seconds_count", "op", "create"), 50.0);
    assert!(of("uext4_request_refusals_total", "errno", "ENODATA") >= 1.0);
    assert!(printed.get("uext4_request_errors_total").is_none());
    assert_eq!(of("uext4_request_seconds_count", "op", "fsync"), 1.0);
    assert!(of("uext4_request_seconds_sum", "op", "fsync") > 0.0);
    assert!(of("uext4_request_seconds_count", "op", "write") >= 50.0);
    assert!(printed["uext4_journal_commits_total"].as_u64().unwrap() >= 1);
    assert!(of("uext4_dirty_limit_bytes", "limit", "writers wait") > 0.0);
    let info = &printed["uext4_info"][0];
    assert_eq!(info["dir"], text(&dir));
    assert_eq!(info["image"], text(&place.image()));
    // Any path within it names the mount.
    uext4_ok(&["stats", "--json", text(&dir.join("lost+found"))]);
    place.unmount();
    let output = uext4(&["stats", text(&dir)]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(8), "{stderr}");
    assert!(stderr.contains("not mounted by uext4"), "{stderr}");
}

#[test]
fn a_read_only_mount_reports_its_statistics() {
    if !can_mount() {
        return;
    }
    let place = Place::new(&["-t", "ext4"], 16);
    place.mount("ro");
    fs::read_dir(place.dir()).unwrap().count();
    let printed = String::from_utf8(uext4_ok(&["stats", text(&place.dir())])).unwrap();
    assert!(
        printed.contains(", ro, over ") && !printed.contains("journal "),
        "{printed}"
    );
    place.unmount();
}

#[test]
fn prometheus_reads_it_from_socket_and_file() {
    if !can_mount() {
        return;
    }
    let scratch = scratch();
    let file = scratch.path().join("uext4.prom");
    let place = used(&format!("metrics={}", text(&file)));
    let page = String::from_utf8(uext4_ok(&["stats", "--prometheus", text(&place.dir())]));
    let page = page.unwrap();
    for line in [
        "# TYPE uext4_request_seconds summary",
        "uext4_request_seconds_count{op=\"create\"} 50",
        "uext4_sandbox{part=\"seccomp\"} 1",
    ] {
        assert!(page.contains(line), "{line}: {page}");
    }
    let mut headed = "no head";
    for line in page.lines() {
        match line.strip_prefix("# TYPE ") {
            Some(rest) => headed = rest.split(' ').next().unwrap(),
            None => assert!(line.starts_with('#') || line.starts_with(headed), "{line}"),
        }
    }
    let device = fs::metadata(place.dir()).unwrap().dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let socket = format!("/run/uext4/{major}:{minor}");
    let mode = fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut stream = UnixStream::connect(&socket).unwrap();
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    let mut printed = String::new();
    stream.read_to_string(&mut printed).unwrap();
    assert!(printed.starts_with("HTTP/1.0 200 OK\r\n"), "{printed}");
    assert!(printed.contains("\r\n\r\n# HELP uext4_info"), "{printed}");
    // A client that sends no request delays others only briefly, and the mount not at all.
    let silent = UnixStream::connect(&socket).unwrap();
    fs::write(place.dir().join("file"), "x").unwrap();
    drop(silent);
    let began = Instant::now();
    while !fs::read_to_string(&file)
        .unwrap_or_default()
        .contains("op=\"create\"")
    {
        assert!(began.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(50));
    }
    place.unmount();
    assert!(!std::path::Path::new(&socket).exists());
    let (image, dir) = (place.image(), place.dir());
    let options = "metrics=/no/such/dir/file";
    let output = uext4(&["mount", "-o", options, text(&image), text(&dir)]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(32), "{stderr}");
    assert!(stderr.contains("metrics="), "{stderr}");
}

#[test]
fn a_screen_shows_it_until_a_key_says_that_is_enough() {
    if !can_mount() || !has_tool("script") {
        return;
    }
    let place = used("rw");
    let command = format!(
        "stty cols 100 rows 30; {UEXT4} stats --watch=1 {}",
        text(&place.dir())
    );
    // Two looks, the second of which knows rates.
    let keys = "sleep 2.5; printf q; sleep 1";
    let script = format!("({keys}) | script -qec '{command}' /dev/null");
    let printed = String::from_utf8_lossy(&run("sh", &["-c", &script])).into_owned();
    for shown in ["\x1b[?1049h", "requests", "/s)", "q ends", "\x1b[?1049l"] {
        assert!(printed.contains(shown), "{shown:?}: {printed}");
    }
    // Without a terminal it is printed again and again.
    let line = format!(
        "{UEXT4} stats --watch {} | grep -m2 requests",
        text(&place.dir())
    );
    let printed = String::from_utf8(run("sh", &["-c", &line])).unwrap();
    assert_eq!(printed.lines().count(), 2, "{printed}");
    place.unmount();
}

#[test]
fn images_are_asked_as_before() {
    if !has_tool("mke2fs") {
        return;
    }
    let scratch = scratch();
    let image = scratch.path().join("image");
    mke2fs(&image, &["-t", "ext4"], 16);
    let printed = String::from_utf8(uext4_ok(&["stats", text(&image)])).unwrap();
    assert!(printed.starts_with("groups "), "{printed}");
    let output = uext4(&["stats", "--watch", text(&image)]);
    assert_eq!(output.status.code(), Some(2));
    let output = Command::new(UEXT4).args(["stats", "/"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("not mounted by uext4"), "{stderr}");
}

#[test]
fn a_mount_that_could_make_no_socket_says_so_and_so_do_commands() {
    if !can_mount() || !has_tool("unshare") {
        return;
    }
    let place = Place::new(&["-t", "ext4", "-I", "128"], 32);
    let (image, dir) = (place.image(), place.dir());
    // /run of this namespace alone.
    const SCRIPT: &str = "mount -t tmpfs -o ro none /run || exit 9
        $0 mount $1 $2; echo mounted $? >&2
        $0 stats $2; echo stats $? >&2
        $0 ls $2; echo ls $? >&2
        umount $2; echo unmounted $? >&2";
    let done = Command::new("unshare")
        .args(["-m", "sh", "-c", SCRIPT, UEXT4, text(&image), text(&dir)])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    for sentence in [
        "/run/uext4: Read-only file system",
        "mounted 0",
        "its daemon has no socket /run/uext4/",
        "stats 8",
        "it has no socket, and could not make one when it was mounted (a read-only /run)",
        "ls 8",
        "unmounted 0",
        // A limit of the image.
        "no times after 2038-01-19",
    ] {
        assert!(said.contains(sentence), "{sentence}: {said}");
    }
}
