//! Arbitrary bytes as a script, run on a small image that is open for writing: used by the test of
//! scripts and by the fuzzer. Whatever the lines are, the image is sound afterwards.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use landlock::{
    AccessFs, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus, path_beneath_rules,
};
use uext4::tuning::Background;
use uext4::{OpenOptions, Volume};
use uext4_blockdev::SystemClock;

#[path = "../../../mkfs/tests/exercise/image.rs"]
mod image;

/// Bytes of a script, at most: each line may take a whole pass over the image.
const SCRIPT_MAX: usize = 4 << 10;
/// What commands may print: a few bytes of a script may ask for the zeroes of many files.
const OUTPUT_MAX: usize = 1 << 20;
/// Stands in a script for the directory that `put` may read.
const SOURCE: &[u8] = b"%S";

/// A file, a link, and a directory with one of each. The fuzzer is a package of its own.
fn source() -> &'static Path {
    static SOURCE: OnceLock<PathBuf> = OnceLock::new();
    SOURCE.get_or_init(|| {
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let places = [
            "tests/exercise/source",
            "../crates/cli/tests/exercise/source",
        ];
        let places = places.map(|place| package.join(place));
        let found = places.into_iter().find(|place| place.join("link").exists());
        found.expect("the source is checked in")
    })
}

/// Keeps this thread from reading any file but the source. Returns whether the kernel can. It may
/// write: the fuzzer writes what it found from the thread that panics.
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

/// Reads what is printed, and goes away when it has seen enough.
struct Reader {
    left: usize,
}

impl Write for Reader {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.left = self.left.saturating_sub(bytes.len());
        match self.left {
            0 => Err(io::ErrorKind::BrokenPipe.into()),
            _ => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs the script. Returns whether it could: a script may read any file, so a thread runs it that
/// Landlock lets read none but the source.
pub fn exercise(script: &[u8]) -> bool {
    let script = with_source(&script[..script.len().min(SCRIPT_MAX)]);
    let done = std::thread::scope(|scope| scope.spawn(|| confine() && run(&script)).join());
    done.unwrap_or_else(|panic| {
        eprintln!("the script:\n{}", script.escape_ascii());
        std::panic::resume_unwind(panic)
    })
}

fn run(script: &[u8]) -> bool {
    let mut options = OpenOptions::default();
    options.memory_max = 1 << 20;
    options.pages_max = 1 << 20;
    options.background = Background::None;
    let device = image::image();
    let clock = Arc::new(SystemClock);
    let fs = Volume::open(Arc::clone(&device), clock, &options).unwrap();
    uext4_cli::script(&fs, &mut &*script, Box::new(Reader { left: OUTPUT_MAX }));
    fs.close().unwrap();
    assert_eq!(uext4_fsck::findings(&device).unwrap(), []);
    true
}
