//! Every call, with everything that may go wrong, by root and by two others, on the kernel's ext4 and on
//! our mount: the same answers, the same to see afterwards.
//!
//! | file | what |
//! |---|---|
//! | `harness.py` | users, calls, what is printed: a line each |
//! | `paths.py` | each call on each kind of path, each pair of paths renamed and linked, read-only mounts |
//! | `contents.py` | data, ranges, holes, copies, mappings, locks, listings, files without names |
//! | `attributes.py` | set-id bits, what is inherited, ACLs, attributes, flags |
//! | `times.py` | which times change, and what they can be set to |
//!
//! In Python, as it has every call of the system, mappings and locks among them, and can become another
//! user. What FUSE makes impossible is left out there, with a word why, and told in docs/fuse.md.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::host::{Shown, UEXT4, mke2fs, run, scratch, text, uext4_ok, unmount};

const SCRIPT: [&str; 6] = [
    include_str!("calls/harness.py"),
    include_str!("calls/paths.py"),
    include_str!("calls/contents.py"),
    include_str!("calls/attributes.py"),
    include_str!("calls/times.py"),
    include_str!("calls/end.py"),
];

/// Differences that are shown of one part.
const SHOWN: usize = 20;

/// The kernel's ext4 and ours, made alike.
struct Both {
    /// The kernel's; before the directory it is in.
    theirs: Option<Shown>,
    scratch: TempDir,
}

const PLACES: [&str; 2] = ["kernel", "ours"];

impl Both {
    /// `None`, with a word why, where they cannot be mounted.
    fn new() -> Option<Self> {
        if !crate::host::can_mount() {
            return None;
        }
        if !Path::new("/dev/fuse").exists() || Command::new("python3").arg("-V").output().is_err() {
            println!("skipped: needs /dev/fuse and python3");
            return None;
        }
        let mut both = Self {
            theirs: None,
            scratch: scratch(),
        };
        // Others must get there.
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(both.scratch.path(), open).unwrap();
        for place in PLACES {
            fs::create_dir(both.path(place)).unwrap();
            let image = both.path(&format!("{place}.img"));
            mke2fs(&image, &["-t", "ext4", "-b", "4096"], 512);
        }
        fs::write(both.path("calls.py"), SCRIPT.join("\n\n")).unwrap();
        both.mount("rw");
        Some(both)
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.scratch.path().join(name)
    }

    fn mount(&mut self, options: &str) {
        let [theirs, ours] =
            PLACES.map(|place| (self.path(&format!("{place}.img")), self.path(place)));
        self.theirs = Some(Shown::new(&theirs.0, &theirs.1, options));
        let options = format!("allow_other,suid,dev,{options}");
        uext4_ok(&["mount", "-o", &options, text(&ours.0), text(&ours.1)]);
    }

    fn unmount(&mut self) {
        self.theirs.take().into_iter().for_each(Shown::end);
        unmount(UEXT4, &["umount", text(&self.path("ours"))]);
    }

    /// What each answers to the calls of a part.
    fn answers(&self, part: &str) -> [String; 2] {
        let answers = |place: &str| {
            let root = self.path(place);
            let told = run(
                "python3",
                &[text(&self.path("calls.py")), text(&root), part],
            );
            String::from_utf8_lossy(&told).replace(text(&root), "ROOT")
        };
        std::thread::scope(|scope| {
            let theirs = scope.spawn(|| answers("kernel"));
            let ours = answers("ours");
            [theirs.join().unwrap(), ours]
        })
    }

    fn compare(&self, part: &str) {
        let [theirs, ours] = self.answers(part);
        assert!(theirs.lines().count() >= 3, "{part}: nothing was asked");
        let mut told = String::new();
        let pairs = theirs.lines().zip(ours.lines());
        for (their, our) in pairs.filter(|(their, our)| their != our).take(SHOWN) {
            _ = writeln!(told, "kernel: {their}\nours:   {our}");
        }
        assert!(told.is_empty(), "{told}");
        assert_eq!(theirs.lines().count(), ours.lines().count(), "{part}");
    }
}

impl Drop for Both {
    fn drop(&mut self) {
        // If it is mounted still.
        let ours = self.path("ours");
        _ = Command::new("umount").arg("-l").arg(ours).output();
    }
}

/// Compares parts on fresh file systems; ours must be sound afterwards.
fn compare(parts: &[&str]) {
    let Some(mut both) = Both::new() else { return };
    for part in parts {
        both.compare(part);
    }
    both.unmount();
    run("e2fsck", &["-f", "-n", text(&both.path("ours.img"))]);
}

#[test]
fn each_call_on_each_path_by_each_user() {
    compare(&["single"]);
}

#[test]
fn each_pair_of_paths_renamed_and_linked() {
    compare(&["paired"]);
}

#[test]
fn a_mount_for_reading_refuses_the_same() {
    let Some(mut both) = Both::new() else { return };
    both.answers("for_reading");
    both.unmount();
    both.mount("ro");
    both.compare("refused");
    both.unmount();
}

#[test]
fn data_ranges_and_what_is_left_of_them() {
    compare(&["writing", "sparse", "copies", "direct", "ranges"]);
}

#[test]
fn mappings_locks_and_listings() {
    compare(&["mappings", "locks", "listings", "unnamed", "links"]);
}

#[test]
fn owners_modes_and_attributes() {
    compare(&["set_ids", "inherited", "acls", "xattrs", "flagged"]);
}

#[test]
fn times_of_everything() {
    compare(&["changes", "setting", "births"]);
}
