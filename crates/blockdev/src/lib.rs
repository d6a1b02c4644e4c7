//! Byte-addressed block devices and clocks: the only place in the project that knows a file
//! descriptor or the time of day.

pub mod partition;

mod clock;
mod device;
mod error;
mod file;
mod memory;
mod sub;

pub use clock::{Clock, SystemClock, VirtualClock};
pub use device::{BlockDevice, ReadRequest, WriteRequest};
pub use error::Error;
pub use file::{Access, FileDevice};
pub use memory::MemoryDevice;
pub use sub::SubDevice;
