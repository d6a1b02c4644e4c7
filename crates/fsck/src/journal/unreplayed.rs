//! What the log of a journal held that was not replayed.
//!
//! Where a log cannot be replayed, and is emptied, nothing says which of its blocks were in their
//! places already. But most of it can still be read: of each block that it holds a copy of, in a
//! transaction that is whole, the newest copy is compared with what lies in the block's place. So
//! the number is an upper bound: a block may have changed since without the journal.

use uext4_jbd2::older_copies;
use uext4_ondisk::features::Incompat;
use uext4_ondisk::journal::{
    JBD2_CRC32C_CHKSUM, JournalIncompat, JournalSuperblock, KNOWN_INCOMPAT, unescape,
};
use zerocopy::FromBytes;

use super::{Found, find, put_log_superblock, repair};
use crate::error::{Error, Result};
use crate::report::{Cause, Findings};
use crate::volume::Volume;

/// How many blocks the log has newer copies of than what lies in their places. What the overlay
/// holds of the journal's superblock is of no use afterwards.
///
/// # Errors
/// Of the device and of the overlay; [`Error::Cancelled`].
pub fn unreplayed(volume: &Volume, findings: &Findings<'_>) -> Result<u64> {
    let Some(found) = find(volume)? else {
        return Ok(0);
    };
    // As it is; else with the features that it names; else with those that the file system needs.
    let mut most = newer_copies(volume, &found, findings)?;
    for log in likely(volume, &found)? {
        put_log_superblock(volume, &found.map, &log, Cause(0))?;
        most = most.max(newer_copies(volume, &found, findings)?);
    }
    Ok(most)
}

/// Superblocks by which the log of a journal may be read whose own is damaged.
fn likely(volume: &Volume, found: &Found) -> Result<[JournalSuperblock; 2]> {
    let geometry = volume.geometry();
    let mut block = vec![0; geometry.block_size.len()];
    if let Some(first) = found.map.runs.first() {
        volume.overlay().read_block(first.start, &mut block)?;
    }
    let plain = repair::empty(volume, found);
    let stored = JournalSuperblock::read_from_prefix(&block).map_or(plain, |(stored, _)| stored);
    let with = |incompat: JournalIncompat| JournalSuperblock {
        s_uuid: stored.s_uuid,
        s_feature_incompat: incompat.bits().into(),
        s_checksum_type: JBD2_CRC32C_CHKSUM,
        ..plain
    };
    let named = JournalIncompat::from_bits_retain(stored.s_feature_incompat.get());
    let mut needed = JournalIncompat::REVOKE;
    if geometry.features.incompat.contains(Incompat::BIT64) {
        needed.insert(JournalIncompat::BIT64);
    }
    if geometry.features.metadata_csum() {
        needed.insert(JournalIncompat::CSUM_V3);
    }
    Ok([named.intersection(KNOWN_INCOMPAT), needed].map(with))
}

fn newer_copies(volume: &Volume, found: &Found, findings: &Findings<'_>) -> Result<u64> {
    let geometry = volume.geometry();
    let copies = older_copies(
        volume.overlay(),
        geometry.block_size,
        geometry.blocks_count,
        &found.map.runs,
        &mut |_, _| !findings.observer().is_cancelled(),
    );
    if findings.observer().is_cancelled() {
        return Err(Error::Cancelled);
    }
    let copies = match copies {
        Ok(copies) => copies,
        Err(uext4_jbd2::Error::Device(error)) => return Err(error.into()),
        // By this superblock nothing can be read.
        Err(_) => return Ok(0),
    };
    let mut home = vec![0; geometry.block_size.len()];
    let mut held = home.clone();
    let mut newer = 0;
    for copy in &copies {
        volume.overlay().read_block(copy.home, &mut home)?;
        volume.overlay().read_block(copy.log, &mut held)?;
        if copy.escaped {
            unescape(&mut held, 0);
        }
        newer += u64::from(home != held);
    }
    Ok(newer)
}
