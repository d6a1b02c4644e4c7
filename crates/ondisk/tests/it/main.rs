//! Tests of the format against e2fsprogs' own tools and images. Where a tool is missing, its tests
//! say "skipped" and pass.

mod dir_hash;
mod tools;
