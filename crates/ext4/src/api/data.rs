//! The data of files: where it is stored, and how it is written, allocated and searched.
//!
//! [`Mapping`] and [`FileExtent`] give the location of a part of a file on the device;
//! [`DataRanges`] gives the parts that are not holes. A [`Writer`] is the state of one thread or
//! client in the throttling of dirty data. A [`DirRef`] says which directory is read.

pub use crate::api::read_dir::DirRef;
pub use crate::base::mapping::{MapState, Mapping};
pub use crate::file::DataRanges;
pub use crate::file::fallocate::{Fallocate, Seek};
pub use crate::file::fiemap::{ExtentState, FileExtent};
pub use crate::file::write_context::{Pacing, WriteContext, WriteMode, Written};
pub use crate::inode::attr::SetId;
pub use uext4_writeback::{Cancel, Writer};
