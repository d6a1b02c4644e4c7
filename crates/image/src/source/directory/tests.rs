//! A directory with one of everything, and what can go wrong with one.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::error::Error;
use crate::source::{Contents, Excludes, Source, SourceOptions};
use crate::tests::{is_root, listed, listed_with, pattern, populate, seen};
use crate::tree::EntryId;
use uext4_ondisk::inode::FileType;

fn fixture() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    populate(dir.path());
    dir
}

fn source(dir: &tempfile::TempDir) -> Source {
    Source::Directory(dir.path().to_path_buf())
}

#[test]
fn one_of_everything() {
    let dir = fixture();
    let listing = listed(&source(&dir)).unwrap();
    assert!(listing.warnings.shown.is_empty(), "{:?}", listing.warnings);
    let seen = seen(&listing);
    assert_eq!(seen["hello"].size, 13);
    assert_eq!(seen["hello"].mode, 0o4755);
    assert_eq!(seen["hello"].times[1], 2_208_988_800_123_456_789);
    assert_eq!(seen["hello"].xattrs.len(), if is_root() { 3 } else { 2 });
    assert_eq!(seen["sub/hello-again"].same_as, "hello");
    assert_eq!(seen["zz-hello"].same_as, "hello");
    assert_eq!(seen["sub/block"].times[1], -315_619_200_000_000_000);
    assert_eq!(seen["sub/block"].xattrs[0].0, "system.posix_acl_access");
    assert_eq!(seen["link"].target, "hello");
    assert_eq!(seen["fifo"].kind, FileType::Fifo);
    assert_eq!(seen["all-hole"].pieces, []);
    assert_eq!(
        seen["sparse"].pieces,
        [(1 << 20, (1 << 20) + 8192), (3 << 20, (3 << 20) + 4096)]
    );
    assert!(seen.contains_key(r"bytes-\xff\xfe\n"));
    if is_root() {
        assert_eq!(seen["sub/deep/big"].owner, (100_000, 100_001));
        assert_eq!(seen["block"].device, Some((259, 300_000)));
        assert_eq!(seen["char"].device, Some((5, 1)));
    }
}

#[test]
fn names_are_in_order_and_listing_twice_is_the_same() {
    let dir = fixture();
    let listing = listed(&source(&dir)).unwrap();
    let paths: Vec<_> = listing
        .tree
        .entries()
        .map(|e| listing.tree.path(e))
        .collect();
    let names: Vec<Vec<_>> = paths
        .iter()
        .skip(1)
        .map(|p| p.split(|&b| b == b'/').collect())
        .collect();
    assert!(names.is_sorted(), "not depth first, by the bytes of names");
    let again = listed(&source(&dir)).unwrap();
    assert!(again.tree.entries().map(|e| again.tree.path(e)).eq(paths));
}

#[test]
fn excluded_directories_are_not_entered() {
    let dir = fixture();
    let options = SourceOptions {
        excludes: Excludes::new(["/sub/d*", "*.none", "zoë-*"]).unwrap(),
        uid: Some(1),
        ..SourceOptions::default()
    };
    let seen = seen(&listed_with(&source(&dir), &options).unwrap());
    let below = |prefix: &str| seen.keys().filter(|k| k.starts_with(prefix)).count();
    assert_eq!((below("sub/d"), below("zo"), below("sub/")), (0, 0, 2));
    assert!(seen.values().all(|one| one.owner.0 == 1));
}

#[test]
fn a_file_that_changes_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, pattern(10_000)).unwrap();
    let listing = listed(&source(&dir)).unwrap();
    let entry = listing.tree.child(EntryId::ROOT, b"file").unwrap();
    let open = || Contents::new(&listing).open(entry);
    let content = open().unwrap();
    fs::write(&path, "short").unwrap();
    let mut buf = vec![0; 10_000];
    assert!(content.read_exact_at(0, &mut buf).is_err());
    let error = content.take_error().unwrap().to_string();
    assert!(error.contains("file: changed while it was read (it became shorter)"));
    assert!(open().unwrap_err().to_string().contains("its size"));
    fs::write(&path, pattern(10_000)).unwrap();
    crate::tests::set_time(&path, 5, 5);
    assert!(open().unwrap_err().to_string().contains("its time"));
    fs::remove_file(&path).unwrap();
    assert!(matches!(open(), Err(Error::Source { op: "open", .. })));
    fs::create_dir(&path).unwrap();
    assert!(matches!(open(), Err(Error::Changed { .. })));
}

#[test]
fn clamped_times_do_not_look_like_changes() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "x").unwrap();
    let mut listing = listed(&source(&dir)).unwrap();
    listing
        .tree
        .clamp_times(uext4_ondisk::inode::Timestamp { sec: 1, nsec: 0 });
    let seen = seen(&listing);
    assert_eq!(seen["file"].times, [1_000_000_000; 3]);
}

#[test]
fn deeper_than_a_path_may_be_long() {
    let dir = tempfile::tempdir().unwrap();
    let mut fd = rustix::fs::open(dir.path(), rustix::fs::OFlags::RDONLY, 0.into()).unwrap();
    let name = "x".repeat(250);
    for _ in 0..20 {
        rustix::fs::mkdirat(&fd, &name, 0o755.into()).unwrap();
        fd = rustix::fs::openat(&fd, &name, rustix::fs::OFlags::RDONLY, 0.into()).unwrap();
    }
    let file = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
    rustix::fs::openat(&fd, "end", file, 0o644.into()).unwrap();
    let listing = listed(&source(&dir)).unwrap();
    assert_eq!(listing.tree.len(), 22);
    let last = listing.tree.entries().last().unwrap();
    Contents::new(&listing).open(last).unwrap();
}

#[test]
fn other_file_systems_below_can_be_left_out() {
    let options = SourceOptions {
        one_file_system: true,
        ..SourceOptions::default()
    };
    // Wherever this runs, /dev/pts or /dev/shm is something else than /dev.
    let dev = fs::metadata("/dev").unwrap();
    let pts = fs::metadata("/dev/pts").unwrap();
    use std::os::unix::fs::MetadataExt;
    if dev.dev() == pts.dev() || fs::read_dir("/dev/pts").unwrap().next().is_none() {
        println!("skipped: nothing is mounted on /dev/pts");
        return;
    }
    let listing = listed_with(&Source::Directory("/dev".into()), &options).unwrap();
    let pts = listing.tree.child(EntryId::ROOT, b"pts").unwrap();
    assert_eq!(listing.tree.children(pts).count(), 0);
}

#[test]
fn unreadable_directories_are_named() {
    let dir = fixture();
    fs::create_dir(dir.path().join("closed")).unwrap();
    fs::set_permissions(dir.path().join("closed"), fs::Permissions::from_mode(0o000)).unwrap();
    let result = listed(&source(&dir));
    if is_root() {
        result.unwrap();
    } else {
        assert!(
            result
                .unwrap_err()
                .to_string()
                .contains("closed: cannot open")
        );
    }
    let missing = listed(&Source::Directory(dir.path().join("none")));
    assert!(
        missing
            .unwrap_err()
            .to_string()
            .contains("none: cannot open")
    );
}

#[test]
fn files_of_proc_that_are_empty_by_their_size_have_contents() {
    let listing = listed(&Source::Directory("/proc/self/net".into())).unwrap();
    let tree = &listing.tree;
    let file = tree.child(EntryId::ROOT, b"protocols").unwrap();
    assert!(tree.node_of(file).size() > 0);
}
