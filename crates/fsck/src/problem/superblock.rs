//! What can be wrong with the superblock and with the file system as a whole.

super::problems! {
    /// A problem of the superblock or of the file system as a whole.
    SuperblockProblem:
    UnfinishedRepair = "unfinished-repair", Safe, Nothing, [],
        "a repair was cut off, {found} blocks of its log may not be in their places",
        "write them to their places";
    RepairLogOutOfDate = "repair-log-out-of-date", Safe, Nothing, [],
        "the superblock names the log of a repair that was cut off, but the file system was in \
         use since", "forget the log";
    RepairLogDamaged = "repair-log-damaged", Damage, Nothing, [],
        "a repair was cut off, and its log is damaged: some of its blocks may be written",
        "forget the log, and mend what is there";
    Unusable = "superblock-unusable", Damage, Nothing, ["PR_0_SB_CORRUPT"],
        "the primary superblock cannot be used; the backup in block {right} can",
        "restore it from the backup";
    Contradicted = "superblock-contradicted", Damage, Nothing, [],
        "the group descriptors do not fit the primary superblock; they fit the backup in block \
         {right}",
        "restore it from the backup";
    CopiesElsewhere = "superblock-copies-elsewhere", Damage, Nothing, [],
        "{found} copies of the descriptors are not where s_first_meta_bg or s_backup_bgs says, but \
         where the backup in block {right} says",
        "restore both fields from the backup";
    Completed = "superblock-completed", Damage, Nothing, [],
        "the primary superblock cannot be used, and no backup was found; group descriptors and \
         root directory show what is wrong in it",
        "store what they show, and keep the rest";
    CopiedFromElsewhere = "superblock-copied", Damage, Nothing, [],
        "the primary superblock cannot be used, and no backup is in a usual place; the group \
         descriptors fit a copy elsewhere",
        "restore it from the copy";
    Remade = "superblock-remade", Damage, Attributes, [],
        "the primary superblock is lost, and no backup was found; group descriptors and root \
         directory show the shape of the file system",
        "make one of this shape; name, UUID and options of the file system are lost";
    LostFeature = "superblock-feature-lost", Damage, Nothing, ["PR_1_INLINE_DATA_FEATURE"],
        "the feature is not set, but the file system uses it", "set it again";
    Chosen = "superblock-chosen", Damage, Nothing, [],
        "the superblock in block {right} was asked for; the primary one differs",
        "restore the primary one from it";
    Checksum = "superblock-checksum", Damage, Nothing, ["PR_0_SB_CORRUPT"],
        "the checksum is {found}, it must be {right}; no backup was found",
        "compute the checksum anew";
    ChecksumType = "superblock-checksum-type", Damage, Nothing, [],
        "s_checksum_type is {found}, crc32c is {right}", "store the number of crc32c";
    Field = "superblock-field", Damage, Nothing,
        ["PR_0_MISC_CORRUPT_SUPER", "PR_0_BLOCKS_PER_GROUP", "PR_0_FIRST_DATA_BLOCK",
         "PR_0_INODE_COUNT_BIG"],
        "the field is {found}; by the rest of the superblock it must be {right}",
        "store the right number";
    Inodes = "superblock-inodes", Damage, Nothing, ["PR_0_INODE_COUNT_WRONG"],
        "s_inodes_count is {found}, the groups have {right} inodes", "store the right number";
    DescriptorSize = "superblock-descriptor-size", Safe, Nothing, ["PR_0_SB_CORRUPT"],
        "s_desc_size is {found}, which is no power of two; it counts only with 64bit", "store 0";
    FlexGroups = "superblock-flex-groups", Safe, Nothing, ["PR_0_SB_CORRUPT"],
        "s_log_groups_per_flex is {found}, more than 31; it counts only with flex_bg", "store 0";
    FirstMetaGroup = "superblock-first-meta-group", Damage, Nothing,
        ["PR_0_FIRST_META_BG_TOO_BIG"],
        "s_first_meta_bg is {found}, at most {right} is possible", "clear it and meta_bg";
    ReservedBlocks = "superblock-reserved-blocks", Damage, Nothing, ["PR_0_MISC_CORRUPT_SUPER"],
        "{found} blocks are reserved for root, more than half of all", "reserve {right} blocks";
    MetaGroupsAndResize = "superblock-meta-groups-and-resize", Damage, Nothing,
        ["PR_0_DISABLE_RESIZE_INODE"],
        "resize_inode and meta_bg exclude each other", "clear resize_inode";
    ReservedDescriptorsTooMany = "superblock-reserved-descriptors-too-many", Damage, Nothing, [],
        "s_reserved_gdt_blocks is {found}, and bitmaps or tables lie where those would be",
        "store {right}";
    HashVersion = "superblock-hash-version", Safe, Nothing, [],
        "s_def_hash_version is {found}, which is not known", "store that of half MD4";
    ReservedDescriptors = "superblock-reserved-descriptors", Safe, Nothing,
        ["PR_0_NONZERO_RESERVED_GDT_BLOCKS"],
        "s_reserved_gdt_blocks is {found} without resize_inode", "store 0";
    GdtAndMetadataChecksums = "superblock-two-descriptor-checksums", Safe, Nothing,
        ["PR_0_META_AND_GDT_CSUM_SET"],
        "uninit_bg is set together with metadata_csum, which supersedes it", "clear uninit_bg";
    SeedWithoutChecksums = "superblock-seed-without-checksums", Safe, Nothing,
        ["PR_0_CSUM_SEED_WITHOUT_META_CSUM"],
        "metadata_csum_seed is set without metadata_csum", "clear metadata_csum_seed";
    WideWithoutExtents = "superblock-64bit-without-extents", Damage, Nothing,
        ["PR_0_64BIT_WITHOUT_EXTENTS"],
        "64bit is set without extents", "set extents";
    ClustersWithoutExtents = "superblock-bigalloc-without-extents", Damage, Nothing,
        ["PR_1_NO_BIGALLOC_BLOCKMAP_FILES"],
        "bigalloc is set without extents, and clusters are as large as blocks", "clear bigalloc";
    Revision = "superblock-revision", Safe, Nothing, ["PR_0_FS_REV_LEVEL"],
        "features are set in revision {found}, which has none", "make it revision {right}";
    HurdWide = "superblock-hurd-64bit", Damage, Nothing, [],
        "the Hurd is said to have made the file system, and cannot have one with 64bit",
        "store that Linux has";
    Hurd = "superblock-hurd", Damage, Nothing, ["PR_0_HURD_CLEAR_FILETYPE"],
        "the Hurd does not know the feature filetype", "clear it";
    NoUuid = "superblock-uuid", Note, Nothing, ["PR_0_ADD_UUID"],
        "the file system has no UUID", "make one";
    RequiredExtra = "superblock-min-extra-isize", Safe, Nothing, ["PR_0_BAD_MIN_EXTRA_ISIZE"],
        "s_min_extra_isize is {found}, which inodes cannot have", "store {right}";
    WantedExtra = "superblock-want-extra-isize", Safe, Nothing, ["PR_0_BAD_WANT_EXTRA_ISIZE"],
        "s_want_extra_isize is {found}, which inodes cannot have", "store {right}";
    QuotaInode = "superblock-quota-inode", Damage, Nothing, ["PR_0_INVALID_QUOTA_INO"],
        "the number of the quota inode is {found}, which cannot be", "clear it";
    QuotaNumber = "superblock-quota-number", Damage, Nothing,
        ["PR_0_INVALID_QUOTA_INO"],
        "the number of the quota inode is {found}, which is no quota file", "store {right}";
    OrphanFileNumber = "superblock-orphan-file-number", Damage, Nothing, [],
        "the feature orphan_file is not set, and inode {found}, named for it, is another file",
        "store 0";
    MountedInFuture = "superblock-mounted-in-future", Note, Nothing,
        ["PR_0_FUTURE_SB_LAST_MOUNT", "PR_0_FUTURE_SB_LAST_MOUNT_FUDGED"],
        "the last mount was at {found}, now it is {right}", "store the time of now";
    WrittenInFuture = "superblock-written-in-future", Note, Nothing,
        ["PR_0_FUTURE_SB_LAST_WRITE", "PR_0_FUTURE_SB_LAST_WRITE_FUDGED"],
        "the last write was at {found}, now it is {right}", "store the time of now";
    MarkedWithErrors = "superblock-errors", Note, Nothing, [],
        "s_state is {found}: errors were found while the file system was in use",
        "clear the mark after this examination";
    HashSign = "superblock-hash-sign", Note, Nothing, ["PR_0_DIRHASH_HINT"],
        "s_flags does not say whether directory hashes take bytes as signed",
        "store what was taken so far: signed";
    BackupDiffers = "superblock-backup-differs", Note, Nothing, [],
        "the backup is not one of this file system as it is", "write it anew";
    MmpBlock = "mmp-block", Damage, Nothing, ["PR_0_MMP_INVALID_BLK"],
        "s_mmp_block is {found}, which cannot be", "clear it and the feature mmp";
    MmpMagic = "mmp-magic", Damage, Nothing, ["PR_0_MMP_INVALID_MAGIC"],
        "the block for multiple mount protection is not one",
        "clear its number and the feature mmp";
    MmpSequence = "mmp-sequence", Damage, Nothing, [],
        "the sequence number of the block for multiple mount protection means nothing",
        "mark the block as clean";
    MmpMark = "mmp-mark", Safe, Nothing, [],
        "a repair by this host was cut off, and its mark in the block for multiple mount \
         protection is left", "mark the block as clean";
    MmpChecksum = "mmp-checksum", Safe, Nothing, ["PR_0_MMP_CSUM_INVALID"],
        "the checksum of the block for multiple mount protection does not match",
        "compute it anew";
    ResizeInodeInUse = "resize-inode-in-use", Note, Nothing, ["PR_0_CLEAR_RESIZE_INODE"],
        "the resize inode holds blocks, but the feature resize_inode is not set",
        "clear the inode";
    ResizeInode = "resize-inode", Damage, Nothing,
        ["PR_0_RESIZE_INODE_INVALID", "PR_1_RESIZE_INODE_CREATE"],
        "the resize inode does not map the reserved descriptor blocks", "map them anew";
    FreeBlocks = "superblock-free-blocks", Note, Nothing,
        ["PR_5_FREE_BLOCK_COUNT", "PR_0_FREE_BLOCK_COUNT"],
        "s_free_blocks_count is {found}, {right} blocks are free", "store the number counted";
    FreeBlocksTooMany = "superblock-free-blocks-too-many", Safe, Nothing,
        ["PR_5_FREE_BLOCK_COUNT"],
        "s_free_blocks_count is {found}, more than there are; {right} blocks are free",
        "store the number counted";
    FreeInodes = "superblock-free-inodes", Note, Nothing,
        ["PR_5_FREE_INODE_COUNT", "PR_0_FREE_INODE_COUNT"],
        "s_free_inodes_count is {found}, {right} inodes are free", "store the number counted";
    FreeInodesTooMany = "superblock-free-inodes-too-many", Safe, Nothing,
        ["PR_5_FREE_INODE_COUNT"],
        "s_free_inodes_count is {found}, more than there are; {right} inodes are free",
        "store the number counted";
}
