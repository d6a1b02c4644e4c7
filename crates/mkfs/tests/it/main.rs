//! Tests against the tools of e2fsprogs and the kernel.

mod any_options;
mod compare;
mod device;
mod flags;
mod kernel;
mod matrix;
mod new_uuid;
mod oracle;
