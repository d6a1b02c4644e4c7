//! Leaves in sharded clocks: a second chance for what was used, however often.
//!
//! Source: the second chance every page cache knows, over the leaves and shards of the shipped
//! design, which this is without probation:
//!
//! - A new leaf is behind all others. The leaf at the front goes, unless it was used since it was
//!   last there: then it goes behind all others and that is forgotten.
//! - Leaves of trees loaded in advance by request are in a queue that is looked at only if the
//!   others gave nothing.
//! - Nothing is remembered of a leaf that was dropped, so a sweep over many files drives out what
//!   is in use.

use uext4_extent_status::{LeafQueue, LeafQueueOptions};

use super::policy::Options;

/// Queues of leaves without probation.
pub(crate) fn queues(options: Options) -> LeafQueue {
    LeafQueue::new(LeafQueueOptions {
        probation: 0,
        ..options.leaves()
    })
}
