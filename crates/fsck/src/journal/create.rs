//! A new journal, once all owners of blocks are known.

use uext4_ondisk::extent::{EXT_INIT_MAX_LEN, Extent};
use uext4_ondisk::features::{Compat, Incompat};
use uext4_ondisk::inode::{InodeFlags, RawInode, S_IFREG};
use uext4_ondisk::num::{hi32, lo32};
use uext4_ondisk::superblock::JNL_BACKUP_BLOCKS;
use uext4_ondisk::{Ino, Lblk, Pblk};
use zerocopy::little_endian::U32;

use super::{Found, Source, backup_of, is_external, put_log_superblock, repair};
use crate::error::{Error, Result};
use crate::finding::{Finding, Place};
use crate::inode_map::Kind;
use crate::mapping::{self, FileMap};
use crate::problem::JournalProblem;
use crate::report::Cause;
use crate::state::State;
use crate::strict_map::Map;
use crate::volume::is_clear;

/// Smallest piece that a journal is made of, in blocks, where free space is in pieces.
const PIECE_MIN: u64 = 64;

/// Makes a new journal if the file system is to have one and has none: an inode that is clear.
/// Call it once, after the pass over inodes. Where there is no room, the feature is cleared.
///
/// # Errors
/// Of the device and of the overlay.
pub fn recreate(state: &State<'_>) -> Result<()> {
    let superblock = state.volume.superblock();
    let has_journal = superblock.features().compat.contains(Compat::HAS_JOURNAL);
    if !has_journal || is_external(&superblock) {
        return Ok(());
    }
    let ino = Ino::JOURNAL;
    if ![0, ino.0].contains(&superblock.s_journal_inum.get()) {
        // One that was added to a mounted file system has another number; if it had been damaged,
        // this one would be named by now.
        return Ok(());
    }
    let bytes = state.volume.read_inode(ino)?.unwrap_or_default();
    if !is_clear(&bytes) {
        return Ok(());
    }
    let make = &state.options.make;
    let has_area = superblock.features().compat.contains(Compat::FAST_COMMIT);
    let all = state.geometry().blocks_count;
    let blocks = make.journal_blocks.or_else(|| default_blocks(all));
    let area = match has_area {
        true => make.fast_commit_blocks.unwrap_or_else(|| default_area(all)),
        false => 0,
    };
    let extents = match blocks {
        Some(blocks) => take(state, blocks.saturating_add(area))?,
        None => None,
    };
    let Some(extents) = extents else {
        let cause = state.report(Finding::new(JournalProblem::NoRoom, Place::inode(ino)));
        return state.volume.update_superblock(cause, |superblock| {
            let mut features = superblock.features();
            features.compat.remove(Compat::HAS_JOURNAL);
            superblock.set_features(features);
            superblock.s_journal_inum = 0.into();
            superblock.s_jnl_backup_type = 0;
            superblock.s_jnl_blocks = [U32::ZERO; 17];
        });
    };
    let cause = state.report(Finding::new(JournalProblem::Missing, Place::inode(ino)));
    write(state, ino, &extents, area, cause)
}

/// Blocks of the log of a file system with so many; `None` if it is too small for a journal.
pub fn default_blocks(blocks: u64) -> Option<u32> {
    Some(match blocks >> 10 {
        0..2 => return None,
        2..32 => 1024,
        32..256 => 4096,
        256..512 => 8192,
        512..4096 => 16384,
        4096..8192 => 32768,
        8192..16384 => 65536,
        16384..32768 => 131_072,
        _ => 262_144,
    })
}

/// Blocks for fast commits of a file system with so many.
pub fn default_area(blocks: u64) -> u32 {
    default_blocks(blocks).unwrap_or(0) / 64
}

/// Takes the blocks, in pieces if need be; `None` if there are not enough.
fn take(state: &State<'_>, blocks: u32) -> Result<Option<Vec<Extent>>> {
    let geometry = state.geometry();
    let goal = state.options.make.journal_goal;
    let goal = goal.unwrap_or_else(|| geometry.group_start(repair::middle(&state.volume)));
    let mut extents = Vec::new();
    let (mut lblk, mut piece) = (0, u64::from(blocks));
    while lblk < blocks {
        let left = u64::from(blocks - lblk);
        let wanted = piece.min(left).min(EXT_INIT_MAX_LEN.into());
        match state.allocate(goal, wanted, "a journal") {
            Ok(pblk) => {
                let len = u16::try_from(wanted).unwrap_or(EXT_INIT_MAX_LEN);
                extents.push(Extent {
                    lblk: Lblk(lblk),
                    len,
                    pblk,
                    unwritten: false,
                });
                lblk += u32::from(len);
            }
            Err(Error::NoSpace { .. }) if piece > PIECE_MIN => piece /= 2,
            Err(Error::NoSpace { .. }) => {
                for extent in extents {
                    let clusters = state.used.of_blocks(extent.pblk, extent.len.into());
                    state.used.remove(clusters);
                }
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Some(extents))
}

/// Writes the inode and an empty log, with `area` blocks for fast commits behind it.
fn write(state: &State<'_>, ino: Ino, extents: &[Extent], area: u32, cause: Cause) -> Result<()> {
    let volume = &state.volume;
    let geometry = volume.geometry();
    let blocks: u64 = extents.iter().map(|extent| u64::from(extent.len)).sum();
    let size = blocks << geometry.block_size.log2();
    let mut inode = RawInode::zeroed();
    inode.i_mode = (S_IFREG | 0o600).into();
    inode.i_links_count = 1.into();
    inode.i_size_lo = lo32(size).into();
    inode.i_size_high = hi32(size).into();
    let now = state.options.now;
    for time in [&mut inode.i_atime, &mut inode.i_ctime, &mut inode.i_mtime] {
        *time = now.into();
    }
    if geometry.features.incompat.contains(Incompat::EXTENTS) {
        inode.i_flags = InodeFlags::EXTENTS.bits().into();
        inode.i_block = uext4_ondisk::extent::empty_extent_root();
    }
    volume.update_inode(ino, cause, |bytes| {
        bytes.fill(0);
        inode.store(bytes);
    })?;
    mapping::store(state, ino, &FileMap::default(), extents, cause)?;
    state.inodes.set(ino, Kind::Reserved, false, 1);
    let bytes = volume.read_inode(ino)?.unwrap_or_default();
    let inode = RawInode::parse(&bytes, ino).unwrap_or(inode);
    let found = Found {
        ino,
        source: Source::Inode,
        inode,
        map: Map::of_extents(extents),
    };
    let mut log = repair::empty(volume, &found);
    log.s_sequence = repair::fresh_sequence(volume, &found)?.into();
    log.s_num_fc_blks = area.into();
    let first = extents.first().map_or(Pblk(0), |extent| extent.pblk);
    volume
        .overlay()
        .update(first, cause, |bytes| bytes.fill(0))?;
    put_log_superblock(volume, &found.map, &log, cause)?;
    volume.update_superblock(cause, |superblock| {
        superblock.s_journal_inum = ino.0.into();
        superblock.s_jnl_backup_type = JNL_BACKUP_BLOCKS;
        superblock.s_jnl_blocks = backup_of(&inode);
    })
}
