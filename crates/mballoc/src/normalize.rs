//! How much is asked for beyond the need: the switches, and the policies made of them.
//!
//! ```text
//! file      … mapped │ request │            free              │ mapped …
//! window             [─────────────────────────────)            more than was asked for:
//! answer             [ taken   │ preallocated      )            what comes next lies behind it
//! ```
//! A rule makes a window of a request; what is mapped or preallocated around it, the size of a group
//! and the last block a file can have trim it. It always holds the first block asked for, but may be
//! shorter than the request: then that is answered in parts.

use std::ops::Range;

use uext4_ondisk::{Lblk, Pblk};

use crate::DataRequest;
use crate::history::History;

mod guards;
mod pow2;
mod predict;
mod spelling;
mod stripe;
mod table;
#[cfg(test)]
mod tests;

pub use spelling::ParseNormalizeError;

/// Longest request for unwritten blocks that is not padded: half of what a written extent holds, for
/// an unwritten one holds one block less.
pub(crate) const UNWRITTEN_HALF: u32 = 16_384;
/// Longest extent of unwritten blocks.
const UNWRITTEN_MAX: u32 = 32_767;

/// The independent decisions of request normalisation, which the thread asked to be separable.
///
/// Spelled as the name of a policy, then the switches that differ, each behind a `+`:
/// `table`, `pow2+cap=table`, `table+logical+nounwritten`. The policies are `exact`, `table`, `pow2`,
/// `pow2-stripe`, `stripe` and `predict`; the switches `rule=exact|table|pow2|predict`,
/// `cap=table|group`, `stripe=none|after|only`, and `unwritten`, `logical`, `adapt`, each of these
/// with `no` before it to turn it off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Normalize {
    /// Requests for unwritten blocks (`fallocate`) are padded too, if they are longer than an extent
    /// of such blocks may be (32,767). Otherwise they are only cut, at most at 16,384 blocks.
    pub unwritten: bool,
    /// How large a window is.
    pub rule: Rule,
    /// The window starts at the logical block asked for, not before it.
    pub logical: bool,
    /// How large a window may be.
    pub cap: Cap,
    /// Whether windows are whole stripes.
    pub stripe: StripeRule,
    /// Less is asked for as the device fills.
    pub adapt: bool,
}

/// How large a window is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// What is asked for.
    Exact,
    /// By a table of sizes.
    Table,
    /// To the next power of two of the file's end.
    Pow2,
    /// By what the file did so far.
    Predict,
}

/// How large a window may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cap {
    /// The table's last row: 2, 4 or 8 MiB by block size.
    Table,
    /// A group.
    Group,
}

/// Whether windows are whole stripes, where the device has stripes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StripeRule {
    /// No.
    None,
    /// Rounded up after the rule, if the window has a stripe's length at least.
    AfterRule,
    /// Instead of the rule.
    Only,
}

/// What a window depends on beside the request.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// Binary logarithm of the block size in bytes, 10 to 16.
    pub block_size_log2: u32,
    /// Blocks of a full group.
    pub blocks_per_group: u32,
    /// Blocks of a full stripe; 0 and 1 for none, and any that is longer than a group.
    pub stripe: u32,
    /// Free blocks of the file system.
    pub free: u64,
    /// All its blocks.
    pub blocks: u64,
    /// Files that blocks are preallocated for, this one included.
    pub writers: u32,
    /// What the file did so far, this request included.
    pub history: History,
    /// Parts of the file that blocks are preallocated for: the nearest at least, in any order; empty
    /// ones do not count.
    pub held: &'a [Range<u64>],
}

/// What is asked of the search for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its first block in the file, at or before the first one wanted.
    pub lblk: Lblk,
    /// Blocks, 1 to a group.
    pub len: u32,
    /// Where `lblk` should lie.
    pub goal: Pblk,
    /// What is mapped next to it lies right before or behind that place.
    pub try_goal: bool,
}

/// A window in the making: `start..end` in blocks of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    start: u64,
    end: u64,
}

impl Span {
    fn len(self) -> u64 {
        self.end - self.start
    }
}

/// A request as the rules see it, within what a file can have.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    lblk: u64,
    len: u64,
    /// End of the request or of the file, whichever is more.
    size: u64,
}

/// End of the longest file.
const BLOCKS_MAX: u64 = Lblk::LAST.0 as u64 + 1;

