//! Blocks of attributes, which inodes share.

use hashbrown::HashMap;
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use uext4_ondisk::features::{Compat, Incompat};
use uext4_ondisk::inode::{InodeFlags, RawInode};
use uext4_ondisk::num::{hi32, lo16, lo32};
use uext4_ondisk::xattr::{
    self, EXT4_XATTR_MAGIC, XATTR_BLOCK_HEADER_LEN, XattrBlockHeader, pack_block, put_block_header,
};
use uext4_ondisk::{Damage, Ino, Pblk};
use zerocopy::{FromBytes, IntoBytes};

use super::entries::{self, Examined, Region};
use super::{EncryptionContext, Owner, ValueUse, Xattrs, order};
use crate::error::Result;
use crate::finding::{Finding, Place};
use crate::problem::XattrProblem;
use crate::report::Cause;
use crate::state::State;

/// Maps that threads lock one at a time: a thread reads a block with its map locked.
const STRIPES: usize = 64;

/// The blocks of attributes that inodes in use refer to.
#[derive(Debug)]
pub struct XattrBlocks {
    stripes: [Mutex<Stripe>; STRIPES],
}

#[derive(Debug, Default)]
struct Stripe {
    blocks: HashMap<Pblk, XattrBlock, FxBuildHasher>,
    /// The block that is examined.
    bytes: Vec<u8>,
}

/// What is known of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XattrBlock {
    /// `h_refcount`.
    pub stored: u32,
    /// References from inodes in use.
    pub counted: u32,
    /// What its values in inodes of their own add to the use of each owner.
    pub values: ValueUse,
    /// Whether it holds attributes that can be kept. All references to others are cleared.
    pub is_usable: bool,
}

impl Default for XattrBlocks {
    fn default() -> Self {
        Self {
            stripes: std::array::from_fn(|_| Mutex::default()),
        }
    }
}

impl XattrBlocks {
    fn stripe(&self, block: Pblk) -> &Mutex<Stripe> {
        &self.stripes[usize::from(lo16(lo32(block.0))) % STRIPES]
    }

    /// What is known of a block.
    pub fn get(&self, block: Pblk) -> Option<XattrBlock> {
        self.stripe(block).lock().blocks.get(&block).copied()
    }

    /// Takes back a reference to a block.
    pub fn uncount(&self, block: Pblk) {
        if let Some(known) = self.stripe(block).lock().blocks.get_mut(&block) {
            known.counted = known.counted.saturating_sub(1);
        }
    }

    /// Notes that the attributes of a block are at another place now.
    pub fn move_to(&self, old: Pblk, new: Pblk) {
        let known = self.stripe(old).lock().blocks.remove(&old);
        if let Some(known) = known {
            self.stripe(new).lock().blocks.insert(new, known);
        }
    }

    /// All blocks in order.
    pub fn all(&self) -> Vec<(Pblk, XattrBlock)> {
        let stripes = self.stripes.iter();
        let mut all: Vec<_> = stripes
            .flat_map(|stripe| {
                let stripe = stripe.lock();
                stripe
                    .blocks
                    .iter()
                    .map(|(&b, &known)| (b, known))
                    .collect::<Vec<_>>()
            })
            .collect();
        all.sort_unstable_by_key(|&(block, _)| block);
        all
    }
}

/// The block that an inode's `i_file_acl` names; 0 is none.
pub fn of_inode(state: &State<'_>, raw: &RawInode) -> Pblk {
    let wide = state.geometry().features.incompat.contains(Incompat::BIT64);
    let high = match wide {
        true => u64::from(raw.i_file_acl_high.get()),
        false => 0,
    };
    Pblk(high << 32 | u64::from(raw.i_file_acl_lo.get()))
}

/// Makes an inode refer to another block; 0 is none.
pub fn set_of_inode(state: &State<'_>, ino: Ino, block: Pblk, cause: Cause) -> Result<()> {
    state.volume.update_raw_inode(ino, cause, |raw| {
        raw.i_file_acl_lo = lo32(block.0).into();
        raw.i_file_acl_high = lo16(hi32(block.0)).into();
    })
}

