//! Windows by the size of the file: the thread's switches, and the designs made of them.
//!
//! The thread asked for the decisions of request normalisation to be separable, so each is a
//! switch. A design is spelled as its name, then the switches that differ, each behind a `+`:
//! `table`, `pow2+cap=table`, `table+logical+nounwritten`. The names are `exact`, `table`,
//! `pow2`, `pow2-stripe` and `stripe`; the switches `rule=exact|table|pow2`, `cap=table|group`,
//! `stripe=none|after|only`, and `unwritten`, `logical`, `adapt`, each of these with `no` before
//! it to turn it off.
//!
//! Source: Lukas Czerner and Andreas Dilger, "\[RFC\]\[PATCH 0/1\] ext4: Fix
//! ext4_mb_normalize_request", linux-ext4, June 2014.

use std::ops::Range;

use uext4_mballoc::{
    DataRequest, Normalize, Plan, SmallFiles, Stream, Surroundings, Wanted, Window,
};

use super::{pow2, stripe, table};

/// Longest request for unwritten blocks that is not padded: half of what a written extent holds,
/// for an unwritten one holds one block less.
const UNWRITTEN_HALF: u64 = 16_384;
/// Longest extent of unwritten blocks.
const UNWRITTEN_MAX: u64 = 32_767;

/// The decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switches {
    /// Requests for unwritten blocks (`fallocate`) are padded too, if they are longer than an
    /// extent of such blocks may be (32,767). Otherwise they are only cut, at most at 16,384
    /// blocks.
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

/// What is preallocated for small files that are closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosedFiles {
    /// Nothing: until 2022.
    Exact,
    /// What is preallocated for other small files serves them too, so that they lie side by side.
    WithSmall,
}

/// A design made of switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BySize {
    /// How much is taken.
    pub switches: Switches,
    /// For which files more is.
    pub closed: ClosedFiles,
}

impl Switches {
    /// What is asked for, and nothing else.
    pub const EXACT: Self = Self {
        unwritten: false,
        rule: Rule::Exact,
        logical: true,
        cap: Cap::Group,
        stripe: StripeRule::None,
        adapt: false,
    };
    /// Linux 3.15 to today: the table.
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

    /// The window of a request.
    pub fn window(&self, request: &DataRequest, around: &Surroundings<'_>) -> Window {
        let wanted = Wanted::of(request);
        let is_long = wanted.len > UNWRITTEN_MAX;
        let span = if request.unwritten && !(self.unwritten && is_long) {
            self.unpadded(&wanted)
        } else {
            self.padded(&wanted, around)
        };
        Window::new(span, request, around)
    }

    /// For `fallocate`: what is wanted, cut.
    fn unpadded(&self, wanted: &Wanted) -> Range<u64> {
        let longest = match self.rule {
            _ if self.unwritten => UNWRITTEN_MAX,
            Rule::Exact => UNWRITTEN_MAX,
            Rule::Table | Rule::Pow2 => UNWRITTEN_HALF,
        };
        wanted.lblk..wanted.lblk + wanted.len.min(longest)
    }

    fn padded(&self, wanted: &Wanted, around: &Surroundings<'_>) -> Range<u64> {
        let cap = self.cap_of(wanted, around);
        let whole = around.whole_stripe();
        let only = whole.filter(|_| self.stripe == StripeRule::Only);
        let mut span = match (only, self.rule) {
            (Some(stripe), _) => stripe::window(wanted, stripe, cap),
            (None, Rule::Exact) => wanted.lblk..wanted.lblk + wanted.len,
            (None, Rule::Table) => table::window(wanted, around.block_size_log2, self.cap),
            (None, Rule::Pow2) => pow2::window(wanted, cap),
        };
        if self.logical && only.is_none() {
            span.start = span.start.max(wanted.lblk);
        }
        if self.adapt {
            span.end = span.end.min(span.start.max(wanted.lblk) + cap);
        }
        span.end = span.end.max(wanted.lblk + 1);
        if self.stripe == StripeRule::AfterRule {
            around.to_stripes(span, cap)
        } else {
            span
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
            (cap / around.fullness()).max(wanted.len)
        } else {
            cap
        };
        cap.clamp(1, group)
    }
}

/// Which kind of preallocation serves a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strategy {
    /// Taken as it is; nothing is preallocated.
    Exact,
    /// A window of its own; the rest is preallocated for the file.
    File,
    /// What is preallocated for small files.
    Locality,
}

impl BySize {
    fn strategy(&self, request: &DataRequest, around: &Surroundings<'_>) -> Strategy {
        if self.switches.rule == Rule::Exact {
            return Strategy::Exact;
        }
        if request.unwritten {
            // Windows of such requests are their own matter; nothing small is fallocated.
            return Strategy::File;
        }
        let size = request.size.max(request.end());
        let is_small = size <= around.stream_req.into() && around.group_prealloc > 0;
        match self.closed {
            ClosedFiles::Exact if request.is_last() => Strategy::Exact,
            _ if is_small => Strategy::Locality,
            _ if request.is_last() => Strategy::Exact,
            _ => Strategy::File,
        }
    }
}

impl Normalize for BySize {
    fn plan(&self, request: &DataRequest, around: &Surroundings<'_>) -> Plan {
        let strategy = self.strategy(request, around);
        let window = match strategy {
            Strategy::File => self.switches.window(request, around),
            Strategy::Exact | Strategy::Locality => Window::exact(request, around),
        };
        let is_stream = request.is_stream(around.stream_req);
        Plan {
            small: (strategy == Strategy::Locality).then_some(SmallFiles::Apart),
            stream: is_stream.then_some(Stream {
                follows: around.files == 0,
                crowded: false,
                fill: 0,
            }),
            ..Plan::of(window)
        }
    }
}
