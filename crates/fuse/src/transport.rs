//! How bytes come from the kernel and go back: `/dev/fuse`.

pub mod dev;