/// Examines what `i_file_acl` names.
pub fn check(state: &State<'_>, owner: Owner, raw: &RawInode, xattrs: &mut Xattrs) -> Result<()> {
    let features = state.geometry().features;
    let high = raw.i_file_acl_high.get();
    if high != 0 && !features.incompat.contains(Incompat::BIT64) {
        let place = Place::inode(owner.ino).name(b"i_file_acl_high");
        let finding = Finding::new(XattrProblem::BlockNumberHigh, place);
        let cause = state.report(finding.found(high));
        let clear = |raw: &mut RawInode| raw.i_file_acl_high = 0.into();
        state.volume.update_raw_inode(owner.ino, cause, clear)?;
    }
    let block = of_inode(state, raw);
    if block == Pblk(0) {
        return Ok(());
    }
    let clear = |problem| {
        let place = Place::inode(owner.ino).name(b"i_file_acl");
        let cause = state.report(Finding::new(problem, place).found(block.0));
        set_of_inode(state, owner.ino, Pblk(0), cause)
    };
    if !features.compat.contains(Compat::EXT_ATTR) {
        return clear(XattrProblem::BlockFeature);
    }
    if !state.geometry().contains(block, 1) {
        return clear(XattrProblem::BlockNumber);
    }
    let mut stripe = state.xattr_blocks.stripe(block).lock();
    let Stripe { blocks, bytes } = &mut *stripe;
    let is_encrypted = raw.i_flags.get() & InodeFlags::ENCRYPT.bits() != 0;
    let known = match blocks.get_mut(&block) {
        Some(known) if !known.is_usable => return clear(XattrProblem::BlockLost),
        Some(known) => {
            known.counted = known.counted.saturating_add(1);
            if is_encrypted && xattrs.encryption.is_none() {
                state.volume.overlay().read_block(block, bytes)?;
                xattrs.encryption = entries::encryption(region(block, bytes));
            }
            *known
        }
        None => {
            bytes.resize(state.geometry().block_size.len(), 0);
            state.volume.overlay().read_block(block, bytes)?;
            let (known, encryption) = examine(state, owner, block, bytes)?;
            if xattrs.encryption.is_none() {
                xattrs.encryption = encryption;
            }
            blocks.insert(block, known);
            known
        }
    };
    if known.is_usable {
        xattrs.block = Some(block);
        xattrs.values.add(known.values);
    }
    Ok(())
}

fn region(block: Pblk, bytes: &[u8]) -> Region<'_> {
    Region {
        bytes,
        first: XATTR_BLOCK_HEADER_LEN,
        block: Some(block),
        shift: 0,
    }
}

/// Examines the contents of a block and claims its cluster, for its first owner.
fn examine(
    state: &State<'_>,
    owner: Owner,
    block: Pblk,
    bytes: &[u8],
) -> Result<(XattrBlock, Option<EncryptionContext>)> {
    let mut known = XattrBlock {
        stored: 0,
        counted: 1,
        values: ValueUse::default(),
        is_usable: false,
    };
    let place = || Place::inode(owner.ino).block(block);
    let magic = bytes
        .first_chunk()
        .map_or(0, |magic| u32::from_le_bytes(*magic));
    let header = XattrBlockHeader::read_from_prefix(bytes);
    let Some((header, _)) = header.ok().filter(|_| magic == EXT4_XATTR_MAGIC) else {
        let finding = Finding::new(XattrProblem::BlockMagic, place());
        let cause = state.report(finding.found(magic));
        set_of_inode(state, owner.ino, Pblk(0), cause)?;
        return Ok((known, None));
    };
    known.stored = header.h_refcount.get();
    let examined = entries::examine(state, owner, region(block, bytes))?;
    known.values = examined.values;
    if examined.cause.is_some() && examined.kept == 0 {
        let cause = state.report(Finding::new(XattrProblem::BlockEmptied, place()));
        set_of_inode(state, owner.ino, Pblk(0), cause)?;
        return Ok((known, None));
    }
    known.is_usable = true;
    let cluster = state.used.of_blocks(block, 1);
    state
        .used
        .add(cluster, |again| state.shared.add(again, |_| ()));
    check_header(state, place(), block, bytes, header)?;
    if let Some(cause) = examined.cause {
        pack(state, block, bytes, &examined, known.stored, cause)?;
    }
    Ok((known, examined.encryption))
}

