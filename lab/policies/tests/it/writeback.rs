//! Dirty throttling: every design lets every writer end, loses nothing, and lets writers of a
//! device that fails go. The product's own is among them.

mod engine;
mod page_cache;
mod rules;
mod virtual_time;
