//! The lab's designs in many schedules of several threads.

mod extent_status;
mod mbcache;
