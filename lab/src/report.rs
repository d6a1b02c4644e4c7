//! How claims, records and verdicts are shown.

pub mod page;
pub mod plot;
pub mod text;
pub mod thread;
pub mod verdicts;
