//! How much memory this process may take: the least of what the machine has, what its control
//! groups allow, and its resource limits.
//!
//! Limits of a group bind the groups below it, so all groups from the own one up to the root are
//! looked at: what of them is visible, which in a control group namespace are those below its
//! root. Of a hierarchy that is mounted several times the first place is taken. Left out: mounts
//! whose path has a space.

use std::path::{Component, Path, PathBuf};

use super::{LEN_MAX, read};

/// Bytes of the table of mounts that are looked at; control groups are mounted early.
const MOUNTS_MAX: u64 = 4 << 20;
/// Files with a limit in bytes or the word `max`, in a group of version 2.
const UNIFIED: [&str; 2] = ["memory.max", "memory.high"];
/// The same in a group of version 1, where no limit is a very large one.
const LEGACY: [&str; 1] = ["memory.limit_in_bytes"];

/// The least of all that is known, with the files below `root` and these resource limits.
pub(super) fn least(root: &Path, own: [Option<u64>; 2]) -> Option<u64> {
    let machine = read(&root.join("proc/meminfo"), LEN_MAX);
    let machine = machine.and_then(|text| total(&text));
    let groups = of_groups(root);
    machine
        .into_iter()
        .chain(groups)
        .chain(own.into_iter().flatten())
        .min()
}

/// `MemTotal` of `/proc/meminfo`, in bytes.
fn total(meminfo: &str) -> Option<u64> {
    let mut lines = meminfo.lines();
    let line = lines.find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib = line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?;
    kib.checked_mul(1024)
}

/// The limits of the groups that this process is in, and of those above them.
fn of_groups(root: &Path) -> Vec<u64> {
    let own = read(&root.join("proc/self/cgroup"), LEN_MAX);
    let mounts = read(&root.join("proc/self/mountinfo"), MOUNTS_MAX);
    let (Some(own), Some(mounts)) = (own, mounts) else {
        return Vec::new();
    };
    let mut limits = Vec::new();
    // `4:memory:/a/b`, or of version 2 `0::/a/b`.
    for line in own.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else {
            continue;
        };
        let files: &[&str] = match controllers {
            "" => &UNIFIED,
            controllers if controllers.split(',').any(|name| name == "memory") => &LEGACY,
            _ => continue,
        };
        if let Some(place) = Hierarchy::find(&mounts, controllers.is_empty()) {
            limits.extend(place.limits(root, Path::new(group), files));
        }
    }
    limits
}

/// Where control groups are mounted.
struct Hierarchy<'a> {
    /// The group that is shown.
    top: &'a Path,
    /// Where.
    dir: &'a Path,
}

impl<'a> Hierarchy<'a> {
    /// That of version 2, or of version 1 with the controller `memory`, in a table of mounts:
    /// `35 31 0:32 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory`.
    fn find(mounts: &'a str, is_unified: bool) -> Option<Self> {
        mounts.lines().find_map(|line| {
            let (place, kind) = line.split_once(" - ")?;
            let mut place = place.split(' ').skip(3);
            let (top, dir) = (Path::new(place.next()?), Path::new(place.next()?));
            let mut kind = kind.split(' ');
            let name = kind.next()?;
            let mut options = kind.nth(1)?.split(',');
            let is_it = match is_unified {
                true => name == "cgroup2",
                false => name == "cgroup" && options.any(|option| option == "memory"),
            };
            is_it.then_some(Self { top, dir })
        })
    }

    /// The limits in `files` of a group and of all above it that are shown.
    fn limits(&self, root: &Path, group: &Path, files: &[&str]) -> Vec<u64> {
        let below = group.strip_prefix(self.top).unwrap_or(Path::new(""));
        // A group outside of the namespace's root is called `/..`: it is not shown.
        let is_shown = below.components().all(|part| part != Component::ParentDir);
        let below = if is_shown { below } else { Path::new("") };
        let dir = root.join(self.dir.strip_prefix("/").unwrap_or(self.dir));
        let groups = below.ancestors().map(|part| dir.join(part));
        groups.flat_map(|group| in_group(&group, files)).collect()
    }
}

