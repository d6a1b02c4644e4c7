//! What goes wrong leaves nothing, and says what it was.

use std::cell::Cell;
use std::fs;
use std::path::Path;

use uext4_image::{BuildOptions, Error, Excludes, Size, Source, build};

use crate::building::Place;
use crate::fixture::run;

/// Builds from an archive or a directory, which must fail; what had the name before still has it.
fn failure(place: &Place, source: &Source, options: &BuildOptions) -> Error {
    fs::write(place.image(), "before").unwrap();
    let error = build(source, &place.image(), options, &()).unwrap_err();
    assert_eq!(fs::read(place.image()).unwrap(), b"before");
    let left = fs::read_dir(place.path()).unwrap();
    let left = left.filter(|e| {
        let name = e.as_ref().unwrap().file_name();
        !["tree", "x.img", "a.tar"]
            .iter()
            .any(|known| name == *known)
    });
    assert_eq!(left.count(), 0, "something is left behind");
    error
}

fn exactly(bytes: u64) -> BuildOptions {
    BuildOptions {
        size: Size::Exact(bytes),
        ..BuildOptions::default()
    }
}

#[test]
fn a_source_that_does_not_fit() {
    let place = Place::populated();
    fs::write(place.tree().join("large"), vec![1; 5 << 20]).unwrap();
    let directory = Source::Directory(place.tree());
    let error = failure(&place, &directory, &exactly(4 << 20));
    assert!(
        matches!(error, Error::DoesNotFit { what: "bytes", .. }),
        "{error}"
    );
    assert!(matches!(
        failure(&place, &directory, &exactly(4096)),
        Error::Mkfs(_)
    ));
}

#[test]
fn a_target_too_long_for_the_blocks_names_the_blocks_that_it_needs() {
    let place = Place::populated();
    std::os::unix::fs::symlink("x".repeat(4000), place.tree().join("lnk")).unwrap();
    let directory = Source::Directory(place.tree());
    let error = failure(&place, &directory, &exactly(16 << 20)).to_string();
    assert!(error.contains("lnk: the target of 4000 bytes"), "{error}");
    assert!(error.contains("`-b 4096`"), "{error}");
}

#[test]
fn times_that_small_inodes_cannot_hold_are_named() {
    let place = Place::populated();
    run(place.path(), &["touch", "-d", "2040-01-01", "tree/late"]);
    let directory = Source::Directory(place.tree());
    for (inode_size, is_warned) in [(128, true), (256, false)] {
        let mut options = BuildOptions::default();
        options.mkfs.inode_size = Some(inode_size);
        let report = build(&directory, &place.image(), &options, &()).unwrap();
        let warned = report
            .warnings
            .shown
            .iter()
            .any(|w| w.starts_with("late: its times"));
        assert_eq!(warned, is_warned, "{:?}", report.warnings);
    }
}

#[test]
fn archives_cut_short_or_hostile() {
    let place = Place::populated();
    run(
        place.path(),
        &["tar", "-C", "tree", "-cf", "a.tar", "sub", "hello"],
    );
    let path = place.path().join("a.tar");
    let archive = Source::TarFile(path.clone());
    let bytes = fs::read(&path).unwrap();
    for len in [0, 100, 512, 700, bytes.len() / 2, bytes.len() - 10_000] {
        fs::write(&path, &bytes[..len]).unwrap();
        let error = failure(&place, &archive, &BuildOptions::default());
        assert!(matches!(error, Error::Tar { .. }), "{len} bytes: {error}");
    }
    run(
        place.path(),
        &["tar", "-C", "tree/sub", "-P", "-cf", "a.tar", "../hello"],
    );
    let error = failure(&place, &archive, &BuildOptions::default()).to_string();
    assert!(error.contains("../hello: \"..\" in the path"), "{error}");
}

#[test]
fn a_file_that_changes_meanwhile() {
    use uext4_image::{Amount, Phase, Progress};
    /// Truncates a file when the build looks for the so manieth time whether it is cancelled: once
    /// for each entry that is listed, then once for each file that is copied.
    struct Truncate<'a>(&'a Path, Cell<usize>);
    impl Progress for Truncate<'_> {
        fn begin(&self, _: Phase, _: Option<Amount>) {}
        fn update(&self, _: Amount) {}
        fn is_cancelled(&self) -> bool {
            self.1.set(self.1.get().wrapping_sub(1));
            if self.1.get() == 0 {
                fs::write(self.0, "shorter").unwrap();
            }
            false
        }
    }
    for size in [Size::Auto, Size::Min] {
        let place = Place::populated();
        let changing = place.tree().join("sub/block");
        let source = Source::Directory(place.tree());
        let options = BuildOptions {
            size,
            ..BuildOptions::default()
        };
        let entries = crate::walk::walk(&place.tree()).len();
        let truncate = Truncate(&changing, Cell::new(entries));
        let error = build(&source, &place.image(), &options, &truncate).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("sub/block: changed while it was read"),
            "{error}"
        );
        assert!(!place.image().exists());
    }
}

#[test]
fn a_cancelled_build_leaves_nothing() {
    use uext4_image::{Amount, Phase, Progress};
    struct Cancel(Cell<u32>);
    impl Progress for Cancel {
        fn begin(&self, _: Phase, _: Option<Amount>) {}
        fn update(&self, _: Amount) {}
        fn is_cancelled(&self) -> bool {
            self.0.set(self.0.get().saturating_sub(1));
            self.0.get() == 0
        }
    }
    let place = Place::populated();
    let source = Source::Directory(place.tree());
    for calls in [1, 10, 30, 50] {
        let cancel = Cancel(Cell::new(calls));
        let options = BuildOptions::default();
        let error = build(&source, &place.image(), &options, &cancel).unwrap_err();
        assert!(matches!(error, Error::Cancelled), "{error}");
        assert!(!place.image().exists());
    }
}

#[test]
fn attributes_that_do_not_fit_name_the_file() {
    let place = Place::new();
    let file = place.tree().join("many");
    fs::write(&file, "x").unwrap();
    for i in 0..3 {
        let name = format!("user.a{i}");
        let value = vec![i; 3000];
        let flags = rustix::fs::XattrFlags::empty();
        if rustix::fs::setxattr(&file, name, &value, flags).is_err() {
            println!("skipped: attributes of this size cannot be made here");
            return;
        }
    }
    let source = Source::Directory(place.tree());
    let error = failure(&place, &source, &BuildOptions::default()).to_string();
    assert!(error.starts_with("many: "), "{error}");
}

#[test]
fn the_output_itself_is_left_out() {
    let place = Place::populated();
    let inside = place.tree().join("inside.img");
    fs::write(&inside, vec![1; 100_000]).unwrap();
    let source = Source::Directory(place.tree());
    let report = build(&source, &inside, &BuildOptions::default(), &()).unwrap();
    assert_eq!(
        report.warnings.shown,
        ["inside.img: left out: it is the output"]
    );
    uext4_testkit::assert_clean(&inside);
}

#[test]
fn what_cannot_be_written_or_read() {
    let place = Place::populated();
    let options = BuildOptions::default();
    let source = Source::Directory(place.tree());
    for output in ["/no/such/dir/x.img", "/dev/null", "/"] {
        let error = build(&source, Path::new(output), &options, &()).unwrap_err();
        assert!(error.to_string().contains(output), "{error}");
    }
    let missing = Source::Directory(place.path().join("missing"));
    assert!(matches!(
        failure(&place, &missing, &options),
        Error::Source { .. }
    ));
    assert!(Excludes::new(["["]).is_err());
}
