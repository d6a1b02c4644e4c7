//! What holds for every policy.

mod bad;
mod conformance;
mod disk;
mod policies;
mod threads;
mod tracing;
