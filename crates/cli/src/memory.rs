//! How much memory a command takes for its caches and tables: a share of what `--memory` says, or
//! of what this process can have ([`host::memory`]), which a control group or a resource limit may
//! make less than the machine has.

use std::sync::OnceLock;

use uext4_blockdev::host;
use uext4_image::Limits;

/// Without `--memory`, a cache takes one part in so many of what there is, at most.
const PARTS: u64 = 4;
/// What a command that has two caches or tables gives each of them, in eighths of `--memory`.
pub const HALF: u64 = 4;
/// All of it.
pub const ALL: u64 = 8;
/// For the caches of the engine, where a source is read, too.
const WRITING: u64 = 5;

static GIVEN: OnceLock<u64> = OnceLock::new();

/// Takes what `--memory` says, once.
pub fn choose(bytes: Option<u64>) {
    if let Some(bytes) = bytes {
        _ = GIVEN.set(bytes);
    }
}

/// What `--memory` says.
pub fn given() -> Option<u64> {
    GIVEN.get().copied()
}

/// Bytes for one cache: so many eighths of `--memory`; without it at most `most`.
pub fn of(eighths: u64, most: u64) -> u64 {
    match given() {
        Some(all) => (all / 8).saturating_mul(eighths),
        None => host::share_of_memory(PARTS, most),
    }
}

/// Bytes that the engine may cache when it only reads: with everything else the command stays
/// below 256 MiB.
pub fn of_reader() -> u64 {
    of(ALL, 96 << 20)
}

/// The same when it writes too, data of files included.
pub fn of_writer() -> u64 {
    of(WRITING, 192 << 20)
}

/// The limits of a source that goes into an image.
pub fn of_source(eighths: u64) -> Limits {
    let limits = Limits::default();
    let memory = given().map_or(limits.memory, |all| (all / 8).saturating_mul(eighths));
    Limits { memory, ..limits }
}

/// The same, of one that goes into an image that is there, whose engine has caches of its own.
pub fn of_put_source() -> Limits {
    let limits = of_source(ALL - WRITING);
    let memory = match given() {
        Some(_) => limits.memory,
        None => limits.memory / 4 * 3,
    };
    Limits { memory, ..limits }
}
