//! Options that few users need, grouped by the subsystem they belong to.
//!
//! They are fields of [`OpenOptions`](crate::OpenOptions); its `option` method sets each of them
//! by name, as `mount -o` does. The defaults are right unless a measurement shows otherwise.

pub use crate::base::policies::{Designs, Policies};
pub use crate::journal::mount_limits::{MountLimits, OnDamage};
pub use crate::journal::rw::AccessTimes;
pub use crate::mount::open_options::Background;
pub use crate::mount::writeback_options::WritebackOptions;
pub use uext4_extent_status::StatsMode;
pub use uext4_mballoc::Options as AllocatorOptions;
pub use uext4_mbcache::Options as MbcacheOptions;
pub use uext4_tunables::{Row, Subject};
pub use uext4_writeback::DirtyLimits;
pub use uext4_writeback::throttle::Tunables;
