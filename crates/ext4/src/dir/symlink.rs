//! Targets of symbolic links: in `i_block`, inline in the inode, or in a block.

use uext4_ondisk::inode::{FileType, InodeFlags};
use uext4_ondisk::{Damage, Lblk};

use crate::base::error::{Error, Result};
use crate::base::invalid::Invalid;
use crate::base::mapping::MapState;
use crate::base::owner::{Kind, Owner};
use crate::inode::Inode;
use crate::inode::inline::read_inline;
use crate::journal::sbi::Sbi;
use crate::map::map_blocks;
use crate::map::readpage::read_range;

/// Longest target in bytes that the kernel follows or creates.
const TARGET_MAX: u64 = 4095;

/// Reads the one block of a target through the cache: until its transaction has been
/// checkpointed, a new block exists only there.
fn read_block(sbi: &Sbi, inode: &Inode, target: &mut [u8]) -> Result<()> {
    let run = map_blocks(sbi, inode, Lblk(0), 1)?;
    if run.state != MapState::Written {
        target.fill(0);
        return Ok(());
    }
    let tag = Owner::of(Kind::Data).tag();
    let block = sbi.bread("symbolic link", run.pblk, tag, |_| Ok(()))?;
    let data = block.data();
    // OK to index: the requested target is no longer than a block.
    target.copy_from_slice(&data[..target.len()]);
    Ok(())
}

/// The target of a symbolic link: 1 to 4,095 bytes.
pub(crate) fn read_link(sbi: &Sbi, inode: &Inode) -> Result<Vec<u8>> {
    if inode.file_type != FileType::Symlink {
        return Err(Error::Invalid(Invalid::NotSymlink));
    }
    if inode.has(InodeFlags::ENCRYPT) {
        return Err(Error::Encrypted);
    }
    if inode.size == 0 || inode.size > TARGET_MAX {
        return Err(Error::Corrupt(Damage::InodeField {
            ino: inode.ino,
            field: "i_size",
            value: inode.size,
            why: "targets of symbolic links have 1 to 4095 bytes",
        }));
    }
    let mut target = vec![0; inode.size as usize];
    if inode.has(InodeFlags::INLINE_DATA) {
        read_inline(sbi, inode, 0, &mut target)?;
    } else if inode.is_fast_symlink(sbi) {
        // OK to index: a fast symlink is shorter than `i_block`.
        target.copy_from_slice(&inode.i_block[..inode.size as usize]);
    } else if sbi.rw().is_some() && target.len() <= sbi.block_len() {
        read_block(sbi, inode, &mut target)?;
    } else {
        read_range(sbi, inode, 0, &mut target)?;
    }
    // The kernel, too, ends the target at the first zero byte.
    match target.iter().position(|&b| b == 0) {
        None => {}
        Some(0) => {
            return Err(Error::Corrupt(Damage::InodeField {
                ino: inode.ino,
                field: "i_size",
                value: inode.size,
                why: "the target of the symbolic link begins with a zero byte",
            }));
        }
        Some(end) => target.truncate(end),
    }
    Ok(target)
}
