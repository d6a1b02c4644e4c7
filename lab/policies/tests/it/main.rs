//! What any design of a subsystem must do, whichever it is.

mod bh_lru;
mod extent_status;
mod mballoc;
mod mbcache;
mod writeback;
