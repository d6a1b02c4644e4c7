//! The atomics of what is read without a lock: those of the model checker where it is asked for.

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, fence};
#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, fence};
