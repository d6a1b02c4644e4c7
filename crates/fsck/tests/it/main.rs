//! Damaged images: what is found, and what e2fsck says of the repair.

mod directories;
