//! Byte-addressed block devices and clocks: the only place in the project that knows a file
//! descriptor or the time of day.
//!
//! # What it is for
//!
//! Everything above is written against two narrow traits, [`BlockDevice`] and [`Clock`]. Which
//! medium is below, how fast it is, whether it fails and when its power goes is decided by the
//! code that makes the device:
//!
//! | device | bytes are in | holes |
//! |---|---|---|
//! | [`FileDevice`] | an image file or a block device | `SEEK_DATA`, punched by discard |
//! | [`MemoryDevice`] | a sparse map in memory | chunks never written |
//! | [`SubDevice`] | a window of another device: a partition, an offset | those of that device |
//! | [`BadAreas`] | another of which parts are known to be bad | those of that device |
//! | [`CutDevice`] | another that ends too early: the rest is an error or zeroes | those of that device |
//! | [`Origin`] | another, which is written while snapshots of it are read | those of that device |
//! | [`Snapshot`] | what an origin held at one moment | those of that device then |
//!
//! [`partition`] finds the windows where a disk has a partition table.
//!
//! # Units
//!
//! Offsets and lengths are bytes in a `u64`, from the start of the device. There is no alignment
//! to keep; sectors exist only in partition tables ([`BlockDevice::sector_size`]) and in what a
//! power cut may tear. A transfer does all it was asked or is an error; short reads and writes of
//! the operating system are finished here and no thread above sees one. A device has the length
//! that it was opened with, until [`BlockDevice::set_len`] changes it or [`BlockDevice::measure`]
//! finds that another program has made it longer.
//!
//! # What is durable
//!
//! ```text
//! write returns      readable by everybody, lost or torn by a power cut
//! flush returns Ok   every write and discard that had returned before the call stays
//! flush returns Err  nothing is known of what was written since the last good flush
//! ```
//! We assume of the medium that
//!
//! 1. a sector of 512 bytes is written whole or not at all, while a longer write may be torn at any
//!    sector, in any order;
//! 2. between two flushes writes reach the medium in any order, so only a flush orders two of them;
//! 3. a write damages no byte outside its range;
//! 4. bytes made durable read back as they were written; that they did is for the checksums of the
//!    structures above to prove;
//! 5. a flush that was acknowledged is not taken back: disks and hypervisors that ignore flushes
//!    are outside what software can mend.
//!
//! A failed flush is final. The kernel may already have dropped the pages it could not write, so a
//! second flush that succeeds proves nothing: who gets the error stops writing.
//!
//! Of a new file its name is not covered: a flush makes the contents durable, the directory that
//! names it is for any thread that made it.
//!
//! # Threads
//!
//! Devices are shared as `Arc<dyn BlockDevice>` and take `&self`. Overlapping calls have no order
//! among themselves. [`FileDevice`] has a lock for claims alone; [`MemoryDevice`] holds one leaf
//! lock while bytes are copied. The length of a [`FileDevice`] is one number, read without a lock.
//!
//! # One writer
//!
//! Two writers of one image destroy it, so each claims it first: [`Claim`] for as long as a file
//! system is open for writing, [`FileDevice::claim`] for as long as the device is open. A
//! [`FileDevice`] then holds the exclusive lock (`flock`) of the file, which another process sees
//! as well as another [`FileDevice`] of the same process, and refuses an image that the kernel
//! has attached as a loop device. One device can have many claims at once if their ranges do not
//! overlap: the partitions of a disk. Where the file system of the machine knows no locks, claims
//! bind only the users of the same [`FileDevice`]. [`MemoryDevice`] grants every claim.
//!
//! # Cost
//!
//! What [`BlockDevice::write_behind`] was called for leaves the page cache of the machine at
//! once: of all that goes through one [`FileDevice`] so, at most 20 MiB, and 4 MiB for each
//! thread that waits, are not on the medium yet; on a slow medium at most what it writes in a
//! tenth of a second, and a 20 ms more for each thread. It takes one or two system calls for 4
//! MiB that lie together.
//!
//! One system call a transfer; [`BlockDevice::write_many`] and [`BlockDevice::read_many`] join
//! requests that follow one another into one call of up to 1024 buffers. Nothing is copied or
//! cached on the way to a file.
//!
//! # Left out
//!
//! Caches and readahead (the page cache of the machine is below, `buffer-cache` above), direct I/O,
//! `io_uring`, network devices, container formats such as qcow2, and encryption.

/// The locks of the model checker, under the name of the product's.
#[cfg(feature = "shuttle")]
extern crate shuttle_parking_lot as parking_lot;

pub mod attached;
pub mod host;
pub mod partition;
pub mod verified_boot;
pub mod verity;

mod bad_areas;
mod behind;
mod claim;
mod clock;
mod cut;
mod device;
mod direct;
mod error;
mod file;
mod memory;
mod origin;
mod partition_damage;
mod pieces;
mod scratch;
mod snapshot;
mod sub;
mod sys;
mod vectors;

pub use bad_areas::BadAreas;
pub use claim::Claim;
pub use clock::{Clock, SystemClock, VirtualClock};
pub use cut::CutDevice;
pub use device::{BlockDevice, ReadRequest, WriteRequest};
pub use error::Error;
pub use file::{Access, FileDevice};
pub use memory::MemoryDevice;
pub use origin::{Kept, Origin};
pub use pieces::{Piece, Pieces, read_pieces};
pub use scratch::{Bytes, Scratch, Words};
pub use snapshot::{Snapshot, Writer};
pub use sub::SubDevice;
pub use sys::{checkpoint, scheduling_class, set_scheduling_class};
