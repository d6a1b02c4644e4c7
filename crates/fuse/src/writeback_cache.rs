//! Whether the kernel gathers what programs write, and how much of it: `gathering` says what
//! follows from it.

use std::fs;

use crate::abi::InitIn;
use crate::abi::flags::init;
use crate::mountinfo::Number;

/// Most bytes that the kernel is taken to hold of a mount, if its limit is not larger. That is a
/// hundredth of all dirty memory, which is a fifth of what is available at the time (24 GiB: 46
/// MB).
pub const HELD_MAX: u64 = 64 << 20;
/// The first minor version of the protocol that can have inodes forgotten which no program uses
/// (Linux 6.18). Before, the kernel would never learn the size of a file that a command changed.
const MINOR_MIN: u32 = 45;

/// Whether the kernel gathers what is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WritebackCache {
    /// As is right: it does not, for the reasons in `docs/durability.md`.
    #[default]
    Auto,
    /// Where the kernel can, and nothing that was asked for forbids it.
    On,
    /// It does not.
    Off,
}

/// Most bytes of dirty pages that the kernel holds of the mount of this number (Linux 6.2 and
/// newer), and [`HELD_MAX`] at least: its limit follows the memory that is available.
pub fn held_max(number: Number) -> u64 {
    let Number { major, minor } = number;
    let path = format!("/sys/class/bdi/{major}:{minor}/max_bytes");
    let text = fs::read_to_string(path).ok();
    let bytes = text.and_then(|text| text.trim().parse().ok());
    bytes.unwrap_or(HELD_MAX).max(HELD_MAX)
}

/// The flags of INIT that ask for it, where it may be and this kernel can have it: files that are
/// opened past the cache are mapped all the same.
pub(crate) fn wished(may_gather: bool, asked: &InitIn) -> u64 {
    match may_gather && asked.minor >= MINOR_MIN {
        true => init::WRITEBACK_CACHE | init::DIRECT_IO_ALLOW_MMAP,
        false => 0,
    }
}
