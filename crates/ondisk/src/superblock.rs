//! The superblock: 1,024 bytes at byte 1,024 of the file system, and its backups.

use std::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::{CsumSeed, crc32c};
use crate::damage::Damage;
use crate::features::{Compat, Features, Incompat, RoCompat};
use crate::hash::CharSign;
use crate::inode::I_BLOCK_LEN;
use crate::num::{hi32, join32, lo32};
use crate::units::GroupNr;

/// `s_magic`.
pub const EXT4_SUPER_MAGIC: u16 = 0xEF53;
/// Byte offset of the primary superblock from the start of the file system.
pub const SUPERBLOCK_OFFSET: u64 = 1024;
/// `s_state`: cleanly unmounted.
pub const STATE_VALID: u16 = 0x1;
/// `s_state`: errors were found.
pub const STATE_ERROR: u16 = 0x2;
/// `s_state`: orphans are being recovered.
pub const STATE_ORPHAN: u16 = 0x4;
/// `s_first_error_errcode`, `s_last_error_errcode`: an error that has no number of its own.
pub const ERR_UNKNOWN: u8 = 1;
/// The same: the device failed.
pub const ERR_EIO: u8 = 2;
/// The same: there was no space.
pub const ERR_ENOSPC: u8 = 6;
/// The same: a damaged structure.
pub const ERR_EFSCORRUPTED: u8 = 5;
/// `s_flags`: directory hashes take bytes as signed.
pub const FLAGS_SIGNED_HASH: u32 = 0x1;
/// `s_flags`: directory hashes take bytes as unsigned.
pub const FLAGS_UNSIGNED_HASH: u32 = 0x2;
/// `s_jnl_backup_type`: `s_jnl_blocks` holds the journal inode's `i_block` and size.
pub const JNL_BACKUP_BLOCKS: u8 = 1;
/// `s_checksum_type`: crc32c, the only one.
pub const CHECKSUM_TYPE_CRC32C: u8 = 1;

/// `s_first_ino` of a file system whose log changes the number of groups: the kernel, which reads
/// that number before it replays the log, refuses it as invalid, and e2fsck replays the log first.
/// The log has the right superblock. Only with the feature `needs_recovery`.
pub const FIRST_INO_UNTIL_REPLAY: u32 = 5;

