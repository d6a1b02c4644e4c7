//! The contents of files: where they lie, how they are written, allocated and searched.
//!
//! [`Mapping`] and [`FileExtent`] say where on the device a part of a file lies, [`DataRanges`]
//! which parts are no holes. A [`Writer`] is the account of one thread or client with the
//! throttling of dirty data.

pub use crate::base::mapping::{MapState, Mapping};
pub use crate::file::DataRanges;
pub use crate::file::fallocate::{Fallocate, Seek};
pub use crate::file::fiemap::{ExtentState, FileExtent};
pub use crate::file::write_context::{Pacing, WriteContext, WriteMode, Written};
pub use crate::inode::attr::SetId;
pub use uext4_writeback::{Cancel, Writer};
