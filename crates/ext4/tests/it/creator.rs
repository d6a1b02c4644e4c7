//! What the creator makes is clean to e2fsck, and the kernel and the reader find all of it.

// Ranges of data come in lists, also when there is one.
#![allow(clippy::single_range_in_vec_init, clippy::reversed_empty_ranges)]

#[path = "creator/large.rs"]
mod large;
#[path = "creator/maker.rs"]
pub mod maker;
#[path = "creator/matrix.rs"]
mod matrix;
#[path = "creator/random.rs"]
mod random;
#[path = "creator/reckoned.rs"]
mod reckoned;
#[path = "creator/refused.rs"]
mod refused;
#[path = "creator/stored.rs"]
mod stored;
