//! File systems changed through the journal: names, contents and attributes, judged by e2fsck.

mod basic;
mod crafted;
pub mod device;
mod durable;
mod ended;
mod extents;
mod faults;
mod fsx;
mod full;
mod kernel;
mod known_blocks;
mod limits;
mod lying;
mod memory;
mod mmp;
mod model;
mod mount_limits;
mod placement;
mod posix;
mod quota;
mod reservations;
mod reused;
mod sequence;
mod slow;
mod threads;
mod throttling;
mod xattrs;
