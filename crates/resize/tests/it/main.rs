//! Resizing, judged by e2fsck, resize2fs and the kernel, and cut off at every write.

mod grow;
mod hosts;
mod kernel;
mod mounted;
mod power_cut;
mod shrink;
mod tree;
