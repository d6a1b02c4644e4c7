//! Damage to the primary superblock: each field that says something of the file system.

use uext4_ondisk::superblock::{STATE_ERROR, SUPERBLOCK_OFFSET};
use uext4_ondisk::{GroupNr, Pblk};

use super::{Kind, Target};
use crate::images::lose_superblocks;

/// Changes a field that only a backup can say again.
fn backed(
    t: &mut Target<'_>,
    change: impl FnOnce(&mut uext4_ondisk::superblock::SuperBlock),
) -> Option<()> {
    t.geometry().backup_groups().next()?;
    t.superblock(change)
}

/// Features whose layout a superblock is needed for.
const LAID_OUT: &str = "^bigalloc,^meta_bg";
/// The same of groups that are smaller than a bitmap allows.
const SUMMED: &str = "metadata_csum,^bigalloc,^meta_bg";
const NOT_CHECKED: &str = "e2fsck does not look at the field";
const UNKNOWN: &str = "a file system with unknown features";

pub(super) const KINDS: &[Kind] = &[
    Kind::new("superblock-zeroed", "", |t| {
        t.geometry().backup_groups().next()?;
        let at = SUPERBLOCK_OFFSET as usize;
        t.bytes[at..at + 1024].fill(0);
        Some(())
    }),
    Kind::new("superblock-random-bytes", "", |t| {
        t.geometry().backup_groups().next()?;
        for at in SUPERBLOCK_OFFSET as usize..SUPERBLOCK_OFFSET as usize + 1024 {
            t.bytes[at] = t.random.next_u64() as u8;
        }
        Some(())
    }),
    Kind::new("superblock-magic", "", |t| {
        backed(t, |sb| sb.s_magic = 0xEF51.into())
    }),
    Kind::new("superblock-magic-without-a-backup", "^bigalloc", |t| {
        let is_alone = t.geometry().backup_groups().next().is_none();
        is_alone.then(|| t.superblock(|sb| sb.s_magic = 0xEF51.into()))?
    }),
    Kind::new("superblock-zeroed-without-a-backup", LAID_OUT, |t| {
        let is_alone = t.geometry().backup_groups().next().is_none();
        let at = SUPERBLOCK_OFFSET as usize;
        is_alone.then(|| t.bytes[at..at + 1024].fill(0))
    }),
    Kind::new("superblock-block-size-without-a-backup", LAID_OUT, |t| {
        let is_alone = t.geometry().backup_groups().next().is_none();
        is_alone.then(|| t.superblock(|sb| sb.s_log_block_size = 9.into()))?
    }),
    Kind::new("superblock-and-backups-zeroed", SUMMED, |t| {
        t.geometry().backup_groups().next()?;
        lose_superblocks(&mut t.bytes, false);
        Some(())
    }),
    Kind::new("superblock-checksum", "metadata_csum", |t| {
        t.geometry().backup_groups().next()?;
        t.superblock(|_| ())?;
        t.bytes[SUPERBLOCK_OFFSET as usize + 0x3FC] ^= 0x55;
        Some(())
    }),
    Kind::new("superblock-checksum-type", "metadata_csum", |t| {
        backed(t, |sb| sb.s_checksum_type = 7)
    }),
    Kind::new("superblock-checksum-seed", "metadata_csum_seed", |t| {
        backed(t, |sb| {
            sb.s_checksum_seed = (sb.s_checksum_seed.get() ^ 1).into()
        })
    }),
    Kind::new(
        "superblock-uuid",
        "metadata_csum,^metadata_csum_seed",
        |t| backed(t, |sb| sb.s_uuid[3] ^= 0x10),
    ),
    Kind::new("superblock-inodes-count", "", |t| {
        backed(t, |sb| {
            sb.s_inodes_count = (sb.s_inodes_count.get() + 8).into()
        })
    }),
    Kind::new("superblock-inodes-count-zero", "", |t| {
        backed(t, |sb| sb.s_inodes_count = 0.into())
    }),
    Kind::new("superblock-blocks-count-zero", "", |t| {
        backed(t, |sb| sb.s_blocks_count_lo = 0.into())
    }),
    Kind::new("superblock-blocks-count-small", "", |t| {
        let first = t.geometry().first_data_block;
        backed(t, |sb| sb.s_blocks_count_lo = (first + 3).into())
    }),
    Kind::new("superblock-blocks-count-huge", "", |t| {
        backed(t, |sb| sb.s_blocks_count_lo = 0xFFFF_FFF0.into())
    }),
    Kind::new("superblock-blocks-count-past-the-device", "", |t| {
        let more = t.geometry().blocks_per_group.get();
        backed(t, |sb| {
            sb.s_blocks_count_lo = (sb.s_blocks_count_lo.get() + more).into()
        })
    }),
    Kind::new("superblock-reserved-blocks-count", "", |t| {
        t.superblock(|sb| sb.s_r_blocks_count_lo = (sb.s_blocks_count_lo.get() + 1).into())
    }),
    Kind::new("superblock-free-blocks-count", "", |t| {
        let more = 1 + t.random.below(9) as u32;
        t.superblock(|sb| {
            sb.s_free_blocks_count_lo = (sb.s_free_blocks_count_lo.get() + more).into();
        })
    })
    .unseen("of these counts e2fsck repairs the sum silently where the groups' are right"),
    Kind::new("superblock-free-inodes-count", "", |t| {
        let more = 1 + t.random.below(9) as u32;
        t.superblock(|sb| sb.s_free_inodes_count = (sb.s_free_inodes_count.get() + more).into())
    })
    .unseen("of these counts e2fsck repairs the sum silently where the groups' are right"),
    Kind::new("superblock-free-inodes-count-huge", "", |t| {
        t.superblock(|sb| sb.s_free_inodes_count = u32::MAX.into())
    }),
    Kind::new("superblock-first-data-block", "", |t| {
        backed(t, |sb| {
            sb.s_first_data_block = (sb.s_first_data_block.get() ^ 1).into()
        })
    }),
    Kind::new("superblock-first-data-block-huge", "", |t| {
        backed(t, |sb| sb.s_first_data_block = u32::MAX.into())
    }),
    Kind::new("superblock-block-size", "", |t| {
        backed(t, |sb| {
            sb.s_log_block_size = (sb.s_log_block_size.get() ^ 1).into()
        })
    }),
    Kind::new("superblock-block-size-huge", "", |t| {
        backed(t, |sb| sb.s_log_block_size = 31.into())
    }),
    Kind::new("superblock-cluster-size", "bigalloc", |t| {
        backed(t, |sb| {
            sb.s_log_cluster_size = (sb.s_log_cluster_size.get() + 1).into()
        })
    }),
    Kind::new("superblock-cluster-size-huge", "", |t| {
        backed(t, |sb| sb.s_log_cluster_size = 40.into())
    }),
    Kind::new("superblock-blocks-per-group-zero", "", |t| {
        backed(t, |sb| sb.s_blocks_per_group = 0.into())
    }),
    Kind::new("superblock-blocks-per-group", "", |t| {
        backed(t, |sb| {
            sb.s_blocks_per_group = (sb.s_blocks_per_group.get() / 2).into()
        })
    }),
    Kind::new("superblock-blocks-per-group-huge", "", |t| {
        backed(t, |sb| sb.s_blocks_per_group = 0x7FFF_FFF8.into())
    }),
    Kind::new("superblock-clusters-per-group", "bigalloc", |t| {
        backed(t, |sb| {
            sb.s_clusters_per_group = (sb.s_clusters_per_group.get() / 2).into()
        })
    }),
    Kind::new("superblock-inodes-per-group-zero", "", |t| {
        backed(t, |sb| sb.s_inodes_per_group = 0.into())
    }),
    Kind::new("superblock-inodes-per-group-more", "", |t| {
        t.superblock(|sb| sb.s_inodes_per_group = (sb.s_inodes_per_group.get() + 240).into())
    }),
    Kind::new("superblock-inodes-per-group-odd", "", |t| {
        t.superblock(|sb| sb.s_inodes_per_group = (sb.s_inodes_per_group.get() + 2).into())
    }),
    Kind::new("superblock-inodes-per-group", "", |t| {
        backed(t, |sb| {
            sb.s_inodes_per_group = (sb.s_inodes_per_group.get() + 8).into()
        })
    }),
    Kind::new("superblock-revision-0", "", |t| {
        backed(t, |sb| sb.s_rev_level = 0.into())
    }),
    Kind::new("superblock-revision-huge", "", |t| {
        backed(t, |sb| sb.s_rev_level = 9.into())
    }),
    Kind::new("superblock-first-inode", "", |t| {
        backed(t, |sb| sb.s_first_ino = 5.into())
    }),
    Kind::new("superblock-first-inode-huge", "", |t| {
        backed(t, |sb| sb.s_first_ino = u32::MAX.into())
    }),
    Kind::new("superblock-inode-size", "", |t| {
        backed(t, |sb| sb.s_inode_size = (sb.s_inode_size.get() * 2).into())
    }),
    Kind::new("superblock-inode-size-odd", "", |t| {
        backed(t, |sb| sb.s_inode_size = 200.into())
    }),
    Kind::new("superblock-descriptor-size", "64bit", |t| {
        backed(t, |sb| sb.s_desc_size = 72.into())
    }),
    Kind::new("superblock-descriptor-size-32", "64bit", |t| {
        backed(t, |sb| sb.s_desc_size = 32.into())
    }),
    Kind::new("superblock-descriptor-size-128", "64bit", |t| {
        backed(t, |sb| sb.s_desc_size = 128.into())
    }),
    Kind::new("superblock-descriptor-size-without-64bit", "^64bit", |t| {
        t.superblock(|sb| sb.s_desc_size = u16::MAX.into())
    }),
    Kind::new("superblock-reserved-descriptors", "", |t| {
        backed(t, |sb| {
            sb.s_reserved_gdt_blocks = (sb.s_reserved_gdt_blocks.get() ^ 3).into();
        })
    }),
    Kind::new("superblock-reserved-descriptors-huge", "", |t| {
        backed(t, |sb| sb.s_reserved_gdt_blocks = u16::MAX.into())
    }),
    Kind::new("superblock-first-meta-group", "meta_bg", |t| {
        backed(t, |sb| {
            sb.s_first_meta_bg = (sb.s_first_meta_bg.get() ^ 1).into()
        })
    }),
    Kind::new("superblock-first-meta-group-huge", "meta_bg", |t| {
        backed(t, |sb| sb.s_first_meta_bg = 0x4000_0000.into())
    }),
    Kind::new("superblock-flex-groups-huge", "flex_bg", |t| {
        t.superblock(|sb| sb.s_log_groups_per_flex = 90)
    }),
    Kind::new(
        "superblock-flex-groups-without-the-feature",
        "^flex_bg",
        |t| t.superblock(|sb| sb.s_log_groups_per_flex = 255),
    ),
    Kind::new("superblock-flex-groups", "flex_bg", |t| {
        t.superblock(|sb| sb.s_log_groups_per_flex = 1)
    })
    .unseen("a hint for the allocator"),
    Kind::new("superblock-backup-groups", "sparse_super2", |t| {
        t.superblock(|sb| sb.s_backup_bgs = [1.into(), 2.into()])
    }),
    Kind::new(
        "superblock-backup-groups-past-the-last",
        "sparse_super2",
        |t| {
            let groups = t.geometry().groups_count.get();
            t.superblock(|sb| sb.s_backup_bgs[1] = (groups + 4).into())
        },
    )
    .unseen("e2fsck counts the blocks of no backup there"),
    Kind::new(
        "superblock-without-sparse-super",
        "sparse_super,^meta_bg",
        |t| {
            backed(t, |sb| {
                sb.s_feature_ro_compat = (sb.s_feature_ro_compat.get() & !1).into();
            })
        },
    )
    .unseen("of two groups both have a backup with the feature and without"),
    Kind::new("superblock-without-extents", "extent", |t| {
        t.superblock(|sb| sb.s_feature_incompat = (sb.s_feature_incompat.get() & !0x40).into())
    })
    .unseen("no file with extents in the image"),
    Kind::new("superblock-without-filetype", "filetype", |t| {
        t.superblock(|sb| sb.s_feature_incompat = (sb.s_feature_incompat.get() & !0x2).into())
    }),
    Kind::new("superblock-without-64bit", "64bit", |t| {
        backed(t, |sb| {
            sb.s_feature_incompat = (sb.s_feature_incompat.get() & !0x80).into()
        })
    }),
    Kind::new("superblock-without-flex-groups", "flex_bg", |t| {
        t.superblock(|sb| sb.s_feature_incompat = (sb.s_feature_incompat.get() & !0x200).into())
    })
    .unseen("mends itself where all tables lie in their own groups"),
    Kind::new("superblock-without-inline-data", "inline_data", |t| {
        t.superblock(|sb| sb.s_feature_incompat = (sb.s_feature_incompat.get() & !0x8000).into())
    }),
    Kind::new("superblock-without-ea-inode", "ea_inode", |t| {
        t.superblock(|sb| sb.s_feature_incompat = (sb.s_feature_incompat.get() & !0x400).into())
    })
    .unseen("e2fsck reads values in inodes of their own without the feature"),
    Kind::new("superblock-without-attributes", "ext_attr", |t| {
        t.superblock(|sb| sb.s_feature_compat = (sb.s_feature_compat.get() & !0x8).into())
    })
    .unseen("e2fsck sets the feature silently where attributes are in inodes only"),
    Kind::new("superblock-without-journal", "has_journal", |t| {
        t.superblock(|sb| sb.s_feature_compat = (sb.s_feature_compat.get() & !0x4).into())
    }),
    Kind::new("superblock-without-resize-inode", "resize_inode", |t| {
        t.superblock(|sb| sb.s_feature_compat = (sb.s_feature_compat.get() & !0x10).into())
    }),
    Kind::new("superblock-without-index", "dir_index", |t| {
        t.superblock(|sb| sb.s_feature_compat = (sb.s_feature_compat.get() & !0x20).into())
    })
    .unseen("no indexed directory in the image"),
    Kind::new("superblock-without-checksums", "metadata_csum", |t| {
        t.superblock(|sb| {
            sb.s_feature_ro_compat = (sb.s_feature_ro_compat.get() & !0x400).into();
        })
    }),
    Kind::new(
        "superblock-with-checksums",
        "^metadata_csum,^uninit_bg",
        |t| {
            t.superblock(|sb| {
                sb.s_feature_ro_compat = (sb.s_feature_ro_compat.get() | 0x400).into();
                sb.s_checksum_type = 1;
            })
        },
    ),
    Kind::new("superblock-both-kinds-of-checksums", "metadata_csum", |t| {
        t.superblock(|sb| {
            sb.s_feature_ro_compat = (sb.s_feature_ro_compat.get() | 0x10).into();
        })
    }),
    Kind::new("superblock-without-bigalloc", "bigalloc", |t| {
        backed(t, |sb| {
            sb.s_feature_ro_compat = (sb.s_feature_ro_compat.get() & !0x200).into();
        })
    }),
    Kind::new("superblock-without-quota", "quota", |t| {
        t.superblock(|sb| {
            sb.s_feature_ro_compat = (sb.s_feature_ro_compat.get() & !0x100).into();
        })
    }),
    Kind::new("superblock-without-large-file", "large_file", |t| {
        t.superblock(|sb| sb.s_feature_ro_compat = (sb.s_feature_ro_compat.get() & !0x2).into())
    })
    .unseen("no file of 2 GiB in the image"),
    Kind::new("superblock-unknown-incompatible-feature", "", |t| {
        t.superblock(|sb| {
            sb.s_feature_incompat = (sb.s_feature_incompat.get() | 0x4000_0000).into();
        })
    })
    .hopeless(UNKNOWN),
    Kind::new("superblock-unknown-read-only-feature", "", |t| {
        t.superblock(|sb| {
            sb.s_feature_ro_compat = (sb.s_feature_ro_compat.get() | 0x4000_0000).into();
        })
    })
    .hopeless(UNKNOWN),
    Kind::new("superblock-unknown-compatible-feature", "", |t| {
        t.superblock(|sb| {
            sb.s_feature_compat = (sb.s_feature_compat.get() | 0x4000_0000).into();
        })
    })
    .hopeless(UNKNOWN),
    Kind::new("superblock-extents-on-the-hurd", "", |t| {
        t.superblock(|sb| sb.s_creator_os = 1.into())
    })
    .unseen("e2fsck minds the other system only where fields of it are used"),
    Kind::new("superblock-state-errors", "", |t| {
        t.superblock(|sb| sb.s_state = (sb.s_state.get() | STATE_ERROR).into())
    })
    .unseen("with -f the state only says that an examination is due"),
    Kind::new("superblock-last-check-in-the-future", "", |t| {
        t.superblock(|sb| sb.s_lastcheck_hi = 3)
    })
    .unseen("e2fsck reads the low half of this time alone"),
    Kind::new("superblock-mount-time-in-the-future", "", |t| {
        t.superblock(|sb| sb.s_mtime = 0xFFFF_0000.into())
    }),
    Kind::new("superblock-write-time-in-the-future", "", |t| {
        t.superblock(|sb| sb.s_wtime = 0xFFFF_0000.into())
    }),
    Kind::new("superblock-overhead", "", |t| {
        t.superblock(|sb| sb.s_overhead_clusters = 7.into())
    })
    .unseen("e2fsck writes the overhead anew where it knows it better, silently"),
    Kind::new("superblock-both-signs-of-hashes", "", |t| {
        t.superblock(|sb| sb.s_flags = 3.into())
    })
    .unseen(NOT_CHECKED),
    Kind::new("superblock-hash-version", "", |t| {
        t.superblock(|sb| sb.s_def_hash_version = 77)
    })
    .unseen("e2fsck sets a known one only when it builds an index"),
    Kind::new("superblock-minimal-extra-size", "", |t| {
        t.superblock(|sb| sb.s_min_extra_isize = 4000.into())
    })
    .unseen(NOT_CHECKED),
    Kind::new("superblock-wanted-extra-size", "", |t| {
        t.superblock(|sb| sb.s_want_extra_isize = 4000.into())
    })
    .unseen(NOT_CHECKED),
    Kind::new("superblock-encoding", "casefold", |t| {
        t.superblock(|sb| sb.s_encoding = 0x1234.into())
    })
    .hopeless("the rules of names are unknown"),
    Kind::new("superblock-group-number", "", |t| {
        t.superblock(|sb| sb.s_block_group_nr = 2.into())
    })
    .unseen(NOT_CHECKED),
    Kind::new(
        "superblock-and-first-backup-zeroed",
        "sparse_super,^sparse_super2",
        |t| {
            // The third is there still.
            t.geometry().backup_groups().nth(1)?;
            let at = t.clean.place(t.geometry().group_start(GroupNr(1)));
            t.bytes.get_mut(at..at + 1024)?.fill(0);
            let at = SUPERBLOCK_OFFSET as usize;
            t.bytes[at..at + 1024].fill(0);
            Some(())
        },
    ),
    Kind::new("superblock-and-descriptors-zeroed", "^meta_bg", |t| {
        t.geometry().backup_groups().next()?;
        let at = SUPERBLOCK_OFFSET as usize;
        t.bytes[at..at + 1024].fill(0);
        for index in 0..t.geometry().gdt_blocks() {
            t.block(t.geometry().gdt_block(index)).fill(0);
        }
        Some(())
    }),
    Kind::new("superblock-backup-zeroed", "", |t| {
        let group = t.geometry().backup_groups().next()?;
        let Pblk(start) = t.geometry().group_start(group);
        t.block(Pblk(start)).fill(0);
        Some(())
    })
    .unseen("e2fsck writes backups anew only when it writes the superblock"),
    Kind::new(
        "superblock-reserved-descriptors-more",
        "resize_inode",
        |t| {
            let most = t.geometry().block_size.bytes() / 4;
            t.superblock(|sb| {
                let reserved = u32::from(sb.s_reserved_gdt_blocks.get()) + 137;
                sb.s_reserved_gdt_blocks = (reserved.min(most) as u16).into();
            })
        },
    ),
    Kind::new(
        "orphan-file-number-without-the-feature",
        "^orphan_file",
        |t| {
            let ino = t.with_blocks()?.ino;
            t.superblock(|sb| sb.s_orphan_file_inum = ino.0.into())
        },
    ),
    Kind::new(
        "orphan-file-number-of-the-root-without-the-feature",
        "^orphan_file",
        |t| t.superblock(|sb| sb.s_orphan_file_inum = 2.into()),
    ),
];
