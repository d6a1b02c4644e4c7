//! Opening and closing: from the superblock to a file system in use, and back.
//!
//! `super` opens, with `open_options` and `writeback_options` for what there is to choose,
//! `journal` for the log, `background` for threads and `callbacks` for what a commit still changes,
//! and `grow` for what a commit adds; `cut_repair` comes before everything else;
//! `in_use` and `leave` close.

pub(crate) mod background;
pub(crate) mod callbacks;
pub(crate) mod cut_repair;
pub(crate) mod grow;
pub(crate) mod in_use;
pub(crate) mod journal;
pub(crate) mod leave;
pub(crate) mod open_options;
pub(crate) mod statfs;
#[path = "super.rs"]
pub(crate) mod super_;
pub(crate) mod writeback_options;
