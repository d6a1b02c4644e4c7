//! The engine against images made by the real mke2fs and filled by the real kernel.

mod check;
mod creator;
mod exercise;
mod fast_commit;
mod hostile;
mod kernel;
mod mke2fs;
mod opening;
mod power_cut;
mod tree;
mod writing;
