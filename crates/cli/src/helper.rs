//! The names by which the program may be called, and the command line that each of them stands for.
//!
//! As mount(8) and umount(8) call the helpers of a type,
//! `mount.fuse.uext4 IMAGE DIR [-s] [-n] [-v] [-f] [-t TYPE] [-o OPTIONS]` is
//! `uext4 mount IMAGE DIR -o OPTIONS`, and
//! `umount.fuse.uext4 DIR [-n] [-l] [-f] [-r] [-v] [-t TYPE]` is `uext4 umount DIR [-l]`.
//! `fsck.uext4` and its like are `uext4 fsck`, and `mkfs.ext4` and its like are
//! `uext4 mkfs -t TYPE`; mke2fs makes ext2 if no type is given.

use std::ffi::OsString;
use std::path::Path;

/// The names that mount(8) and umount(8) look for, and the command.
const NAMES: [(&str, &str); 4] = [
    ("mount.fuse.uext4", "mount"),
    ("mount.uext4", "mount"),
    ("umount.fuse.uext4", "umount"),
    ("umount.uext4", "umount"),
];

/// The names of e2fsck, and those that fsck(8) and the initial RAM disks look for.
const FSCK_NAMES: [&str; 5] = [
    "fsck.uext4",
    "e2fsck",
    "fsck.ext2",
    "fsck.ext3",
    "fsck.ext4",
];

/// The name that mkfs(8) looks for and the names of mke2fs, and the type that each makes.
const MKFS_NAMES: [(&str, &str); 5] = [
    ("mkfs.uext4", "ext4"),
    ("mke2fs", "ext2"),
    ("mkfs.ext2", "ext2"),
    ("mkfs.ext3", "ext3"),
    ("mkfs.ext4", "ext4"),
];

/// The command line under the program's own name.
pub fn arguments(called: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut all: Vec<OsString> = called.into_iter().collect();
    let name = all.first().and_then(|first| Path::new(first).file_name());
    if let Some((_, fs_type)) = name.and_then(|name| MKFS_NAMES.iter().find(|(k, _)| name == *k)) {
        return as_mkfs(all, fs_type);
    }
    if name.is_some_and(|name| FSCK_NAMES.iter().any(|known| name == *known)) {
        all.insert(1, "fsck".into());
        return all;
    }
    let known = name.and_then(|name| NAMES.iter().find(|(known, _)| name == *known));
    let Some((_, command)) = known else {
        // As mount.fuse calls what the subtype names: IMAGE DIR -o OPTIONS.
        let is_path = |at: usize| Path::new(&all[at]).is_absolute();
        if all.len() == 5 && is_path(1) && is_path(2) && all[3] == "-o" {
            all.insert(1, "mount".into());
        }
        return all;
    };
    let is_umount = *command == "umount";
    let rest = all.split_off(1);
    all.push(command.into());
    let mut rest = rest.into_iter();
    while let Some(argument) = rest.next() {
        match argument.to_str() {
            // A busy mount is not made read-only instead; requests that hang are not called off.
            Some("-r" | "-f") if is_umount => {}
            // Tolerant, not in /etc/mtab, verbose: nothing of it is for us.
            Some("-s" | "-n" | "-v") => {}
            // Ours is to stay in the foreground, theirs is to do everything but mount.
            Some("-f") => all.push("--fake".into()),
            Some("-t") => drop(rest.next()),
            _ => all.push(argument),
        }
    }
    all
}

/// `uext4 mkfs` with the type of the name, unless the words state one.
fn as_mkfs(mut all: Vec<OsString>, fs_type: &str) -> Vec<OsString> {
    let states_type = |word: &OsString| {
        let text = word.to_string_lossy();
        text.starts_with("-t") || text.starts_with("-T")
    };
    let stated = all.iter().skip(1).any(states_type);
    all.insert(1, "mkfs".into());
    if !stated {
        all.splice(2..2, ["-t".into(), fs_type.into()]);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(called: &[&str]) -> Vec<String> {
        let all = arguments(called.iter().map(OsString::from));
        all.into_iter().map(|a| a.into_string().unwrap()).collect()
    }

    #[test]
    fn as_mount_calls_us() {
        let called = [
            "/sbin/mount.fuse.uext4",
            "img",
            "/mnt",
            "-n",
            "-o",
            "rw,dev",
            "-f",
            "-t",
            "x",
        ];
        let ours = [
            "/sbin/mount.fuse.uext4",
            "mount",
            "img",
            "/mnt",
            "-o",
            "rw,dev",
            "--fake",
        ];
        assert_eq!(of(&called), ours);
    }

    #[test]
    fn as_umount_calls_us() {
        let called = "/sbin/umount.fuse.uext4 /mnt -n -l -f -v -r -t fuse.uext4";
        let called: Vec<&str> = called.split(' ').collect();
        assert_eq!(of(&called)[1..], ["umount", "/mnt", "-l"]);
    }

    #[test]
    fn as_mount_fuse_calls_us() {
        let called = ["uext4", "/img", "/mnt", "-o", "rw,dev,suid"];
        let ours = ["uext4", "mount", "/img", "/mnt", "-o", "rw,dev,suid"];
        assert_eq!(of(&called), ours);
    }

    #[test]
    fn names_of_mke2fs_state_the_type() {
        let made = of(&["/sbin/mkfs.ext3", "-q", "img", "8M"]);
        assert_eq!(made[1..], ["mkfs", "-t", "ext3", "-q", "img", "8M"]);
        assert_eq!(
            of(&["mkfs.uext4", "img"])[1..],
            ["mkfs", "-t", "ext4", "img"]
        );
        assert_eq!(of(&["mke2fs", "img"])[1..], ["mkfs", "-t", "ext2", "img"]);
        let stated = of(&["mke2fs", "-t", "ext4", "img"]);
        assert_eq!(stated[1..], ["mkfs", "-t", "ext4", "img"]);
    }

    #[test]
    fn names_of_e2fsck_are_fsck() {
        let called = of(&["/sbin/fsck.uext4", "-a", "-C0", "/dev/x"]);
        assert_eq!(called[1..], ["fsck", "-a", "-C0", "/dev/x"]);
    }

    #[test]
    fn under_its_own_name_nothing_changes() {
        let called = ["uext4", "ls", "-n", "img"];
        assert_eq!(of(&called), called);
        assert!(of(&[]).is_empty());
    }
}
