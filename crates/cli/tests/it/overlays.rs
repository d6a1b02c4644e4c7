//! overlayfs with all layers in one mount: it keeps handles of files that were copied up, and
//! decodes them when the kernel has dropped what it knew. It must show what it shows on the
//! kernel's ext4.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::host::{UEXT4, assert_clean, has_tool, mke2fs, scratch, text, unmount_lazily};
use crate::mounted::can_mount;

/// Options of overlayfs that change what it stores, and how it finds it again. Not `volatile`,
/// which can be mounted once alone.
const OPTIONS: [&str; 13] = [
    "",
    "index=on",
    "index=off",
    "xino=on",
    "xino=off",
    "redirect_dir=on",
    "redirect_dir=off",
    "redirect_dir=follow",
    "index=on,nfs_export=on",
    "userxattr",
    "metacopy=on,redirect_dir=on",
    "metacopy=on,redirect_dir=on,index=on",
    "uuid=on",
];

/// What is seen on a new image that is mounted so.
fn transcript(dir: &Path, who: &str, options: &str) -> String {
    let at = |name: &str| dir.join(name);
    let (image, place, merged) = (at("image"), at("mnt"), at("merged"));
    _ = fs::remove_file(&image);
    mke2fs(&image, &["-t", "ext4"], 64);
    let (image, place) = (text(&image), text(&place));
    let (mount, unmount) = match who {
        "kernel" => (
            format!("mount -o loop {image} {place}"),
            format!("umount {place}"),
        ),
        _ => (
            format!("{UEXT4} mount {image} {place}"),
            format!("{UEXT4} umount {place}"),
        ),
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/overlays/transcript.sh");
    let seen = Command::new("sh")
        .args([
            text(&script),
            &mount,
            &unmount,
            place,
            text(&merged),
            options,
        ])
        .output();
    for path in [merged, place.into()] {
        unmount_lazily(path);
    }
    let seen = seen.unwrap();
    assert!(seen.status.success(), "{who} {options}: {seen:?}");
    assert_clean(Path::new(image));
    String::from_utf8_lossy(&seen.stdout).into_owned()
}

/// The same without the numbers of links: the index has one more name of a file with several, which
/// overlayfs subtracts only where it has found the lower file.
fn without_links(transcript: &str) -> String {
    let line = |line: &str| match line.split(' ').collect::<Vec<_>>()[..] {
        [path, kind, size, mode, user, _, target] => {
            format!("{path} {kind} {size} {mode} {user} {target}\n")
        }
        _ => format!("{line}\n"),
    };
    transcript.lines().map(line).collect()
}

#[test]
fn an_overlay_shows_the_same_as_on_the_kernels_ext4_whatever_was_dropped() {
    let knows_overlays = fs::read_to_string("/proc/filesystems")
        .is_ok_and(|all| all.lines().any(|line| line.ends_with("\toverlay")));
    if !can_mount() || !has_tool("setfattr") {
        return;
    }
    if !knows_overlays {
        println!("skipped: needs overlayfs");
        return;
    }
    let dir = scratch();
    for name in ["mnt", "merged"] {
        fs::create_dir(dir.path().join(name)).unwrap();
    }
    for options in OPTIONS {
        let [expected, seen] = ["kernel", "uext4"].map(|who| {
            let seen = transcript(dir.path(), who, options);
            match options.contains("index=on") {
                true => without_links(&seen),
                false => seen,
            }
        });
        assert!(expected.contains("-- ended\n"), "{options}: {expected}");
        assert!(
            seen == expected,
            "{options}:\n{seen}\nin place of\n{expected}"
        );
    }
}
