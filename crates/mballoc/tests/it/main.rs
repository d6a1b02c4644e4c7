//! The allocator against block bitmaps in memory and a naive model of them.

mod bad;
mod bound;
mod conformance;
mod model;
mod policies;
mod proc;
mod requests;
mod search;
mod streams;
mod threads;
mod tracing;
mod trim;