impl Normalize {
    /// What is asked for, and nothing else.
    pub const EXACT: Self = Self {
        unwritten: false,
        rule: Rule::Exact,
        logical: true,
        cap: Cap::Group,
        stripe: StripeRule::None,
        adapt: false,
    };
    /// Vanilla 3.15 to today: the table.
    pub const TABLE: Self = Self {
        unwritten: true,
        rule: Rule::Table,
        logical: false,
        cap: Cap::Table,
        stripe: StripeRule::None,
        adapt: false,
    };
    /// Czerner, linux-ext4, June 2014: the next power of two of the file's end.
    pub const POW2: Self = Self {
        unwritten: false,
        rule: Rule::Pow2,
        logical: true,
        cap: Cap::Group,
        stripe: StripeRule::None,
        adapt: false,
    };
    /// The same, then rounded up to whole stripes, as Czerner read the question of stripes.
    pub const POW2_STRIPE: Self = Self {
        stripe: StripeRule::AfterRule,
        ..Self::POW2
    };
    /// Whole stripes instead of powers of two, as Dilger read it.
    pub const STRIPE: Self = Self {
        stripe: StripeRule::Only,
        ..Self::POW2
    };
    /// By what the file did so far.
    pub const PREDICT: Self = Self {
        unwritten: false,
        rule: Rule::Predict,
        logical: true,
        cap: Cap::Group,
        stripe: StripeRule::AfterRule,
        adapt: true,
    };

    /// The window of a request. No number it is given makes it fail: a request outside the longest
    /// file is cut or moved into it.
    pub fn window(&self, request: &DataRequest, around: &Surroundings<'_>) -> Window {
        let lblk = u64::from(request.lblk.0).min(BLOCKS_MAX - 1);
        let len = u64::from(request.len).clamp(1, BLOCKS_MAX - lblk);
        let wanted = Wanted {
            lblk,
            len,
            size: request.size.min(BLOCKS_MAX).max(lblk + len),
        };
        let span = if request.unwritten && (!self.unwritten || len <= u64::from(UNWRITTEN_MAX)) {
            self.unpadded(&wanted)
        } else {
            self.padded(&wanted, request.closed, around)
        };
        let span = guards::trim(span, &wanted, request, around);
        let (goal, try_goal) = guards::goal(span, request);
        Window {
            // OK to truncate: trimmed to the longest file, and to a group.
            lblk: Lblk(span.start as u32),
            len: span.len() as u32,
            goal,
            try_goal,
        }
    }

    /// For `fallocate`: what is wanted, cut.
    fn unpadded(&self, wanted: &Wanted) -> Span {
        let half = u64::from(UNWRITTEN_HALF);
        let longest = match self.rule {
            _ if self.unwritten => UNWRITTEN_MAX.into(),
            Rule::Exact => UNWRITTEN_MAX.into(),
            // The halves of a written extent begin at multiples: what is written in them later joins.
            Rule::Predict => half - wanted.lblk % half,
            Rule::Table | Rule::Pow2 => half,
        };
        Span {
            start: wanted.lblk,
            end: wanted.lblk + wanted.len.min(longest),
        }
    }

    fn padded(&self, wanted: &Wanted, closed: bool, around: &Surroundings<'_>) -> Span {
        let cap = self.cap_of(wanted, around);
        let whole = stripe::whole(around);
        let mut span = match (whole, self.stripe) {
            (Some(stripe), StripeRule::Only) => stripe::window(wanted, stripe, cap),
            _ => match self.rule {
                Rule::Exact => Span {
                    start: wanted.lblk,
                    end: wanted.lblk + wanted.len,
                },
                Rule::Table => table::window(wanted, around.block_size_log2, self.cap),
                Rule::Pow2 => pow2::window(wanted, cap),
                Rule::Predict => predict::window(wanted, closed, cap, around),
            },
        };
        let by_stripe = whole.is_some() && self.stripe == StripeRule::Only;
        if self.logical && !by_stripe {
            span.start = span.start.max(wanted.lblk);
        }
        if self.adapt {
            span.end = span.end.min(span.start.max(wanted.lblk) + cap);
        }
        span.end = span.end.max(wanted.lblk + 1);
        match (whole, self.stripe) {
            (Some(stripe), StripeRule::AfterRule) => stripe::round_up(span, stripe, cap),
            _ => span,
        }
    }

    /// Most blocks of a window: never less than what is wanted, as far as a group has it.
    fn cap_of(&self, wanted: &Wanted, around: &Surroundings<'_>) -> u64 {
        let group = u64::from(around.blocks_per_group.max(1));
        let cap = match self.cap {
            Cap::Group => group,
            Cap::Table => table::largest(around.block_size_log2).min(group),
        };
        let cap = if self.adapt {
            (cap / fullness(around)).max(wanted.len)
        } else {
            cap
        };
        cap.clamp(1, group)
    }
}

/// What windows are divided by as the device fills: 1 with half of it free, 2 with a fifth, 4 with a
/// tenth, and nothing is asked for beyond the need with less than a twentieth.
fn fullness(around: &Surroundings<'_>) -> u64 {
    let twentieths = around.free.saturating_mul(20) / around.blocks.max(1);
    match twentieths {
        10.. => 1,
        4.. => 2,
        1.. => 4,
        0 => u64::MAX,
    }
}

impl Default for Normalize {
    fn default() -> Self {
        Self::PREDICT
    }
}