/// The raw superblock, field by field as it lies on disk.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // The names are the format's own.
pub struct SuperBlock {
    pub s_inodes_count: U32,
    pub s_blocks_count_lo: U32,
    pub s_r_blocks_count_lo: U32,
    pub s_free_blocks_count_lo: U32,
    pub s_free_inodes_count: U32,
    pub s_first_data_block: U32,
    pub s_log_block_size: U32,
    pub s_log_cluster_size: U32,
    pub s_blocks_per_group: U32,
    pub s_clusters_per_group: U32,
    pub s_inodes_per_group: U32,
    pub s_mtime: U32,
    pub s_wtime: U32,
    pub s_mnt_count: U16,
    pub s_max_mnt_count: U16,
    pub s_magic: U16,
    pub s_state: U16,
    pub s_errors: U16,
    pub s_minor_rev_level: U16,
    pub s_lastcheck: U32,
    pub s_checkinterval: U32,
    pub s_creator_os: U32,
    pub s_rev_level: U32,
    pub s_def_resuid: U16,
    pub s_def_resgid: U16,
    pub s_first_ino: U32,
    pub s_inode_size: U16,
    pub s_block_group_nr: U16,
    pub s_feature_compat: U32,
    pub s_feature_incompat: U32,
    pub s_feature_ro_compat: U32,
    pub s_uuid: [u8; 16],
    pub s_volume_name: [u8; 16],
    pub s_last_mounted: [u8; 64],
    pub s_algorithm_usage_bitmap: U32,
    pub s_prealloc_blocks: u8,
    pub s_prealloc_dir_blocks: u8,
    pub s_reserved_gdt_blocks: U16,
    pub s_journal_uuid: [u8; 16],
    pub s_journal_inum: U32,
    pub s_journal_dev: U32,
    pub s_last_orphan: U32,
    pub s_hash_seed: [U32; 4],
    pub s_def_hash_version: u8,
    pub s_jnl_backup_type: u8,
    pub s_desc_size: U16,
    pub s_default_mount_opts: U32,
    pub s_first_meta_bg: U32,
    pub s_mkfs_time: U32,
    pub s_jnl_blocks: [U32; 17],
    pub s_blocks_count_hi: U32,
    pub s_r_blocks_count_hi: U32,
    pub s_free_blocks_count_hi: U32,
    pub s_min_extra_isize: U16,
    pub s_want_extra_isize: U16,
    pub s_flags: U32,
    pub s_raid_stride: U16,
    pub s_mmp_interval: U16,
    pub s_mmp_block: U64,
    pub s_raid_stripe_width: U32,
    pub s_log_groups_per_flex: u8,
    pub s_checksum_type: u8,
    pub s_encryption_level: u8,
    pub s_reserved_pad: u8,
    pub s_kbytes_written: U64,
    pub s_snapshot_inum: U32,
    pub s_snapshot_id: U32,
    pub s_snapshot_r_blocks_count: U64,
    pub s_snapshot_list: U32,
    pub s_error_count: U32,
    pub s_first_error_time: U32,
    pub s_first_error_ino: U32,
    pub s_first_error_block: U64,
    pub s_first_error_func: [u8; 32],
    pub s_first_error_line: U32,
    pub s_last_error_time: U32,
    pub s_last_error_ino: U32,
    pub s_last_error_line: U32,
    pub s_last_error_block: U64,
    pub s_last_error_func: [u8; 32],
    pub s_mount_opts: [u8; 64],
    pub s_usr_quota_inum: U32,
    pub s_grp_quota_inum: U32,
    pub s_overhead_clusters: U32,
    pub s_backup_bgs: [U32; 2],
    pub s_encrypt_algos: [u8; 4],
    pub s_encrypt_pw_salt: [u8; 16],
    pub s_lpf_ino: U32,
    pub s_prj_quota_inum: U32,
    pub s_checksum_seed: U32,
    pub s_wtime_hi: u8,
    pub s_mtime_hi: u8,
    pub s_mkfs_time_hi: u8,
    pub s_lastcheck_hi: u8,
    pub s_first_error_time_hi: u8,
    pub s_last_error_time_hi: u8,
    pub s_first_error_errcode: u8,
    pub s_last_error_errcode: u8,
    pub s_encoding: U16,
    pub s_encoding_flags: U16,
    pub s_orphan_file_inum: U32,
    pub s_reserved: [U32; 94],
    pub s_checksum: U32,
}

const _: () = {
    assert!(size_of::<SuperBlock>() == 1024);
    assert!(offset_of!(SuperBlock, s_magic) == 0x38);
    assert!(offset_of!(SuperBlock, s_first_ino) == 0x54);
    assert!(offset_of!(SuperBlock, s_uuid) == 0x68);
    assert!(offset_of!(SuperBlock, s_reserved_gdt_blocks) == 0xCE);
    assert!(offset_of!(SuperBlock, s_hash_seed) == 0xEC);
    assert!(offset_of!(SuperBlock, s_jnl_blocks) == 0x10C);
    assert!(offset_of!(SuperBlock, s_blocks_count_hi) == 0x150);
    assert!(offset_of!(SuperBlock, s_mmp_block) == 0x168);
    assert!(offset_of!(SuperBlock, s_kbytes_written) == 0x178);
    assert!(offset_of!(SuperBlock, s_error_count) == 0x194);
    assert!(offset_of!(SuperBlock, s_mount_opts) == 0x200);
    assert!(offset_of!(SuperBlock, s_backup_bgs) == 0x24C);
    assert!(offset_of!(SuperBlock, s_checksum_seed) == 0x270);
    assert!(offset_of!(SuperBlock, s_orphan_file_inum) == 0x280);
    assert!(offset_of!(SuperBlock, s_checksum) == 0x3FC);
};

