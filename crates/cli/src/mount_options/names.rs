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
    // What mount(8), or the table of mounts, does itself.
    "nouser",
    "nousers",
    "noowner",
    "nogroup",
    "loop",
];

/// Options with a value that are others' business: comments, and what mount(8) does itself.
pub const OF_OTHERS: &[&str] = &["comment", "helper", "uhelper", "user", "loop"];

/// An option that has no effect here: refused, or taken with a note.
pub struct Refused {
    /// Its name, or the name with one value.
    pub name: &'static str,
    /// Why, and what there is instead.
    pub why: &'static str,
}

const fn refused(name: &'static str, why: &'static str) -> Refused {
    Refused { name, why }
}

/// Options that are taken although they have no effect here, because nothing that a program relies
/// on is worse without them; each with a note at the mount.
pub const NOTED: &[Refused] = &[
    refused(
        "data=writeback",
        "data is ordered: a commit waits for the data it shows, and no file shows stale blocks",
    ),
    refused(
        "nodelalloc",
        "blocks are allocated at write-back, as with delalloc",
    ),
    refused(
        "journal_async_commit",
        "a commit is written only behind what it commits",
    ),
    refused(
        "nojournal_checksum",
        "the log has checksums where the file system has (metadata_csum)",
    ),
    refused(
        "nouser_xattr",
        "user attributes are always served; noxattr leaves out all",
    ),
    refused(
        "minixdf",
        "statfs does not count what the file system itself needs, as with bsddf",
    ),
    refused("init_itable", "inode tables are written as they are used"),
    refused("nouid32", "all 32 bits of owners are always stored"),
    refused("debug", "`uext4 stats DIR` shows what a mount does"),
    refused("warn_on_error", "errors go to the system's log"),
    refused(
        "journal_ioprio",
        "the daemon has the priority of its process: `ionice -p PID` changes it",
    ),
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
        "inlinecrypt",
        "encrypted files are shown as they are stored",
    ),
    refused("mand", "no kernel since 5.15 has mandatory locks"),
    refused(
        "X-mount.owner",
        "`chown` changes the owner of the root directory",
    ),
    refused(
        "X-mount.group",
        "`chgrp` changes the group of the root directory",
    ),
    refused(
        "X-mount.mode",
        "`chmod` changes the mode of the root directory",
    ),
    refused("shared", "`mount --make-shared DIR` does it"),
    refused("rshared", "`mount --make-rshared DIR` does it"),
    refused("private", "`mount --make-private DIR` does it"),
    refused("rprivate", "`mount --make-rprivate DIR` does it"),
    refused("slave", "`mount --make-slave DIR` does it"),
    refused("rslave", "`mount --make-rslave DIR` does it"),
    refused("unbindable", "`mount --make-unbindable DIR` does it"),
    refused("runbindable", "`mount --make-runbindable DIR` does it"),
    refused("auto_unmount", "the daemon unmounts when a signal ends it"),
];

/// Options of ext4 that cannot have their effect here.
pub const REFUSED: &[Refused] = &[
    refused(
        "data=journal",
        "only metadata goes through the journal; there is data=ordered",
    ),
    refused("noacl", "ACLs are always supported"),
    refused("dax", "the image is no memory of the machine's"),
    refused("dax=always", "the image is no memory of the machine's"),
    refused(
        "journal_dev",
        "a journal outside of the image is not written",
    ),
    refused(
        "journal_path",
        "a journal outside of the image is not written",
    ),
    refused(
        "data_err=abort",
        "a failed write of data is reported by fsync, and ends nothing; there is data_err=ignore",
    ),
    refused("abort", "`umount` ends the mount without harm"),
    refused(
        "debug_want_extra_isize",
        "inodes have what the superblock asks for (`s_want_extra_isize`)",
    ),
    refused("journal", "the log is where the superblock says"),
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
        "X-mount.subdir",
        "the whole file system is mounted; `mount --bind` shows a directory of it elsewhere",
    ),
    refused(
        "X-mount.idmap",
        "there is idmap=[u:|g:]INSIDE:OUTSIDE:COUNT",
    ),
    refused("context", "labels of SELinux are those stored in the image"),
    refused(
        "fscontext",
        "labels of SELinux are those stored in the image",
    ),
    refused(
        "defcontext",
        "labels of SELinux are those stored in the image",
    ),
    refused(
        "rootcontext",
        "labels of SELinux are those stored in the image",
    ),
    refused(
        "offset",
        "the place in the image is an option of the command: --offset BYTES",
    ),
    refused(
        "sizelimit",
        "the superblock says how long the file system is",
    ),
    refused(
        "test_dummy_encryption",
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
