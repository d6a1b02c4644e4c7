//! Blocks of attributes, which inodes share.

use uext4_ondisk::features::{Compat, Incompat};
use uext4_ondisk::inode::RawInode;
use uext4_ondisk::num::{hi32, lo16, lo32};
use uext4_ondisk::xattr::{
    self, EXT4_XATTR_MAGIC, XATTR_BLOCK_HEADER_LEN, XattrBlockHeader, pack_block, put_block_header,
};
use uext4_ondisk::{Damage, Ino, Pblk};
use zerocopy::FromBytes;

use super::entries::{self, Examined, Region};
use super::{Owner, Xattrs, order};
use crate::error::Result;
use crate::finding::{Finding, Place};
use crate::problem::XattrProblem;
use crate::report::Cause;
use crate::state::State;
use crate::xattr_blocks::{Stripe, ValueUse, XattrBlock};

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
    // A number that cannot be one was cleared when the inode's fields were examined.
    let block = of_inode(state, raw);
    let has_feature = state.geometry().features.compat.contains(Compat::EXT_ATTR);
    if block == Pblk(0) || !has_feature || !state.geometry().contains(block, 1) {
        return Ok(());
    }
    let mut stripe = state.xattr_blocks.lock(block);
    let Stripe { blocks, bytes } = &mut *stripe;
    let known = match blocks.get_mut(&block) {
        Some(known) if !known.is_usable => {
            let place = Place::inode(owner.ino).name(b"i_file_acl");
            let finding = Finding::new(XattrProblem::BlockLost, place).found(block.0);
            return set_of_inode(state, owner.ino, Pblk(0), state.report(finding));
        }
        Some(known) => {
            known.counted = known.counted.saturating_add(1);
            if owner.is_encrypted && !xattrs.has_context {
                state.volume.overlay().read_block(block, bytes)?;
                xattrs.has_context = entries::has_context(region(block, bytes));
            }
            *known
        }
        None => {
            bytes.resize(state.geometry().block_size.len(), 0);
            state.volume.overlay().read_block(block, bytes)?;
            let (known, has_context) = examine(state, owner, block, bytes)?;
            xattrs.has_context |= has_context;
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

/// Whether the block that an inode names holds an encryption context.
pub fn has_context(state: &State<'_>, raw: &RawInode) -> Result<bool> {
    let block = of_inode(state, raw);
    if block == Pblk(0) || !state.geometry().contains(block, 1) {
        return Ok(false);
    }
    let mut bytes = vec![0; state.geometry().block_size.len()];
    state.volume.overlay().read_block(block, &mut bytes)?;
    Ok(entries::has_context(region(block, &bytes)))
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
) -> Result<(XattrBlock, bool)> {
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
        return Ok((known, false));
    };
    known.stored = header.h_refcount.get();
    let examined = entries::examine(state, owner, region(block, bytes))?;
    known.values = examined.values;
    if examined.cause.is_some() && examined.kept == 0 {
        let cause = state.report(Finding::new(XattrProblem::BlockEmptied, place()));
        set_of_inode(state, owner.ino, Pblk(0), cause)?;
        return Ok((known, false));
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
    Ok((known, examined.has_context))
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
    // Only the checksum can be what is wrong in a header with these numbers.
    let checked = seed.map(|seed| xattr::verify_checksum(bytes, block, seed));
    if let Some(Err(Damage::BlockChecksum {
        stored, computed, ..
    })) = checked
    {
        let finding = Finding::new(XattrProblem::BlockChecksum, place.clone());
        let cause = state.report(finding.found(stored).right(computed));
        state.volume.overlay().update(block, cause, |bytes| {
            if let Some(seed) = seed {
                xattr::update_checksum(bytes, block, seed);
            }
        })?;
    }
    let blocks = header.h_blocks.get();
    if blocks != 1 {
        let cause = state.report(Finding::new(XattrProblem::BlockCount, place).found(blocks));
        state.volume.overlay().update(block, cause, |bytes| {
            let references = header.h_refcount.get();
            put_block_header(bytes, block, references, header.h_hash.get(), seed);
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

/// Takes back the reference of an inode that goes: the last one frees the block. What refers to it
/// wrongly stays so, for the pass to find.
pub fn drop_reference(state: &State<'_>, raw: &RawInode, cause: Cause) -> Result<()> {
    let block = of_inode(state, raw);
    let Some(known) = state
        .xattr_blocks
        .get(block)
        .filter(|known| known.is_usable)
    else {
        return Ok(());
    };
    state.xattr_blocks.uncount(block);
    if known.counted <= 1 {
        state.free(state.used.of_blocks(block, 1));
        return Ok(());
    }
    set_references(state, block, known.stored.saturating_sub(1), cause)
}

/// Stores the number of references to a block.
pub fn set_references(state: &State<'_>, block: Pblk, count: u32, cause: Cause) -> Result<()> {
    let seed = state.geometry().csum_seed;
    state.volume.overlay().update(block, cause, |bytes| {
        if let Ok((header, _)) = XattrBlockHeader::read_from_prefix(bytes) {
            put_block_header(bytes, block, count, header.h_hash.get(), seed);
        }
    })
}
