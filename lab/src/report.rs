//! How claims, records and verdicts are shown.

pub mod text;
