//! The examination and its plans, judged by e2fsck and by what is left of the files.

#[path = "../exercise/examination.rs"]
mod exercise;

mod after_crash;
mod cases;
mod collection;
mod damaged;
mod differential;
mod directories;
mod fast_commits;
mod judge;
mod kernel;
mod lost_found;
mod power_cut;
mod randomly;
mod structures;
mod torn_log;
