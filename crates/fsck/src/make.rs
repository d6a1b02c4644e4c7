//! What the passes make because it was asked for, not because it is missing: it needs blocks or
//! inodes that are free, and these are known once all owners are.

use uext4_ondisk::extent::{Extent, empty_extent_root};
use uext4_ondisk::features::{Compat, FeatureBit, Incompat};
use uext4_ondisk::inode::{InodeFlags, RawInode, S_IFREG};
use uext4_ondisk::mmp::{EXT4_MMP_MAGIC, EXT4_MMP_SEQ_CLEAN, MMP_LEN, MmpBlock};
use uext4_ondisk::num::{hi32, lo32};
use uext4_ondisk::orphan::update_tail;
use uext4_ondisk::superblock::SuperBlock;
use uext4_ondisk::{Ino, Lblk, Pblk};
use zerocopy::{FromZeros, IntoBytes};

use crate::error::{Error, Result};
use crate::inode_map::Kind;
use crate::mapping::{self, FileMap};
use crate::report::Cause;
use crate::state::State;

/// The cause of changes that were asked for: no finding.
pub const ASKED_FOR: Cause = Cause(u32::MAX);
/// Seconds between two updates of the block for multiple mount protection.
const MMP_INTERVAL: u16 = 5;

/// Blocks of an orphan file if nothing was said.
pub fn default_orphan_blocks(blocks: u64) -> u32 {
    lo32((blocks / 4096).clamp(32, 512))
}

/// Sets or clears the bit of a feature.
pub fn set_feature(superblock: &mut SuperBlock, bit: FeatureBit, is_on: bool) {
    let mut features = superblock.features();
    match is_on {
        true => bit.insert_into(&mut features),
        false => bit.remove_from(&mut features),
    }
    superblock.set_features(features);
}

/// Makes what is missing. Call it once, after the pass over inodes.
///
/// # Errors
/// [`Error::NoSpace`]; of the device and of the overlay.
pub fn run(state: &State<'_>) -> Result<()> {
    let make = &state.options.make;
    let superblock = state.volume.superblock();
    let features = superblock.features();
    if make.is_with_project_quota && superblock.s_prj_quota_inum.get() == 0 {
        // The pass over quotas makes the file.
        let ino = free_inode(state)?;
        state.volume.update_superblock(ASKED_FOR, |superblock| {
            superblock.s_prj_quota_inum = ino.0.into();
        })?;
        state.inodes.set(ino, Kind::Unused, false, 0);
    }
    if let Some(blocks) = make.orphan_file_blocks
        && !features.compat.contains(Compat::ORPHAN_FILE)
    {
        orphan_file(state, blocks)?;
    }
    if make.is_with_mmp && !features.incompat.contains(Incompat::MMP) {
        mmp(state)?;
    }
    Ok(())
}

/// The first inode that is not in use, but for that of the quotas of projects.
fn free_inode(state: &State<'_>) -> Result<Ino> {
    let geometry = state.geometry();
    let project = state.volume.superblock().s_prj_quota_inum.get();
    let inodes = (geometry.first_ino..=geometry.inodes_count).map(Ino);
    let is_free = |ino: &Ino| ino.0 != project && state.inodes.get(*ino).kind == Kind::Unused;
    inodes.into_iter().find(is_free).ok_or(Error::NoSpace {
        what: "an inode: all are in use",
    })
}

fn orphan_file(state: &State<'_>, blocks: u32) -> Result<()> {
    let geometry = state.geometry();
    let ino = free_inode(state)?;
    let len = u16::try_from(blocks).unwrap_or(u16::MAX);
    let goal = geometry.group_start(uext4_ondisk::GroupNr(0));
    let extents = pieces(state, goal, len)?;
    let seed = geometry.csum_seed.map(|seed| seed.inode(ino, 0));
    let mut bytes = vec![0; geometry.block_size.len()];
    for extent in &extents {
        for at in 0..u64::from(extent.len) {
            let block = Pblk(extent.pblk.0 + at);
            bytes.fill(0);
            update_tail(&mut bytes, block, seed);
            state.volume.overlay().replace(block, ASKED_FOR, &bytes)?;
        }
    }
    let size = u64::from(len) << geometry.block_size.log2();
    let mut inode = RawInode::zeroed();
    inode.i_mode = (S_IFREG | 0o600).into();
    inode.i_links_count = 1.into();
    inode.i_size_lo = lo32(size).into();
    inode.i_size_high = hi32(size).into();
    for time in [&mut inode.i_atime, &mut inode.i_ctime, &mut inode.i_mtime] {
        *time = state.options.now.into();
    }
    if geometry.features.incompat.contains(Incompat::EXTENTS) {
        inode.i_flags = InodeFlags::EXTENTS.bits().into();
        inode.i_block = empty_extent_root();
    }
    state.volume.update_inode(ino, ASKED_FOR, |bytes| {
        bytes.fill(0);
        inode.store(bytes);
    })?;
    mapping::store(state, ino, &FileMap::default(), &extents, ASKED_FOR)?;
    state.inodes.set(ino, Kind::Reserved, false, 1);
    state.volume.update_superblock(ASKED_FOR, |superblock| {
        superblock.s_orphan_file_inum = ino.0.into();
        set_feature(superblock, FeatureBit::Compat(Compat::ORPHAN_FILE), true);
    })
}

/// Free blocks for a file of `len` blocks, in as few pieces as there are.
fn pieces(state: &State<'_>, goal: Pblk, len: u16) -> Result<Vec<Extent>> {
    let ratio = 1_u64 << state.geometry().cluster_bits;
    let (mut lblk, mut piece) = (0_u16, u64::from(len));
    let mut extents = Vec::new();
    while lblk < len {
        let wanted = piece.min(u64::from(len - lblk));
        match state.allocate(goal, wanted, "an orphan file") {
            Ok(pblk) => {
                let taken = u16::try_from(wanted).unwrap_or(len);
                extents.push(Extent {
                    lblk: Lblk(lblk.into()),
                    len: taken,
                    pblk,
                    unwritten: false,
                });
                lblk += taken;
            }
            // Pieces begin with a cluster.
            Err(Error::NoSpace { .. }) if piece > ratio => {
                piece = (piece / 2).next_multiple_of(ratio);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(extents)
}

fn mmp(state: &State<'_>) -> Result<()> {
    let geometry = state.geometry();
    let goal = geometry.group_start(uext4_ondisk::GroupNr(0));
    let block = state.allocate(goal, 1, "multiple mount protection")?;
    let mut mmp = MmpBlock::new_zeroed();
    mmp.mmp_magic = EXT4_MMP_MAGIC.into();
    mmp.mmp_seq = EXT4_MMP_SEQ_CLEAN.into();
    mmp.mmp_time = u64::from(state.options.now).into();
    let interval = match state.volume.superblock().s_mmp_interval.get() {
        0 => MMP_INTERVAL,
        set => set,
    };
    mmp.mmp_check_interval = interval.into();
    mmp.mmp_checksum = geometry
        .csum_seed
        .map_or(0, |seed| mmp.checksum(seed))
        .into();
    let mut bytes = vec![0; geometry.block_size.len()];
    bytes[..MMP_LEN].copy_from_slice(mmp.as_bytes());
    state.volume.overlay().replace(block, ASKED_FOR, &bytes)?;
    state.volume.update_superblock(ASKED_FOR, |superblock| {
        superblock.s_mmp_block = block.0.into();
        superblock.s_mmp_interval = interval.into();
        set_feature(superblock, FeatureBit::Incompat(Incompat::MMP), true);
    })
}
