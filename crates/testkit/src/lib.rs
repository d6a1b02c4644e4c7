//! What the tests of all crates share. No product code may depend on it.
//!
//! | module | for |
//! |---|---|
//! | [`tools`] | programs of this machine, scratch directories, unmounting |
//! | [`e2fsprogs`] | mke2fs, e2fsck, debugfs, dumpe2fs; the assertion that an image is clean |
//! | [`loops`] | loop devices and mounts by the kernel, with guards |
//! | [`images`] | the same for images in memory |
//! | [`rings`] | the permission to use FUSE over io_uring |
//! | [`cases`] | many cases, some at a time, with their panics |
//! | [`random`] | one generator of seeded random numbers |
//! | [`damage`] | named kinds of damage to an image, and the images to damage |
//! | [`mutants`] | images that the kernel filled, with any fields of any structures changed |
//! | [`sim`] | a device that takes time, fails on request and loses power |
//!
//! A test that this machine cannot run says so and passes: [`can_mount`] and [`has_tool`] print
//! why. All other functions panic on what goes wrong, at the line of the test.

#[cfg(feature = "shuttle")]
extern crate shuttle_parking_lot as parking_lot;

pub mod cases;
pub mod damage;
pub mod e2fsprogs;
pub mod images;
pub mod loops;
pub mod mutants;
pub mod random;
pub mod rings;
pub mod sim;
pub mod tools;

pub use e2fsprogs::{
    assert_clean, assert_e2fsck, complaints, debugfs, debugfs_script, debugfs_write, dumpe2fs,
    e2fsck, mke2fs,
};
pub use images::{
    assert_device_clean, changed, changed_by_kernel, formatted, loaded, lose_superblocks, stored,
};
pub use loops::{Loop, Mount, can_mount};
pub use random::SplitMix64;
pub use rings::RingsAllowed;
pub use sim::{Fault, FaultKind, Op, Request, SimDevice, SimOptions, Timing};
pub use tools::{
    copy_image, has_tool, is_root, run, run_text, said, scratch, try_run, unmount_lazily,
    while_busy,
};
