//! What a primary superblock that cannot be used still says.
//!
//! Often one bit of it is wrong, or some bytes. Of one with a wrong magic number all else may be
//! right: then the descriptors fit its shape. If they do not, its shape is the one of the root
//! directory, and what names the file system and how it is used is kept.

use uext4_blockdev::BlockDevice;
use uext4_ondisk::checksum::CsumSeed;
use uext4_ondisk::features::{Compat, Features, Incompat, RoCompat};
use uext4_ondisk::mmp::EXT4_MMP_MAGIC;
use uext4_ondisk::superblock::{EXT4_SUPER_MAGIC, SuperBlock};
use uext4_ondisk::{Geometry, Pblk};
use zerocopy::{FromBytes, IntoBytes};

use crate::superblock::find::usable;
use crate::superblock::fit::{Fit, read_block};
use crate::superblock::shape::unknown_features;

/// Features that say nothing of where structures are. The passes judge them by the inodes.
const COMPAT: Compat = Compat::DIR_INDEX
    .union(Compat::EXT_ATTR)
    .union(Compat::STABLE_INODES)
    .union(Compat::ORPHAN_FILE);
const INCOMPAT: Incompat = Incompat::INLINE_DATA
    .union(Incompat::EA_INODE)
    .union(Incompat::CASEFOLD)
    .union(Incompat::ENCRYPT)
    .union(Incompat::LARGEDIR);
const RO_COMPAT: RoCompat = RoCompat::QUOTA
    .union(RoCompat::PROJECT)
    .union(RoCompat::VERITY)
    .union(RoCompat::ORPHAN_PRESENT);

/// The superblock with the right magic number, if the descriptors fit its shape.
pub fn unnamed(device: &dyn BlockDevice, bytes: &[u8]) -> Option<(SuperBlock, Geometry)> {
    let (mut superblock, _) = SuperBlock::read_from_prefix(bytes).ok()?;
    superblock.s_magic = EXT4_SUPER_MAGIC.into();
    // With a checksum it must be right: nothing else is wrong then.
    let (superblock, geometry) = usable(superblock.as_bytes()).ok()?;
    let is_known = unknown_features(superblock.features()).is_empty();
    let fits = geometry.len_bytes() <= device.len() && !Fit::of(device, &geometry).is_doubtful();
    (is_known && fits).then_some((superblock, geometry))
}

/// The superblock that was `made`, with what is left of the primary one. `None` if nothing shows
/// that it was one: neither its magic number nor a UUID from which the checksums begin.
pub fn completed(
    device: &dyn BlockDevice,
    bytes: &[u8],
    made: &SuperBlock,
    seed: Option<CsumSeed>,
) -> Option<SuperBlock> {
    let (old, _) = SuperBlock::read_from_prefix(bytes).ok()?;
    let is_uuid_right = seed.is_some_and(|seed| CsumSeed::from_uuid(&old.s_uuid) == seed);
    if !is_uuid_right && old.s_magic.get() != EXT4_SUPER_MAGIC {
        return None;
    }
    let mut new = *made;
    new.s_uuid = old.s_uuid;
    new.s_volume_name = old.s_volume_name;
    new.s_last_mounted = old.s_last_mounted;
    new.s_mkfs_time = old.s_mkfs_time;
    new.s_hash_seed = old.s_hash_seed;
    new.s_def_hash_version = old.s_def_hash_version;
    new.s_flags = old.s_flags;
    new.s_default_mount_opts = old.s_default_mount_opts;
    new.s_mount_opts = old.s_mount_opts;
    new.s_def_resuid = old.s_def_resuid;
    new.s_def_resgid = old.s_def_resgid;
    new.s_usr_quota_inum = old.s_usr_quota_inum;
    new.s_grp_quota_inum = old.s_grp_quota_inum;
    new.s_prj_quota_inum = old.s_prj_quota_inum;
    new.s_orphan_file_inum = old.s_orphan_file_inum;
    new.s_encoding = old.s_encoding;
    new.s_encoding_flags = old.s_encoding_flags;
    new.s_encrypt_algos = old.s_encrypt_algos;
    new.s_encrypt_pw_salt = old.s_encrypt_pw_salt;
    let mut features = with_features(made.features(), old.features(), is_uuid_right);
    if old.features().incompat.contains(Incompat::MMP) && has_mmp(device, &old, made) {
        new.s_mmp_block = old.s_mmp_block;
        new.s_mmp_interval = old.s_mmp_interval;
        features.incompat.insert(Incompat::MMP);
    }
    new.set_features(features);
    new.update_checksum();
    // A number or a feature that cannot be.
    usable(new.as_bytes()).is_ok().then_some(new)
}

/// The number of blocks that a superblock says, whatever else is wrong in it.
pub fn blocks(bytes: &[u8]) -> u64 {
    let superblock = SuperBlock::read_from_prefix(bytes);
    superblock.map_or(0, |(superblock, _)| superblock.blocks_count())
}

/// Whether the block for multiple mount protection is where the old superblock says it.
fn has_mmp(device: &dyn BlockDevice, old: &SuperBlock, made: &SuperBlock) -> bool {
    let block = Geometry::new(made)
        .ok()
        .and_then(|geometry| read_block(device, geometry.block_size, Pblk(old.s_mmp_block.get())));
    block.is_some_and(|block| block.starts_with(&EXT4_MMP_MAGIC.to_le_bytes()))
}

fn with_features(mut new: Features, old: Features, is_uuid_right: bool) -> Features {
    if is_uuid_right {
        new.incompat.remove(Incompat::CSUM_SEED);
    }
    // Of a word with an impossible bit no bit is believed.
    if unknown_features(old).is_empty() {
        new.compat |= old.compat & COMPAT;
        new.incompat |= old.incompat & INCOMPAT;
        new.ro_compat |= old.ro_compat & RO_COMPAT;
        if !new.metadata_csum() {
            // Checksums of descriptors, which the UUID makes, are compared afterwards.
            new.ro_compat |= old.ro_compat & RoCompat::GDT_CSUM;
        }
    }
    new
}
