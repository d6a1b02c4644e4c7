//! The two ends of a connection, on file systems in memory.

#[path = "../exercise/operations.rs"]
mod exercise;
mod operations;
mod same;
mod snapshot;
