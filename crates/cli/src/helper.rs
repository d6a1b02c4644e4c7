//! Called as mount(8) and umount(8) call the helpers of a type:
//! `mount.fuse.uext4 IMAGE DIR [-s] [-n] [-v] [-f] [-t TYPE] [-o OPTIONS]` is
//! `mount IMAGE DIR -o OPTIONS` in our words, and
//! `umount.fuse.uext4 DIR [-n] [-l] [-f] [-r] [-v] [-t TYPE]` is `umount DIR [-l]`.

use std::ffi::OsString;
use std::path::Path;

/// The names that mount(8) and umount(8) look for, and our command.
const NAMES: [(&str, &str); 4] = [
    ("mount.fuse.uext4", "mount"),
    ("mount.uext4", "mount"),
    ("umount.fuse.uext4", "umount"),
    ("umount.uext4", "umount"),
];

/// The command line in our words.
pub fn arguments(called: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut all: Vec<OsString> = called.into_iter().collect();
    let name = all.first().and_then(|first| Path::new(first).file_name());
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
    fn under_its_own_name_nothing_changes() {
        let called = ["uext4", "ls", "-n", "img"];
        assert_eq!(of(&called), called);
        assert!(of(&[]).is_empty());
    }
}