fn in_group(group: &Path, files: &[&str]) -> Vec<u64> {
    let paths = files.iter().map(|file| group.join(file));
    // Not a number is no limit: `max`.
    let number = |path: PathBuf| read(&path, LEN_MAX)?.trim().parse().ok();
    paths.filter_map(number).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    const MIB: u64 = 1 << 20;
    const UNIFIED_MOUNT: &str = "30 29 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 \
                                 rw,nsdelegate\n";
    const LEGACY_MOUNT: &str = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

    /// A machine of 1 GiB, and files.
    fn machine(files: &[(&str, &str)]) -> TempDir {
        let dir = tempfile::tempdir().unwrap();
        let all = [("proc/meminfo", "MemTotal:  1048576 kB\nMemFree:  1 kB\n")];
        for (path, text) in all.iter().chain(files) {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    fn mib(files: &[(&str, &str)]) -> u64 {
        least(machine(files).path(), [None, None]).unwrap() / MIB
    }

    #[test]
    fn the_machine_and_resource_limits() {
        let dir = machine(&[]);
        assert_eq!(least(dir.path(), [None, None]), Some(1024 * MIB));
        assert_eq!(least(dir.path(), [None, Some(7)]), Some(7));
        let nothing = tempfile::tempdir().unwrap();
        assert_eq!(least(nothing.path(), [None, None]), None);
        assert_eq!(least(nothing.path(), [Some(9), Some(7)]), Some(7));
        for bad in [
            "",
            "MemTotal:",
            "MemTotal: x kB",
            "MemTotal: 99999999999999999999 kB",
        ] {
            assert_eq!(total(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn limits_of_version_2_hold_for_all_groups_below() {
        let own = ("proc/self/cgroup", "0::/a/b\n");
        let mounts = ("proc/self/mountinfo", UNIFIED_MOUNT);
        let of = |files: &[(&str, &str)]| mib(&[&[own, mounts], files].concat());
        let group = "sys/fs/cgroup/a/b/memory.max";
        assert_eq!(of(&[(group, "max\n")]), 1024);
        assert_eq!(of(&[(group, "104857600\n")]), 100);
        let high = "sys/fs/cgroup/a/b/memory.high";
        assert_eq!(of(&[(group, "104857600\n"), (high, "52428800\n")]), 50);
        let above = "sys/fs/cgroup/a/memory.max";
        assert_eq!(of(&[(group, "104857600\n"), (above, "31457280\n")]), 30);
        // That of the namespace's own root, which elsewhere has none.
        let root = "sys/fs/cgroup/memory.high";
        assert_eq!(of(&[(group, "max\n"), (root, "20971520\n")]), 20);
        let aside = "sys/fs/cgroup/c/memory.max";
        assert_eq!(of(&[(aside, "1048576\n")]), 1024);
    }

    #[test]
    fn a_group_that_is_mounted_as_the_top_and_one_outside_of_the_namespace() {
        let mounts = UNIFIED_MOUNT.replace(" / ", " /docker/x ");
        let mounts = ("proc/self/mountinfo", &*mounts);
        for own in [
            "0::/docker/x\n",
            "0::/docker/x/y\n",
            "0::/../z\n",
            "0::/other\n",
        ] {
            let files = [("sys/fs/cgroup/memory.max", "104857600\n")];
            let all = [&[("proc/self/cgroup", own), mounts], &files[..]].concat();
            assert_eq!(mib(&all), 100, "{own}");
        }
    }

    #[test]
    fn limits_of_version_1_next_to_version_2() {
        let own = "9:name=systemd:/\n4:cpu,memory:/p/q\n1:cpu:/\n0::/\n";
        let mounts = format!(
            "{}{LEGACY_MOUNT}",
            UNIFIED_MOUNT.replace("group ", "group/unified ")
        );
        let all = [
            ("proc/self/cgroup", own),
            ("proc/self/mountinfo", &mounts),
            (
                "sys/fs/cgroup/memory/p/q/memory.limit_in_bytes",
                "9223372036854771712\n",
            ),
            ("sys/fs/cgroup/memory/p/memory.limit_in_bytes", "62914560\n"),
        ];
        assert_eq!(mib(&all), 60);
        assert_eq!(mib(&all[..3]), 1024);
    }
}
