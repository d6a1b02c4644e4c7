//! One of everything, from every kind of source, with the defaults.

use std::cell::RefCell;
use std::fs;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use uext4_image::{Amount, BuildOptions, Phase, Progress, Report, Size, Source, build};

use crate::fixture::{has_tool, populate, run};
use crate::walk::{assert_same, walk, walk_image, walk_source};
use uext4_testkit::{Loop, Mount, assert_clean, can_mount};

/// A place for a tree and what is made of it.
pub struct Place(TempDir);

impl Place {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("tree")).unwrap();
        Self(dir)
    }

    pub fn populated() -> Self {
        let place = Self::new();
        populate(&place.tree());
        UnixListener::bind(place.tree().join("socket")).unwrap();
        place
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn tree(&self) -> PathBuf {
        self.path().join("tree")
    }

    pub fn image(&self) -> PathBuf {
        self.path().join("x.img")
    }

    /// Builds from the tree.
    pub fn build(&self, options: &BuildOptions) -> Report {
        let source = Source::Directory(self.tree());
        build(&source, &self.image(), options, &()).unwrap()
    }
}

#[test]
fn a_directory_becomes_what_the_kernel_shows() {
    let place = Place::populated();
    for size in [
        Size::Auto,
        Size::Min,
        Size::Free(3 << 20),
        Size::Exact(100 << 20),
    ] {
        let options = BuildOptions {
            size,
            ..BuildOptions::default()
        };
        let report = place.build(&options);
        assert_clean(&place.image());
        assert_eq!(
            fs::metadata(place.image()).unwrap().len(),
            report.image_bytes
        );
        assert!(report.warnings.shown.is_empty(), "{:?}", report.warnings);
        if can_mount() {
            let mount = Mount::new(&place.image(), "ro");
            let what = format!("{size:?}");
            assert_same(
                &walk_image(mount.path()),
                &walk_source(&place.tree()),
                &what,
            );
        }
    }
}

#[test]
fn archives_become_what_the_kernel_shows() {
    let place = Place::populated();
    let gnu = [
        "tar",
        "-C",
        "tree",
        "--numeric-owner",
        "--sparse",
        "--sort=name",
    ];
    let all = ["--format=posix", "--xattrs", "--xattrs-include=*", "--acls"];
    let bsd = [
        "bsdtar",
        "-C",
        "tree",
        "--numeric-owner",
        "--acls",
        "--xattrs",
        "--format=pax",
    ];
    let to = ["-cf", "a.tar", "."];
    for (what, command) in [
        ("GNU tar", [&gnu[..], &all, &to].concat()),
        ("bsdtar with gzip", [&bsd[..], &["-z"], &to].concat()),
        ("bsdtar with xz", [&bsd[..], &["--xz"], &to].concat()),
        ("bsdtar with zstd", [&bsd[..], &["--zstd"], &to].concat()),
    ] {
        if !has_tool(command[0]) {
            continue;
        }
        run(place.path(), &command);
        let options = BuildOptions {
            size: Size::Min,
            ..BuildOptions::default()
        };
        let source = Source::from_argument(&place.path().join("a.tar"));
        build(&source, &place.image(), &options, &()).unwrap();
        assert_clean(&place.image());
        if !can_mount() {
            continue;
        }
        let mut want = walk(&place.tree());
        want.remove("socket");
        let mount = Mount::new(&place.image(), "ro");
        let mut got = walk_image(mount.path());
        for (path, one) in want.iter_mut().chain(&mut got) {
            // Archives are written and links are read at different times.
            one.times[0] = 0;
            if path == "." {
                one.times[2] = 0;
            }
            if what.starts_with("bsdtar") && !one.target.is_empty() {
                one.xattrs.clear();
            }
        }
        assert_same(&got, &want, what);
    }
}

#[test]
fn the_same_source_gives_the_same_bytes() {
    let place = Place::populated();
    let first = place.build(&BuildOptions::default());
    let bytes = fs::read(place.image()).unwrap();
    let again = place.build(&BuildOptions::default());
    assert_eq!(first.uuid, again.uuid);
    assert!(bytes == fs::read(place.image()).unwrap());
    // A tar in the order of names is the same source, where times are.
    let options = BuildOptions {
        time: Some(0),
        clamp_times: true,
        ..BuildOptions::default()
    };
    fs::remove_file(place.tree().join("socket")).unwrap();
    place.build(&options);
    let bytes = fs::read(place.image()).unwrap();
    let command = "tar -C tree --numeric-owner --sparse --sort=name --format=posix --xattrs \
        --xattrs-include=* --acls --pax-option=delete=atime,delete=ctime -cf a.tar .";
    run(
        place.path(),
        &command.split_whitespace().collect::<Vec<_>>(),
    );
    let source = Source::TarFile(place.path().join("a.tar"));
    build(&source, &place.image(), &options, &()).unwrap();
    assert!(bytes == fs::read(place.image()).unwrap());
    // Another time is another image, with another name.
    fs::write(place.tree().join("hello"), "something else").unwrap();
    assert_ne!(place.build(&BuildOptions::default()).uuid, first.uuid);
}

#[test]
fn a_block_device_is_filled_in_place() {
    if !can_mount() {
        return;
    }
    let place = Place::populated();
    let file = place.path().join("disk");
    // What was there before must not shine through.
    fs::write(&file, vec![0xA5; 64 << 20]).unwrap();
    let device = Loop::new(&file);
    let source = Source::Directory(place.tree());
    let report = build(&source, device.path(), &BuildOptions::default(), &()).unwrap();
    assert_eq!(report.image_bytes, 64 << 20);
    drop(device);
    assert_clean(&file);
    let mount = Mount::new(&file, "ro");
    assert_same(
        &walk_image(mount.path()),
        &walk_source(&place.tree()),
        "block device",
    );
}

#[test]
fn a_source_with_lost_and_found() {
    let place = Place::new();
    let lost = place.tree().join("lost+found");
    fs::create_dir(&lost).unwrap();
    fs::write(lost.join("#12"), "found").unwrap();
    place.build(&BuildOptions::default());
    assert_clean(&place.image());
    if can_mount() {
        let mount = Mount::new(&place.image(), "ro");
        let want = walk(&place.tree());
        assert_same(&walk(mount.path()), &want, "lost+found");
    }
}

#[derive(Default)]
struct Watcher(RefCell<Vec<(Phase, Option<Amount>, Amount)>>);

impl Progress for Watcher {
    fn begin(&self, phase: Phase, total: Option<Amount>) {
        self.0.borrow_mut().push((phase, total, Amount::default()));
    }

    fn update(&self, done: Amount) {
        self.0.borrow_mut().last_mut().unwrap().2 = done;
    }
}

#[test]
fn progress_and_report_agree() {
    let place = Place::populated();
    let watcher = Watcher::default();
    let source = Source::Directory(place.tree());
    let report = build(&source, &place.image(), &BuildOptions::default(), &watcher).unwrap();
    let phases = watcher.0.into_inner();
    let order: Vec<_> = phases.iter().map(|p| p.0).collect();
    let timed: Vec<_> = report.elapsed.iter().map(|e| e.0).collect();
    assert!(
        order.is_sorted() && order == timed && order.len() == 5,
        "{order:?}"
    );
    let (_, total, done) = phases[3];
    assert_eq!(total, Some(done));
    assert_eq!(done.bytes, report.content_bytes);
    assert_eq!(done.entries, report.entries + 1);
    assert_eq!(report.entries as usize + 1, walk(&place.tree()).len());
}
