//! The journal: changes of metadata reach the disk together or not at all; and what a journal that
//! was left behind would change.
//!
//! # Writing
//!
//! ```text
//!  operations                      commit (one at a time)                      checkpoint
//!  ┌──────────┐ modify  ┌────────────────────┐ close: checksum, take Arc<[u8]>┌───────────────┐
//!  │ Handle   │────────▶│ running transaction│──────────┐                    │ newest content│
//!  │ (credits)│ revoke  │ buffers, revokes   │          ▼                    │ of each block │
//!  └──────────┘         └────────────────────┘   log: desc data… revoke      │ not yet home  │
//!        ▲ share the gate ▲ commit takes it      flush · commit block · flush└──────┬────────┘
//!        └────────────────┘ for a moment         ──────────────────────────────▶    │ home, flush,
//!                                                 blocks wait in the map            ▼ tail moves
//! ```
//! A [`Handle`] is one operation's right to change blocks; it holds the *gate* shared, so that a
//! transaction cannot close under it. Closing takes the gate alone: the file system encodes what
//! is counted once for all ([`CommitCallbacks::before_commit`]), every changed block gets its
//! checksum and its content is taken as an `Arc`, and the next transaction opens. Writing the log
//! happens outside the gate: later changes copy a block that the log still needs (copy on write
//! in the buffer cache). A thread that wants a transaction durable calls [`Journal::commit`]: the
//! first does the work, all others wait for it, those who come too late share the next one (group
//! commit).
//!
//! Rules: a block is pinned from its first change until it is checkpointed. Metadata is
//! checkpointed only after its transaction is durable. A freed block's earlier copies are
//! revoked, it is not used again before the freeing transaction is durable
//! ([`CommitCallbacks::after_commit`]), and not checkpointed after. The first error of a commit or
//! checkpoint aborts the journal: nothing is written any more. Without a log the same order of
//! events holds, and a commit checkpoints.
//!
//! Locks, outer first: turn (one commit) → gate (shared by handles) or log (one commit or
//! checkpoint) → gate alone, while closing → checkpoint's writing → its map, a transaction's
//! lists, a buffer. [`CommitCallbacks`] is called under log and gate,
//! [`CommitCallbacks::commit_ended`] under none. The gate is a lock for each slot of threads
//! (`running`), and credits are stocked by slot. Cost of a handle: two atomic instructions each
//! for start and end, one lock of the slot's list at the end, all on cache lines of the thread's
//! slot; of a change: the buffer's lock.
//!
//! Behind a log that was left with fast commits waiting, see [`Journal::open_behind`].
//!
//! # Reading
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
//! 2. *Revoke* (`recovery.rs`): the last record of each home location stays, then the revoke
//!    blocks are read and strike out what they name. No table of revokes is stored.
//! 3. *Verify*: with v2 or v3 checksums the data of what is left is read and summed.
//!
//! # What damage means here
//!
//! As in the kernel, a log ends quietly where it may have ended when the power went: a commit
//! missing, a descriptor or revoke block of an uncommitted transaction torn. A commit block whose
//! checksum is wrong also ends it, but is reported as [`Recovery::failed_commit`]: the kernel
//! refuses to mount then. What was committed and cannot be read as such is an error, with one
//! exception: with `async_commit` the last transaction's commit may have reached the medium
//! before its blocks, and such a transaction is dropped whole. Data blocks that no reader
//! would ever see, because a later copy or a revoke overrides them, are not verified; the kernel
//! verifies some of them.
//!
//! A repair goes further ([`recover_what_holds`]), because it examines all that the replay makes:
//! of a committed transaction it replays every block that holds, as e2fsck does.
//!
//! Homes lie in the file system as the log leaves it: where a superblock in it has more blocks than
//! the one at home, it has grown, and later transactions may have blocks of what was added.
//!
//! The kernel (6.18) makes no exception for `async_commit` and refuses. And when two commits in a
//! row are bad under `async_commit`, it replays the first of them; here the log ends before it.
//!
//! What was checkpointed stays in the ring until it comes round: [`older_copies`] finds it, for
//! images whose blocks were overwritten by something else, and [`all_copies`], for files that were
//! deleted.
//!
//! # Units, cost and bounds
//!
//! Log positions are blocks of the journal file (`u32`), homes are blocks of the file system.
//! Sequences wrap; here they are counted from `s_sequence`, so a plain comparison is right. Memory:
//! 24 bytes for each data block in the log, no copies of data. Time: one read for each control
//! block, one sort. The scan visits no more blocks than the ring has, whatever they say.
//!
//! Recovery takes no locks: it is one call, and what it returns does not change.
//!
//! # Left out
//!
//! External journals. Journalling of file data. Writing fast commits. What fast commits mean:
//! their area is handed out as blocks, with the sequence they must carry.

/// The locks of the model checker, under the name of the product's.
#[cfg(feature = "shuttle")]
extern crate shuttle_parking_lot as parking_lot;

mod barrier;
mod checkpoint;
mod commit;
mod device;
mod handle;
mod history;
mod journal;
mod log;
mod recovery;
mod replay;
mod ring;
mod running;
mod scan;
mod transaction;
mod turn;

use uext4_ondisk::{Damage, Pblk};

pub use barrier::{Barrier, FlushSeq};
pub use device::ReplayedDevice;
pub use handle::Handle;
pub use history::{OlderCopy, all_copies, older_copies};
pub use journal::{CommitCallbacks, Journal, PreCommit, Stats};
pub use recovery::{LeftOut, Recovery, recover, recover_what_holds};
pub use replay::{Replay, ReplayedBlock};
pub use transaction::Tid;

/// Neighbouring blocks of the journal file, in its logical order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRun {
    /// The first block on the device.
    pub start: Pblk,
    /// Blocks.
    pub len: u32,
}

/// Why a journal cannot be recovered, or not be written.
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
    /// The log ends in a transaction whose commit block is damaged; writing after it could hide
    /// that.
    #[error("the commit block of transaction {sequence} is damaged: run e2fsck")]
    FailedCommit {
        /// The transaction's sequence.
        sequence: u32,
    },
    /// The journal is of the first version, which has no features.
    #[error("the journal is too old for 64-bit block numbers")]
    Version,
    /// An earlier error ended all writing.
    #[error("the journal was aborted: {reason}")]
    Aborted {
        /// The earlier error.
        reason: String,
    },
    /// A flush of the device failed earlier: what was written before it may be lost.
    #[error("an earlier flush of the device failed")]
    FlushFailed,
    /// One handle wants more blocks than a transaction may have.
    #[error("{wanted} blocks in one handle, a transaction has {most}")]
    Credits {
        /// Blocks asked for.
        wanted: u32,
        /// Blocks of a transaction.
        most: u32,
    },
    /// A transaction does not fit the log.
    #[error("a transaction of {needed} blocks, the log has room for {free}")]
    LogFull {
        /// Blocks it takes in the log.
        needed: u32,
        /// Blocks that are free after everything was checkpointed.
        free: u32,
    },
}
