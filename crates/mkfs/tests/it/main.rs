//! Tests against the tools of e2fsprogs and the kernel.

mod compare;
mod flags;
mod matrix;
mod oracle;
