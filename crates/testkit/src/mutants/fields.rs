//! The fields of every structure by their names in the format; where they lie, the format's own
//! crate says.

use std::mem::{offset_of, size_of};

use uext4_ondisk::dir_entry::{DirEntryHeader, DirEntryTail};
use uext4_ondisk::extent::{ExtentHeader, ExtentIdx, RawExtent};
use uext4_ondisk::group_desc::RawGroupDesc;
use uext4_ondisk::htree::{DxCountLimit, DxEntry, DxRootInfo, DxTail};
use uext4_ondisk::inode::RawInode;
use uext4_ondisk::journal::{
    BlockTag, BlockTag3, CommitBlock, JournalHeader, JournalSuperblock, RevokeHeader,
};
use uext4_ondisk::mmp::MmpBlock;
use uext4_ondisk::orphan::OrphanBlockTail;
use uext4_ondisk::quota::{QuotaHeader, QuotaLeafHeader, RawQuotaEntry};
use uext4_ondisk::superblock::SuperBlock;
use uext4_ondisk::xattr::{RawXattrEntry, XattrBlockHeader};

/// The order of the bytes of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The lowest first.
    Little,
    /// The highest first: in the journal.
    Big,
}

/// A field of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name in the format.
    pub name: &'static str,
    /// Its first byte in the structure.
    pub at: usize,
    /// Its bytes.
    pub len: usize,
    /// Their order.
    pub order: Order,
}

/// The bytes of the field that a function returns.
const fn len_of<S, F>(_: fn(&S) -> &F) -> usize {
    size_of::<F>()
}

macro_rules! fields {
    ($order:ident $structure:ident: $($field:ident)*) => {
        &[$(Field {
            name: stringify!($field),
            at: offset_of!($structure, $field),
            len: len_of(|structure: &$structure| &structure.$field),
            order: Order::$order,
        }),*]
    };
}

pub(super) const SUPERBLOCK: &[Field] = fields!(Little SuperBlock:
    s_inodes_count s_blocks_count_lo s_r_blocks_count_lo s_free_blocks_count_lo
    s_free_inodes_count s_first_data_block s_log_block_size s_log_cluster_size s_blocks_per_group
    s_clusters_per_group s_inodes_per_group s_mtime s_wtime s_mnt_count s_max_mnt_count s_magic
    s_state s_errors s_minor_rev_level s_lastcheck s_checkinterval s_creator_os s_rev_level
    s_def_resuid s_def_resgid s_first_ino s_inode_size s_block_group_nr s_feature_compat
    s_feature_incompat s_feature_ro_compat s_uuid s_volume_name s_last_mounted
    s_algorithm_usage_bitmap s_prealloc_blocks s_prealloc_dir_blocks s_reserved_gdt_blocks
    s_journal_uuid s_journal_inum s_journal_dev s_last_orphan s_hash_seed s_def_hash_version
    s_jnl_backup_type s_desc_size s_default_mount_opts s_first_meta_bg s_mkfs_time s_jnl_blocks
    s_blocks_count_hi s_r_blocks_count_hi s_free_blocks_count_hi s_min_extra_isize
    s_want_extra_isize s_flags s_raid_stride s_mmp_interval s_mmp_block s_raid_stripe_width
    s_log_groups_per_flex s_checksum_type s_encryption_level s_reserved_pad s_kbytes_written
    s_snapshot_inum s_snapshot_id s_snapshot_r_blocks_count s_snapshot_list s_error_count
    s_first_error_time s_first_error_ino s_first_error_block s_first_error_func s_first_error_line
    s_last_error_time s_last_error_ino s_last_error_line s_last_error_block s_last_error_func
    s_mount_opts s_usr_quota_inum s_grp_quota_inum s_overhead_clusters s_backup_bgs
    s_encrypt_algos s_encrypt_pw_salt s_lpf_ino s_prj_quota_inum s_checksum_seed s_wtime_hi
    s_mtime_hi s_mkfs_time_hi s_lastcheck_hi s_first_error_time_hi s_last_error_time_hi
    s_first_error_errcode s_last_error_errcode s_encoding s_encoding_flags s_orphan_file_inum
    s_reserved s_checksum);

pub(super) const DESCRIPTOR: &[Field] = fields!(Little RawGroupDesc:
    bg_block_bitmap_lo bg_inode_bitmap_lo bg_inode_table_lo bg_free_blocks_count_lo
    bg_free_inodes_count_lo bg_used_dirs_count_lo bg_flags bg_exclude_bitmap_lo
    bg_block_bitmap_csum_lo bg_inode_bitmap_csum_lo bg_itable_unused_lo bg_checksum
    bg_block_bitmap_hi bg_inode_bitmap_hi bg_inode_table_hi bg_free_blocks_count_hi
    bg_free_inodes_count_hi bg_used_dirs_count_hi bg_itable_unused_hi bg_exclude_bitmap_hi
    bg_block_bitmap_csum_hi bg_inode_bitmap_csum_hi bg_reserved);

