//! The settings in the superblock and in the journal: the rest of what `dumpe2fs -h` shows.

use uext4::Image;
use uext4_ondisk::features::{Compat, Incompat};
use uext4_ondisk::journal::JournalSuperblock;
use uext4_ondisk::mmp::{MMP_LEN, MmpBlock};
use uext4_ondisk::superblock::{JNL_BACKUP_BLOCKS, SuperBlock};
use uext4_ondisk::{Ino, Pblk};

use super::{Fact, c_text};
use crate::show::uuid_text;
use crate::tune_names::{FLAGS, MOUNT_DATA_MODE, MOUNT_OPTIONS};

type Facts = Vec<(&'static str, Fact)>;

fn number(value: impl Into<u64>) -> Fact {
    Fact::Number(value.into())
}

fn text(value: impl Into<String>) -> Fact {
    Fact::Text(value.into())
}

fn time(lo: u32, hi: u8) -> Fact {
    Fact::Time(i64::from(hi) << 32 | i64::from(lo))
}

/// What a user can set, and the numbers that follow from it.
pub fn settings(fs: &Image) -> Facts {
    let sb = fs.superblock();
    let mut facts = vec![
        ("magic", Fact::Hex(sb.s_magic.get())),
        ("revision", number(sb.s_rev_level.get())),
        ("flags", text(flags(sb))),
        ("default_mount_options", text(mount_options(sb))),
        ("mount_options", text(c_text(&sb.s_mount_opts))),
        ("errors_behavior", text(errors(sb))),
        ("creator_os", text(creator(sb))),
        ("overhead_clusters", number(sb.s_overhead_clusters.get())),
        (
            "inode_blocks_per_group",
            number(fs.geometry().itable_blocks()),
        ),
        (
            "clusters_per_group",
            number(fs.geometry().clusters_per_group.get()),
        ),
        ("first_meta_group", number(sb.s_first_meta_bg.get())),
        ("raid_stride", number(sb.s_raid_stride.get())),
        ("raid_stripe_width", number(sb.s_raid_stripe_width.get())),
        ("reserved_uid", number(sb.s_def_resuid.get())),
        ("reserved_gid", number(sb.s_def_resgid.get())),
        ("required_extra_isize", number(sb.s_min_extra_isize.get())),
        ("desired_extra_isize", number(sb.s_want_extra_isize.get())),
        ("max_mount_count", max_mounts(sb)),
        ("check_interval", number(sb.s_checkinterval.get())),
        ("next_check", next_check(sb)),
        ("first_orphan", number(sb.s_last_orphan.get())),
        ("orphan_file_inode", number(sb.s_orphan_file_inum.get())),
        ("user_quota_inode", number(sb.s_usr_quota_inum.get())),
        ("group_quota_inode", number(sb.s_grp_quota_inum.get())),
        ("project_quota_inode", number(sb.s_prj_quota_inum.get())),
        ("encoding", text(encoding(sb))),
        ("encoding_flags", number(sb.s_encoding_flags.get())),
        ("encryption_level", number(sb.s_encryption_level)),
        ("checksum_type", text(checksum_type(sb))),
        ("checksum", number(sb.s_checksum.get())),
        ("checksum_seed", number(sb.seed().0)),
    ];
    facts.extend(errors_noted(sb));
    facts.extend(mmp(fs));
    facts.extend(journal(fs));
    facts
}

fn names(bits: u32, table: &[(&'static str, u32)]) -> Vec<&'static str> {
    let set = table.iter().filter(|(_, bit)| bits & bit == *bit);
    set.map(|(name, _)| *name).collect()
}

fn flags(sb: &SuperBlock) -> String {
    names(sb.s_flags.get(), &FLAGS).join(",")
}

fn mount_options(sb: &SuperBlock) -> String {
    let bits = sb.s_default_mount_opts.get();
    let is_set = |&&(_, bit): &&(&str, u32)| match bit & MOUNT_DATA_MODE {
        0 => bits & bit != 0,
        mode => bits & MOUNT_DATA_MODE == mode,
    };
    let set = MOUNT_OPTIONS.iter().filter(is_set);
    set.map(|(name, _)| *name).collect::<Vec<_>>().join(",")
}

fn errors(sb: &SuperBlock) -> String {
    match sb.s_errors.get() {
        1 => "continue".to_owned(),
        2 => "remount-ro".to_owned(),
        3 => "panic".to_owned(),
        other => format!("unknown ({other})"),
    }
}

fn creator(sb: &SuperBlock) -> String {
    match sb.s_creator_os.get() {
        0 => "Linux".to_owned(),
        1 => "Hurd".to_owned(),
        2 => "Masix".to_owned(),
        3 => "FreeBSD".to_owned(),
        4 => "Lites".to_owned(),
        other => format!("unknown ({other})"),
    }
}

/// -1 is never, as the field has it.
fn max_mounts(sb: &SuperBlock) -> Fact {
    Fact::Signed(sb.s_max_mnt_count.get().cast_signed().into())
}

fn next_check(sb: &SuperBlock) -> Fact {
    let checked = i64::from(sb.s_lastcheck_hi) << 32 | i64::from(sb.s_lastcheck.get());
    match sb.s_checkinterval.get() {
        0 => Fact::Time(0),
        interval => Fact::Time(checked + i64::from(interval)),
    }
}

fn encoding(sb: &SuperBlock) -> String {
    let has = sb.features().incompat.contains(Incompat::CASEFOLD);
    match (has, sb.s_encoding.get()) {
        (false, _) => "none".to_owned(),
        (true, 1) => "utf8-12.1".to_owned(),
        (true, other) => format!("unknown ({other})"),
    }
}

fn checksum_type(sb: &SuperBlock) -> String {
    match (sb.features().metadata_csum(), sb.s_checksum_type) {
        (false, _) => "none".to_owned(),
        (true, 1) => "crc32c".to_owned(),
        (true, other) => format!("unknown ({other})"),
    }
}

/// The first and the last error that the kernel noted.
fn errors_noted(sb: &SuperBlock) -> Facts {
    if sb.s_error_count.get() == 0 {
        return Vec::new();
    }
    vec![
        (
            "first_error_time",
            time(sb.s_first_error_time.get(), sb.s_first_error_time_hi),
        ),
        ("first_error_function", text(c_text(&sb.s_first_error_func))),
        ("first_error_line", number(sb.s_first_error_line.get())),
        ("first_error_inode", number(sb.s_first_error_ino.get())),
        ("first_error_block", number(sb.s_first_error_block.get())),
        ("first_error_code", number(sb.s_first_error_errcode)),
        (
            "last_error_time",
            time(sb.s_last_error_time.get(), sb.s_last_error_time_hi),
        ),
        ("last_error_function", text(c_text(&sb.s_last_error_func))),
        ("last_error_line", number(sb.s_last_error_line.get())),
        ("last_error_inode", number(sb.s_last_error_ino.get())),
        ("last_error_block", number(sb.s_last_error_block.get())),
        ("last_error_code", number(sb.s_last_error_errcode)),
    ]
}

fn mmp(fs: &Image) -> Facts {
    let sb = fs.superblock();
    if !sb.features().incompat.contains(Incompat::MMP) {
        return Vec::new();
    }
    let block = Pblk(sb.s_mmp_block.get());
    let mut facts = vec![
        ("mmp_block", number(block.0)),
        ("mmp_interval", number(sb.s_mmp_interval.get())),
    ];
    let mut bytes = [0; MMP_LEN];
    let offset = fs.geometry().block_size.byte_offset(block);
    let read = fs.device().read_at(offset.unwrap_or(u64::MAX), &mut bytes);
    let seed = sb.csum_seed();
    if let (Ok(()), Ok(mmp)) = (read, MmpBlock::parse(&bytes, block, seed)) {
        facts.extend([
            ("mmp_sequence", number(mmp.mmp_seq.get())),
            ("mmp_check_interval", number(mmp.mmp_check_interval.get())),
            (
                "mmp_update_time",
                Fact::Time(mmp.mmp_time.get().cast_signed()),
            ),
            ("mmp_node_name", text(c_text(&mmp.mmp_nodename))),
            ("mmp_device_name", text(c_text(&mmp.mmp_bdevname))),
        ]);
    }
    facts
}

fn journal(fs: &Image) -> Facts {
    let sb = fs.superblock();
    if !sb.features().compat.contains(Compat::HAS_JOURNAL) {
        return Vec::new();
    }
    let backup = match sb.s_jnl_backup_type {
        0 => "none".to_owned(),
        JNL_BACKUP_BLOCKS => "inode blocks".to_owned(),
        other => format!("unknown ({other})"),
    };
    let mut facts = vec![("journal_backup", text(backup))];
    if sb.s_journal_inum.get() == 0 {
        facts.push(("journal_uuid", text(uuid_text(&sb.s_journal_uuid))));
        facts.push(("journal_device", number(sb.s_journal_dev.get())));
        return facts;
    }
    let mut bytes = [0; 1024];
    let inode = fs.inode(Ino(sb.s_journal_inum.get()));
    let read = inode.and_then(|inode| fs.read_at(&inode, 0, &mut bytes));
    let Some(log) = read
        .ok()
        .and_then(|_| JournalSuperblock::parse(&bytes).ok())
    else {
        return facts;
    };
    let blocks = u64::from(log.s_maxlen.get());
    facts.extend([
        ("journal_features", text(journal_features(&log).join(","))),
        (
            "journal_size",
            Fact::Size(blocks * u64::from(log.s_blocksize.get())),
        ),
        ("journal_blocks", number(blocks)),
        (
            "journal_max_transaction",
            number(log.s_max_transaction.get()),
        ),
        (
            "journal_fast_commit_blocks",
            number(log.s_num_fc_blks.get()),
        ),
        ("journal_sequence", number(log.s_sequence.get())),
        ("journal_start", number(log.s_start.get())),
        ("journal_errno", number(log.s_errno.get())),
    ]);
    facts
}

fn journal_features(log: &JournalSuperblock) -> Vec<&'static str> {
    const COMPAT: [(&str, u32); 1] = [("journal_checksum", 1)];
    const INCOMPAT: [(&str, u32); 6] = [
        ("journal_incompat_revoke", 0x1),
        ("journal_64bit", 0x2),
        ("journal_async_commit", 0x4),
        ("journal_checksum_v2", 0x8),
        ("journal_checksum_v3", 0x10),
        ("fast_commit", 0x20),
    ];
    let mut found = names(log.s_feature_compat.get(), &COMPAT);
    found.extend(names(log.s_feature_incompat.get(), &INCOMPAT));
    found
}
