//! The engine against images made by the real mke2fs and filled by the real kernel.

mod creator;
mod cut_repair;
mod examined;
mod examples;
mod exercise;
mod exercise_changes;
mod exercise_fast_commit;
mod fast_commit;
mod hostile;
mod kernel;
mod left;
mod log_place;
mod made;
mod mke2fs;
mod opening;
mod power_cut;
mod tree;
mod walk;
mod writing;
