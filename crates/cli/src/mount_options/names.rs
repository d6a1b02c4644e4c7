//! Options of every mount and of ext4 that have no effect here, and those that are refused.

/// Options that describe what is always so, or that concern other programs (fstab, systemd).
pub const WITHOUT_EFFECT: &[&str] = &[
    "defaults",
    "auto",
    "noauto",
    "user",
    "users",
    "owner",
    "group",
    "nofail",
    "_netdev",
    "default_permissions",
    "user_xattr",
    "acl",
    "delalloc",
    "data=ordered",
    "dioread_nolock",
    "dioread_lock",
    "block_validity",
    "noblock_validity",
    "i_version",
    "iversion",
    "noiversion",
    "silent",
    "loud",
    // Times are as durable as everything else.
    "lazytime",
    "nolazytime",
    "nogrpid",
    "sysvgroups",
    "bsddf",
    "dax=never",
    "noinit_itable",
    "prefetch_block_bitmaps",
    "no_prefetch_block_bitmaps",
    "nomand",
    "dax=inode",
    "data_err=ignore",
    "nodioread_nolock",
    "nowarn_on_error",
    // Those the kernel's ext4 takes and ignores, too.
    "bh",
    "nobh",
    "oldalloc",
    "orlov",
    "mblk_io_submit",
    "nomblk_io_submit",
    "reservation",
    "noreservation",
    "check=none",
    "nocheck",
];

/// An option of ext4 that is refused.
pub struct Refused {
    /// Its name, or the name with one value.
    pub name: &'static str,
    /// Why, and what to do instead.
    pub why: &'static str,
}

const fn refused(name: &'static str, why: &'static str) -> Refused {
    Refused { name, why }
}

/// Options of ext4 that cannot have their effect here.
pub const REFUSED: &[Refused] = &[
    refused(
        "data=writeback",
        "blocks are mapped only when their data is written; there is data=ordered",
    ),
    refused(
        "data=journal",
        "only metadata goes through the journal; there is data=ordered",
    ),
    refused(
        "nodelalloc",
        "blocks are reserved first and allocated at write-back; there is delalloc",
    ),
    refused(
        "journal_async_commit",
        "a commit is written only behind what it commits",
    ),
    refused(
        "nojournal_checksum",
        "the log has checksums where the file system has (metadata_csum)",
    ),
    refused("nouser_xattr", "user attributes are always supported"),
    refused("noacl", "ACLs are always supported"),
    refused("grpid", "set the set-group-id bit of directories instead"),
    refused(
        "bsdgroups",
        "set the set-group-id bit of directories instead",
    ),
    refused(
        "minixdf",
        "statfs does not count what the file system itself needs; there is bsddf",
    ),
    refused("dax", "the image is no memory of the machine's"),
    refused("dax=always", "the image is no memory of the machine's"),
    refused("init_itable", "inode tables are written as they are used"),
    refused(
        "journal_dev",
        "a journal outside of the image is not written",
    ),
    refused(
        "journal_path",
        "a journal outside of the image is not written",
    ),
    refused("auto_unmount", "the daemon unmounts when a signal ends it"),
    refused(
        "data_err=abort",
        "a failed write of data is reported by fsync, and ends nothing; there is data_err=ignore",
    ),
    refused("nouid32", "all 32 bits of owners are always stored"),
    refused("abort", "`umount` ends the mount without harm"),
    refused("debug", "`uext4 stats DIR` shows what a mount does"),
    refused(
        "debug_want_extra_isize",
        "inodes have what the superblock asks for (`s_want_extra_isize`)",
    ),
    refused("warn_on_error", "errors go to the system's log"),
    refused(
        "journal_ioprio",
        "the daemon has the priority of its process: `ionice -p PID` changes it",
    ),
    refused("journal", "the log is where the superblock says"),
    refused(
        "min_batch_time",
        "a commit does not wait for further transactions to join it",
    ),
    refused(
        "max_batch_time",
        "a commit does not wait for further transactions to join it",
    ),
    refused(
        "inode_readahead_blks",
        "inode tables are read as they are needed",
    ),
    refused("mb_optimize_scan", "free runs are always found by an index"),
    refused(
        "usrjquota",
        "quotas are those of the feature: `tune2fs -O quota IMAGE`, then -o usrquota",
    ),
    refused(
        "grpjquota",
        "quotas are those of the feature: `tune2fs -O quota IMAGE`, then -o grpquota",
    ),
    refused(
        "jqfmt",
        "quotas are those of the feature, of the one format there is: `tune2fs -O quota IMAGE`",
    ),
    refused(
        "test_dummy_encryption",
        "encrypted files are shown as they are stored, and none is created",
    ),
    refused(
        "inlinecrypt",
        "encrypted files are shown as they are stored, and none is created",
    ),
    refused(
        "fc_debug_force",
        "fast commits are replayed, and none is written",
    ),
    refused(
        "fc_debug_max_replay",
        "fast commits are replayed whole, and none is written",
    ),
];
