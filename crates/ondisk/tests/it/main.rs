//! Tests of the format against e2fsprogs' own tools and images, and against the kernel's. Where a
//! tool or root is missing, the test says "skipped" and passes.

mod dir_hash;
mod dirs;
mod docs;
mod fast_commit;
mod hostile;
mod image;
mod images;
mod journal;
mod kernel;
