//! Locks and counters of what is tested in many interleavings; the test has others of the same
//! names (`tests/interleavings.rs`).

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

pub(crate) use parking_lot::{Condvar, Mutex};
