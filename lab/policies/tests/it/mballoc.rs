//! The block allocator: no design loses a block or hands one out twice, and none refuses what is
//! free.

mod conformance;
mod data;
mod engine;
mod kernel;
#[path = "../../../../crates/mballoc/tests/it/model.rs"]
mod model;
mod threads;

use uext4_lab_policies::mballoc::{Design, Tunables};
use uext4_mballoc::{Allocator, Options};

use model::Bitmaps;

/// An allocator of these designs.
fn allocator(bitmaps: &Bitmaps, design: Design) -> Allocator {
    let policies = design.make(Tunables::default()).policies;
    let options = Options::default();
    Allocator::with_options(&bitmaps.geometry, bitmaps, options, &policies).unwrap()
}
