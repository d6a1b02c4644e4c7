//! Moves inline data of a file to a block when the file is written to.

use uext4_extent_status::{Extent as Known, Status};
use uext4_mballoc::Run;
use uext4_ondisk::extent::{Extent, empty_extent_root};
use uext4_ondisk::inode::{I_BLOCK_LEN, InodeFlags};
use uext4_ondisk::{Damage, Lblk};

use crate::base::error::{Error, Result};
use crate::base::mapping::LblkRun;
use crate::file::evict::end_cut;
use crate::file::inode_ref::InodeRef;
use crate::inode::Inode;
use crate::inode::inline::read_inline;
use crate::inode::store::store;
use crate::journal::handle::Handle;
use crate::journal::rw::Purpose;
use crate::journal::space::ensure_blocks;
use crate::map;
use crate::map::data_blocks;
use crate::xattr;

/// Moves inline data to a block, if there is any, in one transaction: the data is in the block
/// before the transaction begins. The caller must hold the file's `Names` lock.
///
/// Fails with [`crate::Error::NoSpace`], [`crate::Error::QuotaExceeded`], damage or device
/// errors; then either nothing has changed, or all writing ends.
pub(crate) fn leave_inode(file: &InodeRef) -> Result<()> {
    let sbi = file.sbi();
    end_cut(sbi, file)?;
    let data = {
        let inode = file.inode.read();
        if !inode.has(InodeFlags::INLINE_DATA) {
            return Ok(());
        }
        if inode.size == 0 {
            drop(inode);
            return move_out(file, None);
        }
        // One block of zeroes with the data at its start.
        let mut data = vec![0; sbi.block_len()];
        let len = usize::try_from(inode.size).ok();
        let part = len.and_then(|len| data.get_mut(..len));
        read_inline(sbi, &inode, 0, part.ok_or_else(|| too_long(&inode))?)?;
        data
    };
    let reservation = ensure_blocks(sbi, Purpose::Data(file.caller()), 1)?;
    let first = LblkRun {
        start: Lblk(0),
        len: 1,
    };
    let taken = data_blocks::take(sbi, file, first, false)?;
    let allocator = &sbi.writable()?.allocator;
    if let Err(error) = sbi.device().write_at(sbi.byte_offset(taken.start), &data) {
        allocator.cancel(taken);
        return Err(error.into());
    }
    drop(reservation);
    let bytes = sbi.block_len() as u64;
    let paid = match &file.inode.read().owners {
        Some(owners) => owners.reservation(bytes),
        None => Ok(()),
    };
    if let Err(error) = paid {
        allocator.cancel(taken);
        return Err(error);
    }
    move_out(file, Some(taken))
}

fn too_long(inode: &Inode) -> Error {
    Error::Corrupt(Damage::InodeField {
        ino: inode.ino,
        field: "i_size",
        value: inode.size,
        why: "inline data of more than a block",
    })
}

fn move_out(file: &InodeRef, block: Option<Run>) -> Result<()> {
    let sbi = file.sbi();
    // One block fits into the root of any map; the credits are for bitmap, inode and attributes.
    let handle = match sbi.start(4 + xattr::change::credits_set(sbi)) {
        Ok(handle) => handle,
        Err(error) => {
            if let (Some(rw), Some(run)) = (sbi.rw(), block) {
                rw.allocator.cancel(run);
            }
            return Err(error);
        }
    };
    if let Some(run) = block {
        handle.mark(run)?;
    }
    let inode = &mut *file.inode.write();
    handle.failed(change_map(&handle, inode, block))?;
    file.changed_in(handle.tid(), true);
    if let Some(run) = block {
        sbi.writable()?.inodes.known_blocks(file).insert(Known {
            lblk: Lblk(0),
            len: 1,
            pblk: run.start,
            status: Status::Written,
        });
    }
    Ok(())
}

fn change_map(handle: &Handle<'_>, inode: &mut Inode, block: Option<Run>) -> Result<()> {
    let sbi = handle.sbi();
    xattr::change::drop_inline_data(handle, inode)?;
    inode.flags.remove(InodeFlags::INLINE_DATA);
    inode.i_block = [0; I_BLOCK_LEN];
    if sbi.has_extents() {
        inode.flags |= InodeFlags::EXTENTS;
        inode.i_block = empty_extent_root();
    }
    if let Some(run) = block {
        let extent = Extent {
            lblk: Lblk(0),
            len: 1,
            pblk: run.start,
            unwritten: false,
        };
        if let Some(owners) = &mut inode.owners {
            owners.draw(sbi.block_len() as u64);
        }
        map::change::insert(handle, inode, extent)?;
    }
    store(handle, sbi, inode)
}