/// Without `i_block`, which is a structure of its own.
pub(super) const INODE: &[Field] = fields!(Little RawInode:
    i_mode i_uid i_size_lo i_atime i_ctime i_mtime i_dtime i_gid i_links_count i_blocks_lo i_flags
    i_version i_generation i_file_acl_lo i_size_high i_obso_faddr i_blocks_high i_file_acl_high
    i_uid_high i_gid_high i_checksum_lo i_reserved i_extra_isize i_checksum_hi i_ctime_extra
    i_mtime_extra i_atime_extra i_crtime i_crtime_extra i_version_hi i_projid);

/// The first byte of `i_block`.
pub(super) const I_BLOCK: usize = offset_of!(RawInode, i_block);

pub(super) const EXTENT_HEADER: &[Field] = fields!(Little ExtentHeader:
    eh_magic eh_entries eh_max eh_depth eh_generation);
pub(super) const EXTENT: &[Field] = fields!(Little RawExtent:
    ee_block ee_len ee_start_hi ee_start_lo);
pub(super) const EXTENT_INDEX: &[Field] = fields!(Little ExtentIdx:
    ei_block ei_leaf_lo ei_leaf_hi ei_unused);

pub(super) const RECORD: &[Field] = fields!(Little DirEntryHeader:
    inode rec_len name_len file_type);
pub(super) const RECORD_TAIL: &[Field] = fields!(Little DirEntryTail:
    det_reserved_zero1 det_rec_len det_reserved_zero2 det_reserved_ft det_checksum);
pub(super) const DX_INFO: &[Field] = fields!(Little DxRootInfo:
    reserved_zero hash_version info_length indirect_levels unused_flags);
pub(super) const DX_COUNT: &[Field] = fields!(Little DxCountLimit: limit count);
pub(super) const DX_ENTRY: &[Field] = fields!(Little DxEntry: hash block);
pub(super) const DX_TAIL: &[Field] = fields!(Little DxTail: dt_reserved dt_checksum);

pub(super) const XATTR_HEADER: &[Field] = fields!(Little XattrBlockHeader:
    h_magic h_refcount h_blocks h_hash h_checksum h_reserved);
pub(super) const XATTR_ENTRY: &[Field] = fields!(Little RawXattrEntry:
    e_name_len e_name_index e_value_offs e_value_inum e_value_size e_hash);

pub(super) const QUOTA_HEADER: &[Field] = fields!(Little QuotaHeader:
    dqh_magic dqh_version dqi_bgrace dqi_igrace dqi_flags dqi_blocks dqi_free_blk dqi_free_entry);
pub(super) const QUOTA_LEAF: &[Field] = fields!(Little QuotaLeafHeader:
    dqdh_next_free dqdh_prev_free dqdh_entries dqdh_pad1 dqdh_pad2);
pub(super) const QUOTA_ENTRY: &[Field] = fields!(Little RawQuotaEntry:
    dqb_id dqb_pad dqb_ihardlimit dqb_isoftlimit dqb_curinodes dqb_bhardlimit dqb_bsoftlimit
    dqb_curspace dqb_btime dqb_itime);

pub(super) const ORPHAN_TAIL: &[Field] = fields!(Little OrphanBlockTail: ob_magic ob_checksum);
pub(super) const MMP: &[Field] = fields!(Little MmpBlock:
    mmp_magic mmp_seq mmp_time mmp_nodename mmp_bdevname mmp_check_interval mmp_pad1 mmp_pad2
    mmp_checksum);

pub(super) const JOURNAL_HEADER: &[Field] = fields!(Big JournalHeader:
    h_magic h_blocktype h_sequence);
/// Behind the header, which is a structure of its own.
pub(super) const JOURNAL_SUPERBLOCK: &[Field] = fields!(Big JournalSuperblock:
    s_blocksize s_maxlen s_first s_sequence s_start s_errno s_feature_compat s_feature_incompat
    s_feature_ro_compat s_uuid s_nr_users s_dynsuper s_max_transaction s_max_trans_data
    s_checksum_type s_padding2 s_num_fc_blks s_head s_padding s_checksum);
pub(super) const TAG3: &[Field] = fields!(Big BlockTag3:
    t_blocknr t_flags t_blocknr_high t_checksum);
pub(super) const TAG: &[Field] = fields!(Big BlockTag: t_blocknr t_checksum t_flags);
pub(super) const REVOKE: &[Field] = fields!(Big RevokeHeader: r_count);
pub(super) const COMMIT: &[Field] = fields!(Big CommitBlock:
    h_chksum_type h_chksum_size h_padding h_chksum h_commit_sec h_commit_nsec);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_the_superblock_cover_it_whole() {
        let mut end = 0;
        for field in SUPERBLOCK {
            assert_eq!(field.at, end, "before {}", field.name);
            end = field.at + field.len;
        }
        assert_eq!(end, 1024);
    }
}
