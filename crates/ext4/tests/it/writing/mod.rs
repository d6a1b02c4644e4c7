//! File systems changed through the journal: names, contents and attributes, judged by e2fsck.

mod basic;
pub mod device;
mod durable;
mod extents;
mod faults;
mod fsx;
mod full;
mod kernel;
mod limits;
mod memory;
mod mmp;
mod model;
mod placement;
mod posix;
mod quota;
mod sequence;
mod threads;
mod throttling;
