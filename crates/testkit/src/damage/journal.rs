//! Damage to the journal: its superblock, its inode, and what the superblock says of it.

use uext4_ondisk::Ino;
use uext4_ondisk::inode::InodeFlags;
use uext4_ondisk::journal::JournalSuperblock;
use zerocopy::FromBytes;

use super::target::put32;
use super::{Kind, Target};

/// Changes the superblock of the journal.
fn head(t: &mut Target<'_>, change: impl FnOnce(&mut JournalSuperblock)) -> Option<()> {
    let place = t.clean.known(Ino::JOURNAL)?.blocks.first()?.pblk;
    let is_summed = t.seed().is_some();
    let (journal, _) = JournalSuperblock::mut_from_prefix(t.block(place)).ok()?;
    change(journal);
    if is_summed && journal.checksum_version() > 1 {
        journal.s_checksum = journal.checksum().into();
    }
    Some(())
}

const UNUSED: &str = "the log is empty, and the kernel sets the field when it writes";

pub(super) const KINDS: &[Kind] = &[
    Kind::new("journal-magic", "has_journal", |t| {
        head(t, |j| j.s_header.h_magic = 5.into())
    }),
    Kind::new("journal-block-type", "has_journal", |t| {
        head(t, |j| j.s_header.h_blocktype = 9.into())
    }),
    Kind::new("journal-block-type-1", "has_journal", |t| {
        head(t, |j| j.s_header.h_blocktype = 3.into())
    }),
    Kind::new("journal-version-1", "has_journal,64bit", |t| {
        let place = t.clean.known(Ino::JOURNAL)?.blocks.first()?.pblk;
        let block = t.block(place);
        put32(block, 4, 3_u32.to_be());
        block[0x24..1024].fill(0);
        Some(())
    })
    .unseen("e2fsck minds the version only where there are fields of another"),
    Kind::new("journal-superblock-zeroed", "has_journal", |t| {
        let place = t.clean.known(Ino::JOURNAL)?.blocks.first()?.pblk;
        t.block(place).fill(0);
        Some(())
    }),
    Kind::new("journal-superblock-random-bytes", "has_journal", |t| {
        let place = t.clean.known(Ino::JOURNAL)?.blocks.first()?.pblk;
        let mut random = t.random.clone();
        t.block(place).fill_with(|| random.next_u64() as u8);
        Some(())
    }),
    Kind::new("journal-checksum", "has_journal,metadata_csum", |t| {
        head(t, |j| j.s_checksum = (j.s_checksum.get() ^ 0x55).into())?;
        let place = t.clean.known(Ino::JOURNAL)?.blocks.first()?.pblk;
        t.block(place)[0xFD] ^= 0x55;
        Some(())
    })
    .unseen("journals of new file systems carry no checksum yet"),
    Kind::new("journal-block-size", "has_journal", |t| {
        head(t, |j| j.s_blocksize = (j.s_blocksize.get() * 2).into())
    }),
    Kind::new("journal-length", "has_journal", |t| {
        head(t, |j| j.s_maxlen = (j.s_maxlen.get() * 4).into())
    }),
    Kind::new("journal-length-short", "has_journal", |t| {
        head(t, |j| j.s_maxlen = 100.into())
    })
    .unseen("e2fsck takes the length from the superblock of the journal"),
    Kind::new("journal-length-zero", "has_journal", |t| {
        head(t, |j| j.s_maxlen = 0.into())
    })
    .unseen(UNUSED),
    Kind::new("journal-first-block", "has_journal", |t| {
        head(t, |j| j.s_first = 0x7FFF_FFFF.into())
    })
    .unseen(UNUSED),
    Kind::new("journal-first-block-zero", "has_journal", |t| {
        head(t, |j| j.s_first = 0.into())
    })
    .unseen(UNUSED),
    Kind::new("journal-start", "has_journal", |t| {
        head(t, |j| j.s_start = 7.into())
    })
    .unseen("a log that begins where no transaction is has been replayed"),
    Kind::new("journal-start-outside", "has_journal", |t| {
        head(t, |j| j.s_start = 0x7FFF_FFFF.into())
    }),
    Kind::new("journal-error-number", "has_journal", |t| {
        head(t, |j| j.s_errno = 5.into())
    })
    .unseen("a note of the kernel that an examination is due"),
    Kind::new("journal-unknown-feature", "has_journal", |t| {
        head(t, |j| {
            j.s_feature_incompat = (j.s_feature_incompat.get() | 0x4000_0000).into();
        })
    }),
    Kind::new("journal-unknown-compatible-feature", "has_journal", |t| {
        head(t, |j| {
            j.s_feature_compat = (j.s_feature_compat.get() | 0x4000_0000).into()
        })
    })
    .unseen("may be ignored"),
    Kind::new("journal-fast-commit-blocks", "fast_commit", |t| {
        head(t, |j| {
            j.s_feature_incompat = (j.s_feature_incompat.get() | 0x20).into();
            j.s_num_fc_blks = 0x7FFF_FFFF.into();
        })
    })
    .unseen("e2fsck reads the area of fast commits only when it replays the log"),
    Kind::new("journal-short-with-fast-commits", "has_journal", |t| {
        head(t, |j| {
            j.s_feature_incompat = (j.s_feature_incompat.get() | 0x20).into();
            j.s_num_fc_blks = (j.s_maxlen.get() - 1023).into();
        })
    }),
    Kind::new("journal-users", "has_journal", |t| {
        head(t, |j| j.s_nr_users = 77.into())
    }),
    Kind::new("journal-two-users", "has_journal", |t| {
        head(t, |j| j.s_nr_users = 2.into())
    }),
    Kind::new("journal-needs-recovery-though-empty", "has_journal", |t| {
        t.superblock(|sb| sb.s_feature_incompat = (sb.s_feature_incompat.get() | 0x4).into())
    })
    .unseen("with -n e2fsck does not look whether the log is empty"),
    Kind::new("journal-inode-zeroed", "has_journal", |t| {
        t.inode_bytes(Ino::JOURNAL, |bytes| bytes.fill(0))
    }),
    Kind::new("journal-inode-mode", "has_journal", |t| {
        t.inode(Ino::JOURNAL, |raw| raw.i_mode = 0.into())
    }),
    Kind::new("journal-inode-type", "has_journal", |t| {
        t.inode(Ino::JOURNAL, |raw| raw.i_mode = 0o040_600.into())
    }),
    Kind::new("journal-inode-links", "has_journal", |t| {
        t.inode(Ino::JOURNAL, |raw| raw.i_links_count = 0.into())
    })
    .unseen("of ext3 e2fsck takes the copy in the superblock, without a word"),
    Kind::new("journal-inode-size", "has_journal", |t| {
        t.inode(Ino::JOURNAL, |raw| raw.i_size_lo = 5000.into())
    }),
    Kind::new("journal-inode-blocks", "has_journal", |t| {
        t.inode(Ino::JOURNAL, |raw| raw.i_block.fill(0xFF))
    }),
    Kind::new("journal-inode-without-blocks", "has_journal", |t| {
        t.inode(Ino::JOURNAL, |raw| raw.i_block.fill(0))
    }),
    Kind::new("journal-inode-encrypted", "has_journal", |t| {
        t.inode(Ino::JOURNAL, |raw| {
            raw.i_flags = (raw.i_flags.get() | InodeFlags::ENCRYPT.bits()).into();
        })
    })
    .unseen("of ext3 e2fsck takes the copy in the superblock, without a word"),
    Kind::new("journal-inode-in-a-table", "has_journal,^extent", |t| {
        let table = t.clean.groups[0].inode_table.0 as u32;
        t.inode(Ino::JOURNAL, |raw| put32(&mut raw.i_block, 8, table))
    }),
    Kind::new(
        "journal-inode-size-within-a-block",
        "has_journal,extent",
        |t| {
            t.inode(Ino::JOURNAL, |raw| {
                raw.i_size_lo = (raw.i_size_lo.get() + 4).into()
            })
        },
    ),
    Kind::new("journal-number-zero", "has_journal", |t| {
        t.superblock(|sb| sb.s_journal_inum = 0.into())
    }),
    Kind::new("journal-number-of-a-file", "has_journal", |t| {
        let ino = t.with_blocks()?.ino;
        t.hurt.inodes.insert(ino);
        t.superblock(|sb| sb.s_journal_inum = ino.0.into())
    }),
    Kind::new("journal-number-outside", "has_journal", |t| {
        t.superblock(|sb| sb.s_journal_inum = 0x7FFF_FFFF.into())
    }),
    Kind::new("journal-number-without-the-feature", "^has_journal", |t| {
        t.superblock(|sb| sb.s_journal_inum = 8.into())
    }),
    Kind::new("journal-device", "has_journal", |t| {
        t.superblock(|sb| sb.s_journal_dev = 0x0801.into())
    })
    .unseen("e2fsck takes the journal's inode where there are both"),
    Kind::new("journal-uuid", "", |t| {
        t.superblock(|sb| sb.s_journal_uuid[7] = 5)
    }),
    Kind::new(
        "journal-recovery-without-the-feature",
        "^has_journal",
        |t| t.superblock(|sb| sb.s_feature_incompat = (sb.s_feature_incompat.get() | 0x4).into()),
    ),
    Kind::new("journal-backup-of-its-map", "has_journal", |t| {
        t.superblock(|sb| sb.s_jnl_blocks[3] = 0x1234_5678.into())
    })
    .unseen("e2fsck writes the backup anew silently"),
    Kind::new("journal-inode-zeroed-with-its-backup", "has_journal", |t| {
        t.inode_bytes(Ino::JOURNAL, |bytes| bytes.fill(0))?;
        t.superblock(|sb| {
            sb.s_jnl_blocks = [0.into(); 17];
            sb.s_jnl_backup_type = 0;
        })
    }),
];
