//! Devices and clocks that a file system is opened with.
//!
//! [`BlockDevice`] is the trait to implement for custom storage; [`FileDevice`] is an image file
//! or a block device, [`MemoryDevice`] a vector, [`SubDevice`] a part of another device, for
//! example one of its [`partition`]s. A file system that is opened for writing takes the time
//! from a [`Clock`]: [`SystemClock`], or [`VirtualClock`], which tests set.

pub use crate::base::growth::Growth;
pub use crate::mount::grow::{GrowthTurn, write_blocks};
pub use uext4_blockdev::{
    Access, BlockDevice, Clock, Error as DeviceError, FileDevice, MemoryDevice, ReadRequest,
    SubDevice, SystemClock, VirtualClock, WriteRequest, partition,
};
