//! What the tests of all crates share. No product code may depend on it.
//!
//! | module | for |
//! |---|---|
//! | [`sim`] | a device that takes time, fails on request and loses power |
//! | [`random`] | one generator of seeded random numbers |

pub mod random;
pub mod sim;

pub use random::SplitMix64;
pub use sim::{Fault, FaultKind, Op, Request, SimDevice, SimOptions, Timing};
