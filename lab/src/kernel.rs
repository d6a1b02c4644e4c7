//! What the experiments use of the running kernel. Each change of the machine has a guard.
//!
//! | file | what |
//! |---|---|
//! | [`undo`] | undoing a change, however this process ends |
//! | [`cgroup`] | rates of block devices and memory, by control groups |
//! | [`settings`] | limits of dirty memory of the whole machine |

pub mod cgroup;
pub mod settings;
pub mod undo;