/// Why a file system must keep its UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UuidInUse {
    /// The feature that uses it.
    pub feature: &'static str,
    /// For what.
    pub why: &'static str,
}

impl SuperBlock {
    /// All zero bytes: the start of a new one.
    pub fn zeroed() -> Self {
        Self::new_zeroed()
    }

    /// Reads the 1,024 bytes of a superblock: magic and checksum are tested, nothing else.
    ///
    /// # Errors
    /// [`Damage::Truncated`], [`Damage::SuperblockMagic`], [`Damage::SuperblockChecksum`], and
    /// [`Damage::SuperblockField`] for a kind of checksum that does not exist.
    pub fn parse(bytes: &[u8]) -> Result<Self, Damage> {
        let (sb, _) = Self::read_from_prefix(bytes)
            .map_err(|_| Damage::truncated("superblock", size_of::<Self>(), bytes.len()))?;
        if sb.s_magic.get() != EXT4_SUPER_MAGIC {
            return Err(Damage::SuperblockMagic {
                found: sb.s_magic.get(),
            });
        }
        if sb.features().metadata_csum() {
            if sb.s_checksum_type != CHECKSUM_TYPE_CRC32C {
                return Err(Damage::SuperblockField {
                    field: "s_checksum_type",
                    value: sb.s_checksum_type.into(),
                    why: "not 1, crc32c",
                });
            }
            let (stored, computed) = (sb.s_checksum.get(), sb.checksum());
            if stored != computed {
                return Err(Damage::SuperblockChecksum { stored, computed });
            }
        }
        Ok(sb)
    }

    /// Whether it was unmounted cleanly, with no error noted since. A journal may have to be
    /// replayed nevertheless.
    pub fn was_left_clean(&self) -> bool {
        self.s_state.get() & (STATE_VALID | STATE_ERROR) == STATE_VALID
    }

    /// The three feature words.
    pub fn features(&self) -> Features {
        Features {
            compat: Compat::from_bits_retain(self.s_feature_compat.get()),
            incompat: Incompat::from_bits_retain(self.s_feature_incompat.get()),
            ro_compat: RoCompat::from_bits_retain(self.s_feature_ro_compat.get()),
        }
    }

    /// Stores the three feature words.
    pub fn set_features(&mut self, features: Features) {
        self.s_feature_compat = features.compat.bits().into();
        self.s_feature_incompat = features.incompat.bits().into();
        self.s_feature_ro_compat = features.ro_compat.bits().into();
    }

    /// Keeps a copy of what finds the journal: the `i_block` of its inode, and its size in bytes.
    pub fn back_up_journal(&mut self, i_block: &[u8; I_BLOCK_LEN], size: u64) {
        self.s_jnl_backup_type = JNL_BACKUP_BLOCKS;
        for (word, bytes) in self.s_jnl_blocks.iter_mut().zip(i_block.chunks_exact(4)) {
            *word = U32::from_bytes(bytes.first_chunk().copied().unwrap_or_default());
        }
        self.s_jnl_blocks[15] = hi32(size).into();
        self.s_jnl_blocks[16] = lo32(size).into();
    }

    /// crc32c of everything before `s_checksum`.
    pub fn checksum(&self) -> u32 {
        crc32c(!0, &self.as_bytes()[..offset_of!(SuperBlock, s_checksum)])
    }

    /// Stores the checksum if the features ask for one.
    pub fn update_checksum(&mut self) {
        if self.features().metadata_csum() {
            self.s_checksum = self.checksum().into();
        }
    }

    /// The copy that a group holds. Only the primary superblock says "clean": a file system whose
    /// copy is brought back must be checked.
    #[must_use]
    pub fn backup(&self, group: GroupNr) -> Self {
        let mut copy = *self;
        copy.s_state = 0.into();
        // As mke2fs: a number with more than 16 bits is not stored.
        copy.s_block_group_nr = u16::try_from(group.0).unwrap_or(u16::MAX).into();
        copy.update_checksum();
        copy
    }

