//! Integration tests: one binary, one module a topic.

mod concurrency;
mod errors;
mod flushing;
mod mapping;
mod memory;
mod model;
mod pacing;
mod readahead;
mod rules;
mod stalled;
mod throttling;
mod tracing;
mod uncached;
