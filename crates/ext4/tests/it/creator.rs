//! What the creator makes is clean to e2fsck, and the kernel and the reader find all of it.

#[path = "creator/maker.rs"]
mod maker;
#[path = "creator/matrix.rs"]
mod matrix;
