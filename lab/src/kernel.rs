//! What the experiments use of the running kernel. Each change of the machine has a guard.
//!
//! | file | what |
//! |---|---|
//! | [`undo`] | undoing a change, however this process ends |
//! | [`cgroup`] | rates of block devices, by control groups |
//! | [`settings`] | limits of dirty memory of the whole machine |
//! | [`loops`] | an ext4 of the kernel's on an image that is made, attached and mounted |
//! | [`proc`] | statistics and settings in files below /proc and /sys |
//! | [`trace`] | trace events, by an instance of tracefs |
//!
//! All of it returns what stands in the way as a text: no root, no such file, no such device. An
//! experiment that needs it then was not run.

pub mod cgroup;
pub mod loops;
pub mod proc;
pub mod settings;
pub mod trace;
pub mod undo;
