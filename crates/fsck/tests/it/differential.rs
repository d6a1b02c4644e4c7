//! The differential judge: mutants of images that the kernel filled, judged by e2fsck and by us.
//!
//! | judge | what is held against each other |
//! |---|---|
//! | `check` | what the examination says, and whether `e2fsck -fn` objects |
//! | `repair` | what is kept after the plan, and after `e2fsck -fy`; the result is clean to both |
//!
//! Nothing panics, no examination takes 20 seconds, and the process does not grow by 1 GiB. Where
//! the two differ for a reason, [`table`] says which of them is right; a difference that has no row
//! there fails. [`uext4_testkit::mutants::comparison`] says how single seeds are tried.

mod check;
mod repair;
mod table;
