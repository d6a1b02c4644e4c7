//! How much is taken for a file beyond its need, and where: the plan for a request.
//!
//! ```text
//! file      … mapped │ request │            free              │ mapped …
//! window             [─────────────────────────────)            more than was asked for:
//! answer             [ taken   │ preallocated      )            what comes next lies behind it
//! ```
//!
//! # Why
//!
//! A file grows by requests of a few blocks, next to others that grow as well. If each request took
//! what it needs, their blocks would alternate on the device: many extents, and reads that seek. So
//! more is taken and preallocated for the file. Too much has a price too: what is preallocated and
//! not used is given back as a hole between files, and free space is cut into short runs.
//!
//! # The design
//!
//! [`Predict`] looks at what the file did so far ([`History`]). A writer that appends gets
//! windows that double. A writer of scattered blocks gets what it needs. A file that is closed
//! will not grow: it gets what it needs, next to other closed files. As the device fills, less is
//! taken.
//!
//! The kernel's windows depend on the size of the file alone, by a table of sizes. Those of the
//! patch of 2014 are powers of two: a third of the table's extents in the lab, and free runs half
//! as long. This design has half of the extents of today's kernel, a fifth on an aged device, and
//! free runs nearly as long as the table's (`lab/records`).
//!
//! # The seam
//!
//! Another design is an object with the trait [`Normalize`], given in
//! [`Policies::normalize`](crate::Policies::normalize). It decides how much is taken and for
//! which kind of preallocation; it cannot map a block twice or leave the file system, because a
//! [`Window`] is trimmed when it is made. The table, the powers of two and the rules of stripes
//! of the thread are in `lab/policies`, with the tests that any design must pass.
//!
//! Source: Lukas Czerner and Andreas Dilger, "\[RFC\]\[PATCH 0/1\] ext4: Fix
//! ext4_mb_normalize_request", linux-ext4, June 2014.

use std::fmt;
use std::ops::Range;

use crate::history::History;
use crate::request::DataRequest;

mod predict;
mod window;

pub(crate) use predict::Predict;
pub use window::{Wanted, Window};

/// What a plan depends on besides the request.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// Binary logarithm of the block size in bytes, 10 to 16.
    pub block_size_log2: u32,
    /// Blocks of a full group.
    pub blocks_per_group: u32,
    /// Blocks of a full stripe; 0 and 1 for none, and any that is longer than a group.
    pub stripe: u32,
    /// [`Options::stream_req`](crate::Options::stream_req).
    pub stream_req: u32,
    /// [`Options::group_prealloc`](crate::Options::group_prealloc).
    pub group_prealloc: u32,
    /// Free blocks of the file system.
    pub free: u64,
    /// All its blocks.
    pub blocks: u64,
    /// Blocks of the average free run, rounded down.
    pub average_run: u64,
    /// Files that blocks are preallocated for.
    pub files: u32,
    /// The same, with the file of the request counted in any case.
    pub writers: u32,
    /// What the file did so far, this request included.
    pub history: History,
    /// Parts of the file that blocks are preallocated for: the nearest at least, in any order;
    /// empty ones do not count.
    pub held: &'a [Range<u64>],
}

impl Surroundings<'_> {
    /// What windows are divided by as the device fills: 1 with half of it free, 2 with a fifth, 4
    /// with a tenth, and with less than a twentieth so much that nothing is left beyond the need.
    pub fn fullness(&self) -> u64 {
        let twentieths = self.free.saturating_mul(20) / self.blocks.max(1);
        match twentieths {
            10.. => 1,
            4.. => 2,
            1.. => 4,
            0 => u64::MAX,
        }
    }

    /// Blocks of a stripe, where there is one and a group has at least one.
    pub fn whole_stripe(&self) -> Option<u64> {
        let stripe = self.stripe;
        (stripe > 1 && stripe <= self.blocks_per_group).then_some(stripe.into())
    }

    /// Moves the end of `span`, in blocks of the file, to the end of a stripe if it has at least
    /// one: up, or down where it would become longer than `cap` blocks.
    pub fn to_stripes(&self, span: Range<u64>, cap: u64) -> Range<u64> {
        let Some(stripe) = self.whole_stripe() else {
            return span;
        };
        if span.end - span.start < stripe {
            return span;
        }
        let mut end = span.end.next_multiple_of(stripe);
        if end - span.start > cap.max(stripe) {
            end -= stripe;
        }
        let end = if end > span.start { end } else { span.end };
        span.start..end
    }
}

/// What is preallocated for small files serves a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmallFiles {
    /// More is taken where the request says.
    Apart,
    /// More is taken right behind the last and joined with it, so that nothing is left over.
    Joined,
}

/// A request of a file that grows as a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// [`Hints::follows`](crate::Hints::follows).
    pub follows: bool,
    /// [`Hints::crowded`](crate::Hints::crowded).
    pub crowded: bool,
    /// [`Hints::fill`](crate::Hints::fill).
    pub fill: u32,
}

/// What is to be done for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What is taken: what of it is not asked for is preallocated for the file.
    pub window: Window,
    /// `None`: the window is taken for the file. Else the request is served from what is
    /// preallocated for the small files of this thread, and the window is what it needs.
    pub small: Option<SmallFiles>,
    /// The file is placed next to the closed files of this thread, if it has no neighbours of its
    /// own.
    pub next_to_closed: bool,
    /// The next closed file of this thread is placed behind this one.
    pub leads_closed: bool,
    /// What is free at the goal will do, even if it is shorter than the window.
    pub merge: bool,
    /// The file grows as a stream.
    pub stream: Option<Stream>,
}

impl Plan {
    /// Takes `window` where it says, and preallocates its rest for the file; nothing else.
    pub fn of(window: Window) -> Self {
        Self {
            window,
            small: None,
            next_to_closed: false,
            leads_closed: false,
            merge: false,
            stream: None,
        }
    }
}

/// A design that says how much is taken beyond the need, and where.
///
/// One object serves all threads and may serve several file systems. It is called with no lock of
/// the allocator held.
pub trait Normalize: fmt::Debug + Send + Sync {
    /// The plan for a request that nothing is preallocated for. The same arguments give the same
    /// plan.
    fn plan(&self, request: &DataRequest, around: &Surroundings<'_>) -> Plan;
}
