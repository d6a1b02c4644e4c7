//! How claims, records and verdicts are shown.

pub mod text;
pub mod verdicts;