/// Checks what the header says besides its magic number.
fn check_header(
    state: &State<'_>,
    place: Place,
    block: Pblk,
    bytes: &[u8],
    header: XattrBlockHeader,
) -> Result<()> {
    let seed = state.geometry().csum_seed;
    let sum = |bytes: &mut [u8]| {
        if let Some(seed) = seed {
            xattr::update_checksum(bytes, block, seed);
        }
    };
    let one = XattrBlockHeader {
        h_blocks: 1.into(),
        ..header
    };
    // Only the checksum can be what is wrong in a header with these numbers.
    let checked = seed.map(|seed| xattr::verify_checksum(bytes, block, seed));
    if let Some(Err(Damage::BlockChecksum {
        stored, computed, ..
    })) = checked
    {
        let finding = Finding::new(XattrProblem::BlockChecksum, place.clone());
        let cause = state.report(finding.found(stored).right(computed));
        state.volume.overlay().update(block, cause, sum)?;
    }
    let blocks = header.h_blocks.get();
    if blocks != 1 {
        let cause = state.report(Finding::new(XattrProblem::BlockCount, place).found(blocks));
        state.volume.overlay().update(block, cause, |bytes| {
            put_header(bytes, one);
            sum(bytes);
        })?;
    }
    Ok(())
}

/// Writes the attributes that can be kept, in the kernel's order.
fn pack(
    state: &State<'_>,
    block: Pblk,
    bytes: &[u8],
    examined: &Examined,
    refcount: u32,
    cause: Cause,
) -> Result<()> {
    let mut kept = examined.kept(region(block, bytes));
    kept.sort_by_key(order);
    let mut packed = vec![0; bytes.len()];
    // Those kept do not share bytes, so that they fit again.
    if let Ok(hash) = pack_block(&mut packed, &kept) {
        let seed = state.geometry().csum_seed;
        put_block_header(&mut packed, block, refcount, hash, seed);
        state.volume.overlay().replace(block, cause, &packed)?;
    }
    Ok(())
}

/// Writes a block of attributes to another place.
pub fn copy(state: &State<'_>, old: Pblk, new: Pblk, cause: Cause) -> Result<()> {
    let mut bytes = vec![0; state.geometry().block_size.len()];
    state.volume.overlay().read_block(old, &mut bytes)?;
    if let Some(seed) = state.geometry().csum_seed {
        xattr::update_checksum(&mut bytes, new, seed);
    }
    state.volume.overlay().replace(new, cause, &bytes)
}

/// Stores the number of references to a block.
pub fn set_references(state: &State<'_>, block: Pblk, count: u32, cause: Cause) -> Result<()> {
    state.volume.overlay().update(block, cause, |bytes| {
        if let Ok((header, _)) = XattrBlockHeader::read_from_prefix(bytes) {
            let h_refcount = count.into();
            put_header(
                bytes,
                XattrBlockHeader {
                    h_refcount,
                    ..header
                },
            );
            if let Some(seed) = state.geometry().csum_seed {
                xattr::update_checksum(bytes, block, seed);
            }
        }
    })
}

fn put_header(bytes: &mut [u8], header: XattrBlockHeader) {
    if let Some(place) = bytes.get_mut(..XATTR_BLOCK_HEADER_LEN) {
        place.copy_from_slice(header.as_bytes());
    }
}
