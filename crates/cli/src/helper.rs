//! Called as mount(8) calls the helpers of a type: `mount.fuse.uext4 IMAGE DIR [-s] [-n] [-v] [-f] [-t TYPE] [-o OPTIONS]`, which is
//! `mount IMAGE DIR -o OPTIONS` in our words.

use std::ffi::OsString;
use std::path::Path;

/// The names that mount(8) looks for.
const NAMES: [&str; 2] = ["mount.fuse.uext4", "mount.uext4"];

/// The command line in our words.
pub fn arguments(called: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut all: Vec<OsString> = called.into_iter().collect();
    let name = all.first().and_then(|first| Path::new(first).file_name());
    if !name.is_some_and(|name| NAMES.iter().any(|known| name == *known)) {
        return all;
    }
    let rest = all.split_off(1);
    all.push("mount".into());
    let mut rest = rest.into_iter();
    while let Some(argument) = rest.next() {
        match argument.to_str() {
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
    fn under_its_own_name_nothing_changes() {
        let called = ["uext4", "ls", "-n", "img"];
        assert_eq!(of(&called), called);
        assert!(of(&[]).is_empty());
    }
}
