//! What is deleted or cut, noted for the passes to come.

use uext4_ondisk::features::{Incompat, RoCompat};
use uext4_ondisk::inode::{FileType, InodeFlags, RawInode};
use uext4_ondisk::quota::QuotaKind;
use uext4_ondisk::xattr::{self, EXT4_XATTR_MAGIC, XattrBlockHeader};
use uext4_ondisk::{Ino, Pblk};
use zerocopy::{FromBytes, IntoBytes};

use super::cut::{self, Gone};
use crate::error::Result;
use crate::finding::{Finding, Place};
use crate::held::{Held, HeldInode, HeldUse};
use crate::problem::JournalProblem;
use crate::report::{Cause, Findings};
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
        findings: &Findings<'_>,
    ) -> Result<()> {
        self.cause.get_or_insert(cause);
        self.inodes.push(HeldInode {
            ino,
            is_directory: FileType::from_mode(raw.i_mode.get()) == Some(FileType::Directory),
        });
        let mut gone = cut::all_of(volume, ino, raw, cause, self)?;
        let again = self.attributes(volume, ino, raw, cause)?;
        gone.again = gone.again.saturating_add(again);
        report(volume, ino, gone, findings);
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

    /// Takes away what a file maps past its size, and notes it.
    ///
    /// # Errors
    /// Of the device and of the overlay.
    pub(crate) fn cut(
        &mut self,
        volume: &Volume,
        ino: Ino,
        raw: &RawInode,
        cause: Cause,
        findings: &Findings<'_>,
    ) -> Result<()> {
        self.cause.get_or_insert(cause);
        let gone = cut::cut(volume, ino, raw, cause, self)?;
        report(volume, ino, gone, findings);
        let bytes = gone.blocks(volume) << volume.geometry().block_size.log2();
        self.use_less(volume, raw, bytes, 0);
        Ok(())
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

    /// Takes back a reference to a block of attributes; the last one frees it. Returns how many
    /// clusters were freed that an orphan had before.
    fn attributes(
        &mut self,
        volume: &Volume,
        ino: Ino,
        raw: &RawInode,
        cause: Cause,
    ) -> Result<u64> {
        let geometry = volume.geometry();
        let high = match geometry.features.incompat.contains(Incompat::BIT64) {
            true => u64::from(raw.i_file_acl_high.get()),
            false => 0,
        };
        let block = Pblk(high << 32 | u64::from(raw.i_file_acl_lo.get()));
        if block == Pblk(0) || !geometry.contains(block, 1) {
            return Ok(0);
        }
        let mut bytes = vec![0; geometry.block_size.len()];
        volume.overlay().read_block(block, &mut bytes)?;
        let Ok((mut header, _)) = XattrBlockHeader::read_from_prefix(&bytes) else {
            return Ok(0);
        };
        let is_right = xattr::verify_block(&bytes, block, geometry.csum_seed).is_ok();
        let count = header.h_refcount.get();
        if header.h_magic.get() != EXT4_XATTR_MAGIC || (count <= 1 && !is_right) {
            return Ok(0);
        }
        if count <= 1 {
            let cluster = self.clusters_of(geometry).of_blocks(block, 1);
            return Ok(self.add(geometry, ino, cluster));
        }
        header.h_refcount = (count - 1).into();
        // A checksum that was wrong stays so: others may use the block, and the pass over
        // attributes is to find what is wrong with it.
        let seed = geometry.csum_seed.filter(|_| is_right);
        volume.overlay().update(block, cause, |bytes| {
            if header.write_to_prefix(bytes).is_ok()
                && let Some(seed) = seed
            {
                xattr::update_checksum(bytes, block, seed);
            }
        })?;
        Ok(0)
    }
}

/// Reports what is wrong with the map of an orphan.
fn report(volume: &Volume, ino: Ino, gone: Gone, findings: &Findings<'_>) {
    let geometry = volume.geometry();
    if let Some(block) = gone.outside {
        let finding = Finding::new(JournalProblem::OrphanRange, Place::inode(ino));
        findings.report(finding.found(block.0));
    }
    let may_share = geometry
        .features
        .ro_compat
        .contains(RoCompat::SHARED_BLOCKS);
    if gone.again != 0 && !may_share {
        let finding = Finding::new(JournalProblem::OrphanShared, Place::inode(ino));
        findings.report(finding.found(gone.again << geometry.cluster_bits));
    }
}
