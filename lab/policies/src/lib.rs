//! Designs that the product does not ship: those of the mailing-list threads, those of today's
//! kernel, and some of our own.
//!
//! Each subsystem states in one trait what a design has to do, and the engine takes any design as
//! an object. A folder here is a subsystem; its head says which designs there are and where they
//! come from. The tests of this crate hold for any implementation of the trait.

/// The threads of the designs; `lab/interleavings` has others in this place.
use std::thread;

pub mod bh_lru;
pub mod extent_status;
pub mod mballoc;
pub mod mbcache;
pub mod writeback;
