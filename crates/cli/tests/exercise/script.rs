//! Arbitrary bytes as a script, run on a small image that is open for writing: used by the test of
//! scripts and by the fuzzer. Whatever the lines are, the image is sound afterwards.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use landlock::{
    AccessFs, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus, path_beneath_rules,
};
use tempfile::TempDir;
use uext4::{Filesystem, OpenOptions};
use uext4_blockdev::{BlockDevice, MemoryDevice, SystemClock};
use uext4_mkfs::{FsType, Options, format, layout};

/// Bytes of the image.
const LEN: u64 = 4 << 20;
/// Bytes of a script, at most: each line may take a whole pass over the image.
const SCRIPT_MAX: usize = 4 << 10;
/// Stands in a script for the directory that `put` may read.
const SOURCE: &[u8] = b"%S";

fn image() -> Arc<dyn BlockDevice> {
    static IMAGE: OnceLock<MemoryDevice> = OnceLock::new();
    let image = IMAGE.get_or_init(|| {
        let options = Options {
            fs_type: FsType::Ext4,
            ..Options::new([7; 16], [9; 16], 1_700_000_000)
        };
        let device = MemoryDevice::new(LEN);
        format(&layout(&options, LEN).unwrap(), &device).unwrap();
        device
    });
    Arc::new(image.snapshot())
}

/// A file, a link, and a directory with one of each.
fn source() -> PathBuf {
    static SOURCE: OnceLock<TempDir> = OnceLock::new();
    let dir = SOURCE.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        for parent in [dir.path().to_owned(), dir.path().join("dir")] {
            fs::create_dir_all(&parent).unwrap();
            fs::write(parent.join("file"), [b'x'; 5000]).unwrap();
            symlink("file", parent.join("link")).unwrap();
        }
        dir
    });
    dir.path().to_owned()
}

/// Keeps this thread from reading any file but the source. Returns whether the kernel can. It may write:
/// the fuzzer writes what it found from the thread that panics.
fn confine() -> bool {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let ruleset = Ruleset::default().handle_access(read);
    let ruleset = ruleset
        .and_then(Ruleset::create)
        .and_then(|ruleset| ruleset.add_rules(path_beneath_rules([source()], read)));
    let status = ruleset.and_then(|ruleset| ruleset.restrict_self());
    status.is_ok_and(|status| status.ruleset != RulesetStatus::NotEnforced)
}

/// The script with the place of the source in it.
fn with_source(script: &[u8]) -> Vec<u8> {
    let source = source();
    let mut lines = Vec::new();
    let mut rest = script;
    while let Some(at) = rest.windows(SOURCE.len()).position(|two| two == SOURCE) {
        lines.extend_from_slice(&rest[..at]);
        lines.extend_from_slice(source.as_os_str().as_encoded_bytes());
        rest = &rest[at + SOURCE.len()..];
    }
    lines.extend_from_slice(rest);
    lines
}

/// Runs the script. Returns whether it could: a script may read any file, so a thread runs it that
/// Landlock lets read none but the source.
pub fn exercise(script: &[u8]) -> bool {
    let script = with_source(&script[..script.len().min(SCRIPT_MAX)]);
    std::thread::scope(|scope| scope.spawn(|| confine() && run(&script)).join().unwrap())
}

fn run(script: &[u8]) -> bool {
    let options = OpenOptions {
        memory_max: 1 << 20,
        pages_max: 1 << 20,
        ..OpenOptions::default()
    };
    let device = image();
    let clock = Arc::new(SystemClock);
    let fs = Filesystem::open_rw(Arc::clone(&device), clock, &options).unwrap();
    uext4_cli::script(&fs, &mut &*script, Box::new(std::io::sink()));
    fs.close().unwrap();
    let fs = Filesystem::open(device, &OpenOptions::default()).unwrap();
    let mut issues = Vec::new();
    fs.check(&mut |issue| issues.push(issue.to_string()))
        .unwrap();
    assert!(issues.is_empty(), "{issues:?}");
    true
}
