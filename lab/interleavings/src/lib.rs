//! The designs of `lab/policies`, compiled once more with locks, atomics and threads that a model
//! checker schedules: that crate itself needs the whole engine, other parts of which cannot run
//! under one. Empty without the feature `shuttle`.

#![cfg(feature = "shuttle")]

/// The locks of the model checker, under the name of the product's.
extern crate shuttle_parking_lot as parking_lot;

/// The threads of the designs, which name them `crate::thread`.
use shuttle::thread;

#[path = "../../policies/src/extent_status/mod.rs"]
pub mod extent_status;
#[path = "../../policies/src/mbcache/mod.rs"]
pub mod mbcache;
