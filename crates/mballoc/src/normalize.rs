//! How much is asked for beyond the need: the switches, and the policies made of them.

/// The independent decisions of request normalisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Normalize {
    /// Requests for unwritten blocks (`fallocate`) are padded too.
    pub unwritten: bool,
    /// How large a window is.
    pub rule: Rule,
    /// The window starts at the logical block asked for, not before it.
    pub logical: bool,
    /// How large a window may be.
    pub cap: Cap,
    /// Whether windows are whole stripes.
    pub stripe: StripeRule,
    /// Less is asked for as the device fills or its free runs get short.
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
    /// Rounded up after the rule.
    AfterRule,
    /// Instead of the rule.
    Only,
}

impl Normalize {
    /// Vanilla 3.15 to today: the table.
    pub const TABLE: Self = Self {
        unwritten: true,
        rule: Rule::Table,
        logical: false,
        cap: Cap::Table,
        stripe: StripeRule::None,
        adapt: false,
    };
}

impl Default for Normalize {
    fn default() -> Self {
        Self::TABLE
    }
}
