//! The blocks of a quota file.

use uext4_ondisk::extent::{EXT_INIT_MAX_LEN, Extent, empty_extent_root};
use uext4_ondisk::features::Incompat;
use uext4_ondisk::inode::{GOOD_OLD_INODE_SIZE, InodeFlags, RawInode, S_IFREG};
use uext4_ondisk::num::{hi32, len64, lo32};
use uext4_ondisk::quota::QUOTA_BLOCK_LEN;
use uext4_ondisk::{Ino, Lblk, Pblk};

use crate::error::Result;
use crate::inode_map::Kind;
use crate::mapping::{self, FileMap};
use crate::report::Cause;
use crate::state::State;

/// A quota file that is read.
pub struct QuotaFile<'a> {
    state: &'a State<'a>,
    pub ino: Ino,
    /// Blocks of [`QUOTA_BLOCK_LEN`] bytes, by the file's size.
    pub blocks: u32,
    map: FileMap,
}

impl<'a> QuotaFile<'a> {
    /// The file of an inode.
    pub fn open(state: &'a State<'a>, ino: Ino, raw: &RawInode) -> Result<Self> {
        let size = u64::from(raw.i_size_high.get()) << 32 | u64::from(raw.i_size_lo.get());
        Ok(Self {
            state,
            ino,
            blocks: u32::try_from(size / len64(QUOTA_BLOCK_LEN)).unwrap_or(u32::MAX),
            map: mapping::read(state, ino, raw)?,
        })
    }

    /// Reads one block; zeroes where there is none.
    pub fn read(&self, block: u32, bytes: &mut [u8; QUOTA_BLOCK_LEN]) -> Result<()> {
        bytes.fill(0);
        if block >= self.blocks {
            return Ok(());
        }
        let size = self.state.geometry().block_size;
        let byte = u64::from(block) * len64(QUOTA_BLOCK_LEN);
        let lblk = lo32(byte >> size.log2());
        match physical(&self.map.extents, lblk) {
            Some(Mapped {
                pblk,
                unwritten: false,
            }) => {
                let offset = (pblk.0 << size.log2()) + byte % u64::from(size.bytes());
                self.state.volume.overlay().read_at(offset, bytes)
            }
            _ => Ok(()),
        }
    }
}

struct Mapped {
    pblk: Pblk,
    unwritten: bool,
}

/// Where a logical block lies, by extents in order.
fn physical(extents: &[Extent], lblk: u32) -> Option<Mapped> {
    let after = extents.partition_point(|extent| extent.lblk.0 <= lblk);
    let extent = extents.get(after.checked_sub(1)?)?;
    let distance = lblk - extent.lblk.0;
    (distance < extent.len.into()).then(|| Mapped {
        pblk: Pblk(extent.pblk.0.saturating_add(distance.into())),
        unwritten: extent.unwritten,
    })
}

/// Makes an inode that is not in use an empty quota file, and returns it.
pub fn create(state: &State<'_>, ino: Ino, cause: Cause) -> Result<RawInode> {
    let has_extents = state
        .geometry()
        .features
        .incompat
        .contains(Incompat::EXTENTS);
    let superblock = state.volume.superblock();
    let mut new = RawInode::zeroed();
    new.i_mode = (S_IFREG | 0o600).into();
    new.i_links_count = 1.into();
    let flags = InodeFlags::IMMUTABLE | InodeFlags::NOATIME;
    new.i_flags = flags.bits().into();
    if has_extents {
        new.i_flags = (flags | InodeFlags::EXTENTS).bits().into();
        new.i_block = empty_extent_root();
    }
    for time in [&mut new.i_atime, &mut new.i_ctime, &mut new.i_mtime] {
        *time = state.options.now.into();
    }
    let room = usize::from(state.geometry().inode_size).saturating_sub(GOOD_OLD_INODE_SIZE);
    let extra = usize::from(superblock.s_want_extra_isize.get()).max(32) & !3;
    let extra = extra
        .min(room)
        .min(size_of::<RawInode>() - GOOD_OLD_INODE_SIZE);
    new.i_extra_isize = u16::try_from(extra).unwrap_or(0).into();
    state.volume.update_inode(ino, cause, |bytes| {
        bytes.fill(0);
        new.store(bytes);
    })?;
    state.inodes.set(ino, Kind::Reserved, false, 1);
    Ok(new)
}

