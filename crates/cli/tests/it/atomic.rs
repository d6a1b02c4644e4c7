//! `put --atomic`: one file in one step, with the attributes of what it replaces if that is wanted.

use std::fs;
use std::path::Path;

use crate::changing::{done, image, judge, killed_while_it_puts};
use crate::host::{text, uext4, uext4_ok};

/// What `stat --json` says of a file, but for what differs between any two.
fn attributes(image: &Path, path: &str) -> serde_json::Value {
    let shown = uext4_ok(&["stat", "--json", text(image), path]);
    let shown: serde_json::Value = serde_json::from_slice(&shown).unwrap();
    let mut shown = shown[0].clone();
    let all = shown.as_object_mut().unwrap();
    all.retain(|key, _| {
        ["mode", "uid", "gid", "flags", "xattrs", "project"].contains(&key.as_str())
    });
    shown
}

#[test]
fn a_replaced_file_keeps_what_it_had_and_its_other_names_keep_the_old_one() {
    let Some((scratch, image)) = image(&["-t", "ext4", "-O", "project", "-I", "256"], 16) else {
        return;
    };
    let from = scratch.path().join("from");
    for contents in ["old", "new"] {
        fs::write(&from, contents).unwrap();
        if contents == "old" {
            done(&image, &["put", "--atomic", text(&from), "/file"]);
        }
    }
    done(&image, &["chown", "5:6", "/file"]);
    done(&image, &["chmod", "4751", "/file"]);
    done(&image, &["setfattr", "-nuser.x", "-vy", "/file"]);
    let acl = "-v0x0200000001000700ffffffff020006000300000004000500ffffffff10000700ffffffff\
               20000100ffffffff";
    done(
        &image,
        &["setfattr", "-nsystem.posix_acl_access", acl, "/file"],
    );
    done(&image, &["ln", "/file", "/hard"]);
    done(&image, &["ln", "-s", "file", "/link"]);
    let before = attributes(&image, "/file");
    done(&image, &["put", "--atomic", "--like", text(&from), "/file"]);
    judge(&image);
    assert_eq!(attributes(&image, "/file"), before);
    assert_eq!(done(&image, &["cat", "/file"]), "new");
    assert_eq!(done(&image, &["cat", "/hard"]), "old");
    // A link is replaced itself, and what is put without --like has the attributes of its source.
    done(&image, &["put", "--atomic", text(&from), "/link"]);
    assert_eq!(done(&image, &["cat", "/file"]), "new");
    assert_eq!(attributes(&image, "/file"), before);
    assert_ne!(attributes(&image, "/link"), before);
    done(&image, &["rm", "/link"]);
    done(&image, &["ln", "-s", "file", "/link"]);
    done(&image, &["mkdir", "/dir"]);
    for (source, path, like, code, printed) in [
        (text(scratch.path()), "/file", false, 2, "for one file"),
        (text(&from), "/link", true, 1, "for regular files"),
        (text(&from), "/none", true, 1, "no such file"),
        (text(&from), "/dir", true, 1, "no such file"),
        ("-", "/link", true, 1, "for regular files"),
    ] {
        let like = &["--like"][..usize::from(like)];
        let words = [&["put", "--atomic"], like, &[text(&image), source, path]].concat();
        let output = uext4(&words);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {stderr}");
        assert!(stderr.contains(printed), "{words:?}: {stderr}");
    }
    judge(&image);
    assert_eq!(
        done(&image, &["ls", "/"]),
        "dir\nfile\nhard\nlink\nlost+found\n"
    );
}

#[test]
fn a_replacement_belongs_to_the_owner_of_what_it_replaces_from_the_beginning() {
    let options = ["-t", "ext4", "-I", "256", "-O", "project,quota"];
    let types = ["-E", "quotatype=usrquota:prjquota"];
    let Some((scratch, image)) = image(&[&options[..], &types].concat(), 16) else {
        return;
    };
    let from = scratch.path().join("from");
    fs::write(&from, "old").unwrap();
    done(&image, &["mkdir", "/dir"]);
    done(&image, &["put", "--owner=5:6", text(&from), "/dir/file"]);
    uext4_ok(&["chattr", "-p", "7", text(&image), "/dir/file"]);
    uext4_ok(&["chattr", "-p", "9", text(&image), "+P", "/dir"]);
    // User 1234 may have no more files.
    done(&image, &["put", "--owner=1234", text(&from), "/other"]);
    let limits = [
        "quota",
        "-u",
        "--set",
        "1234",
        "0",
        "0",
        "1",
        "1",
        text(&image),
    ];
    uext4_ok(&limits);
    fs::write(&from, "new").unwrap();
    if std::os::unix::fs::chown(&from, Some(1234), None).is_err() {
        return;
    }
    let before = attributes(&image, "/dir/file");
    done(
        &image,
        &["put", "--atomic", "--like", text(&from), "/dir/file"],
    );
    judge(&image);
    assert_eq!(attributes(&image, "/dir/file"), before);
    assert_eq!(done(&image, &["cat", "/dir/file"]), "new");
    let words = ["put", "--atomic", text(&image), text(&from), "/new"];
    assert_eq!(uext4(&words).status.code(), Some(8));
}

#[test]
fn a_killed_put_leaves_the_old_file_and_no_other() {
    let Some((scratch, image)) = image(&["-t", "ext4"], 32) else {
        return;
    };
    let from = scratch.path().join("from");
    fs::write(&from, "old").unwrap();
    done(&image, &["put", "--atomic", text(&from), "/file"]);
    for name in ["/file", "/new"] {
        killed_while_it_puts(&image, "--atomic", name);
        assert_eq!(done(&image, &["ls", "/"]), "file\nlost+found\n");
        assert_eq!(done(&image, &["cat", "/file"]), "old");
    }
}