    /// The seed of all metadata checksums; `None` without `metadata_csum`.
    ///
    /// The group descriptors' crc16 (`uninit_bg`) uses the UUID itself instead.
    pub fn csum_seed(&self) -> Option<CsumSeed> {
        self.features().metadata_csum().then(|| self.seed())
    }

    /// The seed itself, whether or not metadata is summed: `ea_inode` value hashes always use it.
    pub fn seed(&self) -> CsumSeed {
        if self.features().incompat.contains(Incompat::CSUM_SEED) {
            CsumSeed(self.s_checksum_seed.get())
        } else {
            CsumSeed::from_uuid(&self.s_uuid)
        }
    }

    /// Keeps the seed of checksums as it is, whatever becomes of the UUID.
    pub fn store_seed(&mut self) {
        self.s_checksum_seed = self.seed().0.into();
        let mut features = self.features();
        features.incompat.insert(Incompat::CSUM_SEED);
        self.set_features(features);
    }

    /// Whether checksums of metadata or of descriptors, or hashes of attributes, depend on the
    /// UUID.
    pub fn depends_on_uuid(&self) -> bool {
        let features = self.features();
        let is_stored = features.incompat.contains(Incompat::CSUM_SEED);
        let of_descriptors = features.ro_compat.contains(RoCompat::GDT_CSUM);
        match features.metadata_csum() {
            true => !is_stored,
            false => of_descriptors || !is_stored && features.incompat.contains(Incompat::EA_INODE),
        }
    }

    /// Stores another UUID. What [`SuperBlock::depends_on_uuid`] says must be made anew.
    ///
    /// # Errors
    /// [`UuidInUse`] if something else depends on it; nothing changes then.
    pub fn set_uuid(&mut self, uuid: [u8; 16]) -> Result<(), UuidInUse> {
        let in_use = |feature, why| Err(UuidInUse { feature, why });
        if self.s_uuid == uuid {
            return Ok(());
        }
        if self.features().compat.contains(Compat::STABLE_INODES) {
            return in_use(
                "stable_inodes",
                "keys of encrypted files depend on the UUID",
            );
        }
        if self.s_journal_dev.get() != 0 {
            return in_use(
                "has_journal",
                "an external journal names its users by the UUID",
            );
        }
        self.s_uuid = uuid;
        Ok(())
    }

    /// Total blocks; the high word counts only with `64bit`.
    pub fn blocks_count(&self) -> u64 {
        self.wide(self.s_blocks_count_lo, self.s_blocks_count_hi)
    }

    /// Blocks only root may take.
    pub fn reserved_blocks_count(&self) -> u64 {
        self.wide(self.s_r_blocks_count_lo, self.s_r_blocks_count_hi)
    }

    /// Free blocks (clusters × ratio with `bigalloc`), as recorded.
    pub fn free_blocks_count(&self) -> u64 {
        self.wide(self.s_free_blocks_count_lo, self.s_free_blocks_count_hi)
    }

    /// Stores the number of free blocks.
    pub fn set_free_blocks_count(&mut self, blocks: u64) {
        self.s_free_blocks_count_lo = lo32(blocks).into();
        self.s_free_blocks_count_hi = hi32(blocks).into();
    }

    /// How directory hashes take the bytes of names.
    ///
    /// The kernel's rule: the unsigned flag decides; with neither flag set the platform's `char`
    /// would, which is signed on the machines that wrote such images.
    pub fn hash_sign(&self) -> CharSign {
        match self.s_flags.get() & FLAGS_UNSIGNED_HASH {
            0 => CharSign::Signed,
            _ => CharSign::Unsigned,
        }
    }

    /// The directory hash seed as host words.
    pub fn hash_seed(&self) -> [u32; 4] {
        self.s_hash_seed.map(U32::get)
    }

    fn wide(&self, lo: U32, hi: U32) -> u64 {
        let hi = if self.features().incompat.contains(Incompat::BIT64) {
            hi.get()
        } else {
            0
        };
        join32(lo, hi)
    }
}
