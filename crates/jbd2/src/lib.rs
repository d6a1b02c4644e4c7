//! The journal, as far as reading goes: what it would write to the file system if it were
//! replayed, and a device that reads as if it had been.
//!
//! # Why
//!
//! An image taken from a running or crashed system has its newest metadata only in the journal.
//! The kernel and e2fsck replay it by writing; a reader must not write, and must not show the old
//! state either. So [`recover`] finds the committed blocks and where in the log they lie, and
//! [`ReplayedDevice`] reads each of them from there.
//!
//! # Picture
//!
//! ```text
//!  journal file, in blocks (sb.s_maxlen of them, in one or more runs on the device)
//!  ┌────┬──────────────────────────────────────────────────────────┬──────────────────┐
//!  │ sb │ ring: s_first … s_maxlen - fast-commit blocks            │ fast-commit area │
//!  └────┴──────────────────────────────────────────────────────────┴──────────────────┘
//!           s_start ▼ s_sequence
//!           ┌──────┬────┬────┬────┬──────┬──────┬────┬──────┬────────┬──────┬─ ─ ─
//!           │ desc │data│data│data│commit│ desc │data│revoke│ commit │ old blocks
//!           │  n   │    │    │    │  n   │ n+1  │    │ n+1  │  n+1   │
//!           └──────┴────┴────┴────┴──────┴──────┴────┴──────┴────────┴──────┴─ ─ ─
//! ```
//!
//! A descriptor names the homes of the data blocks behind it; a transaction counts only if its
//! commit block is there. A revoke takes a block's earlier copies back, up to and with its own
//! transaction. Of several copies of a block the last one counts.
//!
//! # How
//!
//! 1. *Scan* (`scan.rs`): from `s_start` every control block is read once, data blocks are stepped
//!    over. It yields one record of 24 bytes for each data block, and the places of the revoke
//!    blocks. It ends where the next block is not of this log: no magic, another sequence, a
//!    commit block that does not match.
//! 2. *Revoke* (`recovery.rs`): the last record of each home stays, then the revoke blocks are
//!    read and strike out what they name. No table of revokes is kept.
//! 3. *Verify*: with v2 or v3 checksums the data of what is left is read and summed.
//!
//! # What damage means here
//!
//! As in the kernel, a log ends quietly where it may have ended when the power went: a commit
//! missing, a descriptor or revoke block of an uncommitted transaction torn. A commit block whose
//! checksum is wrong also ends it, but is told as [`Recovery::failed_commit`]: the kernel refuses
//! to mount then. What was committed and cannot be read as such is an error, with one exception:
//! with `async_commit` the last transaction's commit may have reached the medium before its
//! blocks, and such a transaction is dropped whole. Data blocks that nobody would see, because a
//! later copy or a revoke overrides them, are not verified; the kernel verifies some of them.
//!
//! # Units, cost and bounds
//!
//! Log positions are blocks of the journal file (`u32`), homes are blocks of the file system.
//! Sequences wrap; here they are counted from `s_sequence`, so a plain comparison is right. Memory:
//! 24 bytes for each data block in the log, no copies of data. Time: one read for each control
//! block, one sort. The scan visits no more blocks than the ring has, whatever they say.
//!
//! There are no locks: recovery is one call, and what it returns does not change.
//!
//! # Left out
//!
//! Writing (handles, commits, checkpoints). External journals. What fast commits mean: their area
//! is handed out as blocks, with the sequence they must carry.

mod device;
mod log;
mod recovery;
mod replay;
mod scan;

use uext4_ondisk::{Damage, Pblk};

pub use device::ReplayedDevice;
pub use recovery::{Recovery, recover};
pub use replay::{Replay, ReplayedBlock};

/// Neighbouring blocks of the journal file, in its logical order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRun {
    /// The first block on the device.
    pub start: Pblk,
    /// Blocks.
    pub len: u32,
}

/// Why a journal cannot be recovered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device failed, or is shorter than the file system.
    #[error(transparent)]
    Device(#[from] uext4_blockdev::Error),
    /// The journal is damaged where it must not be.
    #[error(transparent)]
    Damage(#[from] Damage),
    /// The journal uses something newer than this.
    #[error("journal feature {name} is not known")]
    UnknownFeature {
        /// The feature as debugfs would call it, such as `FEATURE_I6`.
        name: String,
    },
}
