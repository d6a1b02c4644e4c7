//! The fast commits behind the log: read while the log is replayed, and kept until inodes, maps and
//! directories are known to be right.

use std::collections::BTreeSet;

use uext4_jbd2::Recovery;
use uext4_ondisk::Ino;
use uext4_ondisk::fast_commit::{FastCommit, Record, Records, committed_records};
use uext4_ondisk::inode::RawInode;
use uext4_ondisk::num::len64;

use crate::error::{Error, Result};
use crate::finding::{Finding, Place};
use crate::orphans;
use crate::problem::JournalProblem;
use crate::report::{Cause, Findings};
use crate::volume::Volume;

/// Most bytes of fast commits that are read: 64 times what mke2fs sets aside.
const AREA_MAX: u64 = 64 << 20;

/// What fast commits change, which is not done yet.
#[derive(Debug)]
pub struct FastCommits {
    /// What their records say together.
    pub changes: FastCommit,
    /// The finding that the journal holds them.
    pub cause: Cause,
    /// Orphans that get a name.
    kept: BTreeSet<Ino>,
}

/// The fast commits that a recovery leaves to be replayed, if there are any.
///
/// # Errors
/// [`Error::Features`] if they say that more must be known to replay them; [`Error::Refused`] if
/// there are too many; of the device and of the overlay.
pub(super) fn read(
    volume: &Volume,
    journal: Ino,
    recovery: &Recovery,
    findings: &Findings<'_>,
) -> Result<Option<FastCommits>> {
    let geometry = volume.geometry();
    let mut blocks: Vec<Vec<u8>> = Vec::new();
    for &block in &recovery.fast_commit {
        let mut bytes = vec![0; geometry.block_size.len()];
        volume.overlay().read_block(block, &mut bytes)?;
        // Behind a block that was never written there is nothing.
        if bytes.iter().all(|&byte| byte == 0) {
            break;
        }
        let is_last = ends(&bytes, recovery.next_sequence, geometry.inode_size);
        blocks.push(bytes);
        if is_last {
            break;
        }
        if len64(blocks.len()) << geometry.block_size.log2() > AREA_MAX {
            return Err(Error::Refused {
                what: "the journal holds more than 64 MiB of fast commits: mount the file system \
                       for writing once, unmount it, then examine it"
                    .into(),
            });
        }
    }
    let blocks = blocks.iter().map(Vec::as_slice);
    let records = committed_records(blocks, recovery.next_sequence, geometry.inode_size);
    let records = records.map_err(|damage| Error::Features {
        features: format!("fast commits: {damage}"),
    })?;
    if records.is_empty() {
        return Ok(None);
    }
    let finding = Finding::new(JournalProblem::FastCommits, Place::inode(journal));
    Ok(Some(FastCommits {
        changes: FastCommit::new(&records),
        cause: findings.report(finding.found(len64(records.len()))),
        kept: BTreeSet::new(),
    }))
}

/// Whether the area ends in this block: what follows is older, and counts for nothing.
fn ends(block: &[u8], tid: u32, inode_size: u16) -> bool {
    Records::new(block, inode_size).any(|step| match step {
        Ok((Record::Head { tid: found, .. } | Record::Tail { tid: found, .. }, _)) => found != tid,
        Ok(_) => false,
        Err(_) => true,
    })
}

impl FastCommits {
    /// The inodes and directories that they change.
    pub fn inodes(&self) -> BTreeSet<Ino> {
        let mut inodes: BTreeSet<Ino> = self.changes.all_inodes().into_keys().collect();
        for (directory, names) in self.changes.all_names() {
            inodes.insert(directory);
            inodes.extend(names.values().flatten());
        }
        inodes
    }

    /// Gives a link to each orphan that gets a name: files that were made without one. So they are
    /// not deleted with the other orphans.
    ///
    /// # Errors
    /// Of the device and of the overlay.
    pub fn keep_orphans(&mut self, volume: &Volume) -> Result<()> {
        let named = self.changes.all_names().into_values();
        for &ino in named.flat_map(|names| names.values().flatten()) {
            let change = self.changes.changed(ino);
            let is_new = change.is_some_and(|change| change.parent.is_some());
            if is_new {
                continue;
            }
            let old = orphans::read(volume, ino)?;
            // `i_dtime` of an orphan is the next one's number; a time says that it was deleted.
            let inodes = volume.geometry().inodes_count;
            let is_orphan =
                |old: RawInode| old.i_links_count.get() == 0 && old.i_dtime.get() <= inodes;
            if old.is_some_and(is_orphan) {
                volume.update_raw_inode(ino, self.cause, |raw| raw.i_links_count = 1.into())?;
                self.kept.insert(ino);
            }
        }
        Ok(())
    }

    /// An inode without the link that [`FastCommits::keep_orphans`] gave to it.
    pub fn with_own_links(&self, ino: Ino, mut raw: RawInode) -> RawInode {
        if self.kept.contains(&ino) {
            raw.i_links_count = 0.into();
        }
        raw
    }
}
