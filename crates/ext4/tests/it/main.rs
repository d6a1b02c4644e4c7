//! The engine against images made by the real mke2fs and filled by the real kernel.

mod check;
mod exercise;
mod hostile;
mod mke2fs;
mod tree;
