//! The lab's designs in many schedules of several threads.

// The locks of the model checker, under the name of the product's.
extern crate shuttle_parking_lot as parking_lot;

mod extent_status;
mod mbcache;
