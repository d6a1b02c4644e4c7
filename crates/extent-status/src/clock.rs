//! Leaves in sharded clocks: a second chance for what was used, however often.
//!
//! Source: the second chance every page cache knows, over the leaves and shards of `leaf-queue`.
//!
//! - A new leaf is behind all others. The leaf at the front goes, unless it was used since it was
//!   last there: then it goes behind all others and that is forgotten.
//! - Leaves of trees loaded in advance by request are in a queue that is looked at only if the others
//!   gave nothing.
//!
//! Differences from `leaf-queue`: one queue, no probation and no ghost, so a sweep over many files
//! drives out what is in use.
//!
//! Tunables: `es_shards`, a power of two from 1 to 256; two a processor.

use crate::leaf_queue::shards_in_turn;
use crate::queues::{Queue, Queues};
use crate::room::Room;
use crate::scan::Scan;

/// Drops leaves until `nr` extents are gone, taking up to `nr` leaves off their queues.
pub(crate) fn scan(room: &Room, queues: &Queues, nr: usize) -> Scan {
    shards_in_turn(room, queues, nr, |_, _| Queue::Main)
}
