//! How a name is made that may be there.

use serde::{Deserialize, Serialize};

/// What happens to a file that has the name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Existing {
    /// It stays, and that is an error.
    #[default]
    Refuse,
    /// It is replaced in one step, when the new one is durable.
    Replace,
    /// It is removed before, as tar does.
    Remove,
}

/// How it is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PutMode {
    /// What happens to a file that is there.
    pub existing: Existing,
    /// A file gets its name, or takes that of another file, when all of it is durable.
    pub whole: bool,
    /// A file that takes the place of another gets that one's attributes but for times.
    pub like: bool,
}
