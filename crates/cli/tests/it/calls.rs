//! Every call, with everything that may go wrong, by root and by two others, on the kernel's ext4
//! and on our mount over each transport: the same answers, the same to see afterwards.
//!
//! | file | what |
//! |---|---|
//! | `harness.py` | users, calls, what is printed: a line each |
//! | `paths.py` | each call on each kind of path, each pair of paths renamed and linked, read-only mounts |
//! | `contents.py` | data, ranges, holes, copies, mappings, locks, listings, files without names |
//! | `attributes.py` | set-id bits, what is inherited, ACLs, attributes, flags |
//! | `times.py` | which times change, and what they can be set to |
//!
//! In Python, as it has every call of the system, mappings and locks among them, and can become
//! another user. Calls that FUSE makes impossible are left out there, with the reason;
//! docs/fuse.md lists them.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use tempfile::TempDir;

use crate::host::{
    Shown, UEXT4, assert_clean, has_tool, is_long, mke2fs, run, scratch, text, uext4_ok, unmount,
    unmount_lazily,
};
use crate::served::daemon_of;
use crate::transport::{Transport, gathering, over_each};

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
    transport: Transport,
}

const PLACES: [&str; 2] = ["kernel", "ours"];

impl Both {
    /// `None`, with a word why, where they cannot be mounted.
    fn new(transport: Transport) -> Option<Self> {
        if !transport.can_serve() || !has_tool("python3") {
            return None;
        }
        let mut both = Self {
            theirs: None,
            scratch: scratch(),
            transport,
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
        let options = self.transport.with("allow_other,suid,dev") + "," + options;
        let arguments = ["mount", "-o", &options, text(&ours.0), text(&ours.1)];
        self.transport.mount(|| uext4_ok(&arguments));
        self.transport.assert_serves(&daemon_of(&ours.0));
    }

    fn unmount(&mut self) {
        self.theirs.take().into_iter().for_each(Shown::end);
        unmount(UEXT4, &["umount", text(&self.path("ours"))]);
    }

    /// What each answers to the calls of a part.
    fn answers(&self, part: &str) -> [String; 2] {
        let answers = |place: &str| {
            let root = self.path(place);
            let printed = run(
                "python3",
                &[text(&self.path("calls.py")), text(&root), part],
            );
            String::from_utf8_lossy(&printed).replace(text(&root), "ROOT")
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
        let mut printed = String::new();
        let pairs = theirs.lines().zip(ours.lines());
        for (their, our) in pairs.filter(|(their, our)| their != our).take(SHOWN) {
            _ = writeln!(printed, "kernel: {their}\nours:   {our}");
        }
        assert!(printed.is_empty(), "{printed}");
        assert_eq!(theirs.lines().count(), ours.lines().count(), "{part}");
    }
}

impl Drop for Both {
    fn drop(&mut self) {
        // If it is mounted still.
        let ours = self.path("ours");
        unmount_lazily(ours);
    }
}

over_each! {
    each_call_on_each_path_by_each_user,
    each_pair_of_paths_renamed_and_linked,
    a_mount_for_reading_refuses_the_same,
    data_ranges_shrink_as_blocks_are_freed,
    mappings_locks_and_listings,
    owners_modes_and_attributes,
    times_of_everything,
}

gathering! {
    each_call_on_each_path_by_each_user,
    each_pair_of_paths_renamed_and_linked,
    contents_and_attributes,
    mappings_locks_and_listings,
}

/// Compares parts on fresh file systems; ours must be sound afterwards.
fn compare(transport: Transport, parts: &[&str]) {
    let Some(mut both) = Both::new(transport) else {
        return;
    };
    for part in parts {
        both.compare(part);
    }
    both.unmount();
    assert_clean(&both.path("ours.img"));
}

/// Others carry the same requests to the same server, so what takes long is compared over one
/// transport in the quick mode.
fn needs_long_mode(transport: Transport) -> bool {
    let needs = transport != Transport::Dev && !is_long();
    if needs {
        println!("skipped: over {transport:?} it needs UEXT4_LONG=1");
    }
    needs
}

/// Where the kernel gathers what is written. Not compared are the parts with sizes and times that
/// ext4 cannot store, which the kernel does not know (`writing`, `setting`); with changes whose
/// time the kernel does not note (`changes`); and with writes that a flag forbids afterwards
/// (`flagged`).
fn contents_and_attributes(transport: Transport) {
    compare(
        transport,
        &[
            "sparse",
            "copies",
            "direct",
            "ranges",
            "set_ids",
            "inherited",
            "acls",
            "xattrs",
            "births",
        ],
    );
}

fn each_call_on_each_path_by_each_user(transport: Transport) {
    if needs_long_mode(transport) {
        return;
    }
    compare(transport, &["single"]);
}

fn each_pair_of_paths_renamed_and_linked(transport: Transport) {
    if needs_long_mode(transport) {
        return;
    }
    compare(transport, &["paired"]);
}

fn a_mount_for_reading_refuses_the_same(transport: Transport) {
    let Some(mut both) = Both::new(transport) else {
        return;
    };
    both.answers("for_reading");
    both.unmount();
    both.mount("ro");
    both.compare("refused");
    both.unmount();
}

fn data_ranges_shrink_as_blocks_are_freed(transport: Transport) {
    if needs_long_mode(transport) {
        return;
    }
    compare(
        transport,
        &["writing", "sparse", "copies", "direct", "ranges"],
    );
}

fn mappings_locks_and_listings(transport: Transport) {
    compare(
        transport,
        &["mappings", "locks", "listings", "unnamed", "links"],
    );
}

fn owners_modes_and_attributes(transport: Transport) {
    compare(
        transport,
        &["set_ids", "inherited", "acls", "xattrs", "flagged"],
    );
}

fn times_of_everything(transport: Transport) {
    compare(transport, &["changes", "setting", "births"]);
}
