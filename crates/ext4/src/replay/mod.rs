//! Replays fast commits of the journal for writing: their result becomes one transaction.
//!
//! ```text
//! plan     every inode and name they speak of is looked up, and judged; nothing changes
//! claim    the blocks that files now map are taken, so that no other thread gets them
//! inodes   new ones get their number and their bytes, changed ones their bytes
//! ranges   what is mapped otherwise now is unmapped and freed, then mapped
//! names    come and go; link counts follow from them
//! ends     what has no name any more becomes an orphan, which the mount deletes afterwards
//! ```
//! Only the result of all records counts ([`FastCommit`]), so nothing depends on their order. The
//! transaction uses the sequence number of the records: until it is durable they are valid, and
//! afterwards they are stale. An error ends all writing before anything was written, and the
//! image does not change, with its fast commits still in the journal.
//!
//! Link counts and block counts are not taken from the records but computed, as is the data of
//! directories that no record contains. Not done: times of directories, which are not recorded.

#![cfg_attr(
    not(test),
    warn(clippy::as_conversions, clippy::arithmetic_side_effects)
)]

mod inodes;
mod names;
mod plan;
mod ranges;

use std::collections::BTreeMap;

use uext4_ondisk::{Damage, Ino};

use crate::base::error::{Error, Result};
use crate::inode::Inode;
use crate::journal::handle::Handle;
use crate::journal::sbi::Sbi;
use uext4_ondisk::fast_commit::{End, FastCommit};

use plan::Plan;

/// Replays fast commits in the running transaction, which contains nothing else. The caller
/// commits it.
///
/// Fails with [`Error::Unsupported`] if they need more than one transaction or contain changes
/// that no kernel's fast commits contain, with [`Error::Corrupt`] if they do not fit the file
/// system, with [`Error::NoSpace`], or with device errors; writing has then ended, and nothing
/// was written.
pub(crate) fn redo(sbi: &Sbi, all: &FastCommit) -> Result<()> {
    let plan = Plan::new(sbi, all)?;
    let handle = sbi.start(sbi.writable()?.journal.credits_max())?;
    handle.failed(apply(&handle, &plan))
}

fn apply(handle: &Handle<'_>, plan: &Plan<'_>) -> Result<()> {
    for (ino, fate) in plan.fates() {
        if let Some(change) = plan.change(ino, fate) {
            ranges::claim(handle, ino, fate, change)?;
            check_room(handle)?;
        }
    }
    let mut inodes = BTreeMap::new();
    for (ino, fate) in plan.fates().filter(|(_, fate)| fate.end != End::Nothing) {
        let change = plan.change(ino, fate);
        let mut inode = inodes::put(handle, ino, fate, change)?;
        if let Some(change) = change {
            ranges::apply(handle, &mut inode, change)?;
        }
        inodes.insert(ino, inode);
        check_room(handle)?;
    }
    names::apply(handle, plan, &mut inodes)?;
    for (ino, inode) in inodes {
        if let Some(fate) = plan.fate(ino) {
            inodes::finish(handle, inode, fate)?;
            check_room(handle)?;
        }
    }
    Ok(())
}

/// Fails with [`Error::Unsupported`] once the transaction is full.
fn check_room(handle: &Handle<'_>) -> Result<()> {
    match handle.credits() {
        0 => Err(too_large()),
        _ => Ok(()),
    }
}

fn too_large() -> Error {
    Error::Unsupported {
        what: "writing while more fast commits wait in the journal than one transaction can hold: \
            run e2fsck first"
            .to_owned(),
    }
}

/// The error for a record that does not fit its inode.
fn misfit(ino: Ino, field: &'static str, value: u64, why: &'static str) -> Error {
    Error::Corrupt(Damage::InodeField {
        ino,
        field,
        value,
        why,
    })
}

/// New and existing inodes by number.
type Inodes = BTreeMap<Ino, Inode>;
