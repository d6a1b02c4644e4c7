//! The allocator against block bitmaps in memory and a naive model of them.

mod bad;
mod bound;
mod model;
mod requests;
mod search;
mod steps;
mod streams;
mod tracing;
mod trim;