/// Makes `bytes` the contents of the file: in the blocks that it has, as far as they go.
pub fn write(
    state: &State<'_>,
    ino: Ino,
    raw: &RawInode,
    bytes: &[u8],
    cause: Cause,
) -> Result<()> {
    let size = state.geometry().block_size;
    let old = mapping::read(state, ino, raw)?;
    let blocks = lo32(size.blocks_for(len64(bytes.len())));
    let extents = extents(state, &old.extents, blocks)?;
    let mut padded = vec![0; size.len()];
    for (lblk, content) in (0..blocks).zip(bytes.chunks(size.len())) {
        let Some(Mapped { pblk, .. }) = physical(&extents, lblk) else {
            continue;
        };
        padded.fill(0);
        padded[..content.len()].copy_from_slice(content);
        state.volume.overlay().replace(pblk, cause, &padded)?;
    }
    if extents != old.extents {
        mapping::store(state, ino, &old, &extents, cause)?;
        free_rest(state, ino, &old, &extents);
    }
    let len = len64(bytes.len());
    state.volume.update_raw_inode(ino, cause, |raw| {
        raw.i_size_lo = lo32(len).into();
        raw.i_size_high = hi32(len).into();
    })
}

/// The extents of a file of so many blocks: those of before, and new ones where there are none.
fn extents(state: &State<'_>, old: &[Extent], blocks: u32) -> Result<Vec<Extent>> {
    let ratio = 1_u32 << state.geometry().cluster_bits;
    let mut extents: Vec<Extent> = Vec::new();
    let mut cluster = None;
    for lblk in 0..blocks {
        if lblk % ratio == 0 {
            cluster = None;
        }
        let pblk = match (physical(old, lblk), cluster) {
            (Some(mapped), _) => mapped.pblk,
            (None, Some(start)) => Pblk(start + u64::from(lblk % ratio)),
            (None, None) => {
                let last = extents.last().map(|e| e.pblk.0 + u64::from(e.len));
                let goal = Pblk(last.unwrap_or(0));
                // The cluster may be taken for later blocks of the file.
                let end = (lblk - lblk % ratio).saturating_add(ratio);
                match (lblk..end).find_map(|later| Some((later, physical(old, later)?))) {
                    Some((later, mapped)) => {
                        Pblk(mapped.pblk.0.saturating_sub((later - lblk).into()))
                    }
                    None => {
                        let start = state.allocate(goal, ratio.into(), "a quota file")?;
                        Pblk(start.0 + u64::from(lblk % ratio))
                    }
                }
            }
        };
        cluster = Some(pblk.0.saturating_sub((lblk % ratio).into()));
        match extents.last_mut() {
            Some(last)
                if last.pblk.0 + u64::from(last.len) == pblk.0 && last.len < EXT_INIT_MAX_LEN =>
            {
                last.len += 1;
            }
            _ => extents.push(Extent {
                lblk: Lblk(lblk),
                len: 1,
                pblk,
                unwritten: false,
            }),
        }
    }
    Ok(extents)
}

/// Frees the clusters that the file no longer has. Where the file is written because orphans are
/// taken back from it, these are taken back like theirs: the marks are no damage.
fn free_rest(state: &State<'_>, ino: Ino, old: &FileMap, new: &[Extent]) {
    for extent in &old.extents {
        state.free(state.used.of_blocks(extent.pblk, extent.len.into()));
    }
    for extent in new {
        let clusters = state.used.of_blocks(extent.pblk, extent.len.into());
        state.used.add(clusters, |_| ());
    }
    let mut held = state.held.lock();
    if held.cause.is_none() {
        return;
    }
    let nodes = old.nodes.iter().map(|&node| (node, 1));
    let extents = old.extents.iter();
    let blocks = extents.map(|extent| (extent.pblk, extent.len.into()));
    for (start, len) in blocks.chain(nodes) {
        for cluster in state.used.of_blocks(start, len) {
            if !state.used.contains(cluster) {
                held.add(state.geometry(), ino, cluster..cluster.saturating_add(1));
            }
        }
    }
}
