//! What is deleted or cut, noted for the passes to come.

use uext4_ondisk::features::{Incompat, RoCompat};
use uext4_ondisk::inode::{FileType, InodeFlags, RawInode};
use uext4_ondisk::quota::QuotaKind;
use uext4_ondisk::xattr::{EXT4_XATTR_MAGIC, XattrBlockHeader, put_block_header};
use uext4_ondisk::{Ino, Pblk};
use zerocopy::FromBytes;

use super::cut::{self, Budget};
use crate::error::Result;
use crate::held::{Held, HeldInode, HeldUse, Run};
use crate::report::Cause;
use crate::volume::Volume;

impl Held {
    /// Notes an inode that is deleted, and takes back its reference to a block of attributes. Of a
    /// map with damage only what can be read is noted.
    ///
    /// # Errors
    /// Of the device and of the overlay.
    pub(crate) fn delete(
        &mut self,
        volume: &Volume,
        ino: Ino,
        raw: &RawInode,
        cause: Cause,
        budget: &mut Budget,
    ) -> Result<()> {
        self.cause.get_or_insert(cause);
        self.inodes.push(HeldInode {
            ino,
            is_directory: FileType::from_mode(raw.i_mode.get()) == Some(FileType::Directory),
        });
        self.runs
            .extend(cut::all_of(volume, ino, raw, cause, budget)?);
        self.attributes(volume, raw, cause)?;
        let huge = raw.i_flags.get() & InodeFlags::HUGE_FILE.bits() != 0;
        let unit = if huge {
            volume.geometry().block_size.log2()
        } else {
            9
        };
        let blocks = u64::from(raw.i_blocks_high.get()) << 32 | u64::from(raw.i_blocks_lo.get());
        self.use_less(volume, raw, blocks << unit, 1);
        Ok(())
    }

    /// Notes blocks that are cut from an inode.
    pub(crate) fn cut(&mut self, volume: &Volume, raw: &RawInode, runs: Vec<Run>, cause: Cause) {
        self.cause.get_or_insert(cause);
        let blocks: u64 = runs.iter().map(|run| run.len).sum();
        self.use_less(
            volume,
            raw,
            blocks << volume.geometry().block_size.log2(),
            0,
        );
        self.runs.extend(runs);
    }

    fn use_less(&mut self, volume: &Volume, raw: &RawInode, bytes: u64, inodes: u64) {
        let features = volume.geometry().features.ro_compat;
        if !features.contains(RoCompat::QUOTA) {
            return;
        }
        let mut add = |kind, owner| {
            self.used.push(HeldUse {
                kind,
                owner,
                bytes,
                inodes,
            });
        };
        let uid = u32::from(raw.i_uid_high.get()) << 16 | u32::from(raw.i_uid.get());
        let gid = u32::from(raw.i_gid_high.get()) << 16 | u32::from(raw.i_gid.get());
        add(QuotaKind::User, uid);
        add(QuotaKind::Group, gid);
        if features.contains(RoCompat::PROJECT) {
            add(QuotaKind::Project, raw.i_projid.get());
        }
    }

    /// Takes back a reference to a block of attributes; the last one frees it.
    fn attributes(&mut self, volume: &Volume, raw: &RawInode, cause: Cause) -> Result<()> {
        let geometry = volume.geometry();
        let high = match geometry.features.incompat.contains(Incompat::BIT64) {
            true => u64::from(raw.i_file_acl_high.get()),
            false => 0,
        };
        let block = Pblk(high << 32 | u64::from(raw.i_file_acl_lo.get()));
        if block == Pblk(0) || !geometry.contains(block, 1) {
            return Ok(());
        }
        let mut bytes = vec![0; geometry.block_size.len()];
        volume.overlay().read_block(block, &mut bytes)?;
        let Ok((header, _)) = XattrBlockHeader::read_from_prefix(&bytes) else {
            return Ok(());
        };
        if header.h_magic.get() != EXT4_XATTR_MAGIC {
            return Ok(());
        }
        match header.h_refcount.get() {
            0 | 1 => self.runs.push(Run {
                start: block,
                len: 1,
            }),
            count => {
                let (hash, seed) = (header.h_hash.get(), geometry.csum_seed);
                volume.overlay().update(block, cause, |bytes| {
                    put_block_header(bytes, block, count - 1, hash, seed);
                })?;
            }
        }
        Ok(())
    }
}
