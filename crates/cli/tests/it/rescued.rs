//! Images that are not whole: cut off, or with a superblock that cannot be used.

use std::fs;

use crate::changing::{done, image, judge};
use crate::host::{text, uext4};

#[test]
fn a_truncated_image_is_read_as_far_as_it_goes() {
    let Some((scratch, image)) = image(&["-t", "ext4", "-b", "1024"], 16) else {
        return;
    };
    let (small, large) = (scratch.path().join("small"), scratch.path().join("large"));
    let data: Vec<u8> = (0..10_000_000).map(|i| (i / 1000) as u8).collect();
    fs::write(&small, b"small").unwrap();
    fs::write(&large, &data).unwrap();
    done(&image, &["put", text(&small), "/small"]);
    done(&image, &["put", text(&large), "/large"]);
    let file = fs::File::options().write(true).open(&image).unwrap();
    file.set_len(14 << 20).unwrap();
    let image = text(&image);
    let dest = scratch.path().join("dest");
    let cases: &[(&[&str], i32, &str)] = &[
        (&["ls", image, "/"], 0, "the image is cut off"),
        (&["cat", image, "/small"], 0, "the image is cut off"),
        (&["cat", image, "/large"], 4, "lies beyond the end"),
        (&["get", image, "/", text(&dest)], 4, "lies beyond the end"),
        (&["tar", image], 4, "lies beyond the end"),
        (&["mkdir", image, "/new"], 4, "can only be read"),
        (&["check", image], 4, "the rest is cut off"),
    ];
    for (words, code, printed) in cases {
        let output = uext4(words);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(*code), "{words:?}: {stderr}");
        assert!(stderr.contains(printed), "{words:?}: {stderr}");
        match *words {
            ["cat", _, "/small"] => assert_eq!(output.stdout, b"small"),
            ["cat", ..] => {
                assert!(output.stdout.len() > 1 << 20);
                assert!(data.starts_with(&output.stdout));
            }
            _ => {}
        }
    }
    assert_eq!(fs::read(dest.join("small")).unwrap(), b"small");
    assert!(!dest.join("large").exists());
}

#[test]
fn a_backup_is_taken_for_a_lost_superblock_and_named() {
    let Some((_scratch, image)) = image(&["-t", "ext4", "-b", "1024"], 16) else {
        return;
    };
    done(&image, &["mkdir", "/dir"]);
    let mut bytes = fs::read(&image).unwrap();
    bytes[1024 + 512..2048].fill(0xA5);
    fs::write(&image, bytes).unwrap();
    let output = uext4(&["ls", text(&image), "/"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(
        stderr.contains("its first sector and the backup in block 8193 are used"),
        "{stderr}"
    );
    assert!(String::from_utf8_lossy(&output.stdout).contains("dir"));
    let output = uext4(&["check", text(&image)]);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(4));
    assert!(stdout.contains("the primary superblock cannot be used"));
    assert!(stdout.contains("1 finding;"), "{stdout}");
    // The next command that writes makes it whole again.
    let output = uext4(&["mkdir", text(&image), "/new"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.contains("are used"), "{stderr}");
    judge(&image);
}
