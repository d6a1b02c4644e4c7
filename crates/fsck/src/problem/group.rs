//! What can be wrong with group descriptors and bitmaps.

super::problems! {
    /// A problem of a block group.
    GroupProblem:
    // Descriptors and the places that they name.
    Checksum = "group-checksum", Damage, Nothing, ["PR_0_GDT_CSUM", "PR_0_GDT_CSUM_LATCH"],
        "the checksum of the descriptor is {found}, it must be {right}",
        "compute it anew, and trust nothing that would save reading";
    DescriptorBackup = "group-descriptor-from-backup", Damage, Nothing,
        ["PR_0_CHECK_DESC_FAILED"],
        "the descriptor is damaged, its backup in block {found} is not", "restore it";
    BlockBitmapPlace = "group-block-bitmap-place", Damage, Nothing,
        ["PR_0_BB_NOT_GROUP", "PR_1_BB_CONFLICT"],
        "the block bitmap cannot be in block {found}; block {right} is taken for it",
        "store its place";
    InodeBitmapPlace = "group-inode-bitmap-place", Damage, Nothing,
        ["PR_0_IB_NOT_GROUP", "PR_1_IB_CONFLICT"],
        "the inode bitmap cannot be in block {found}; block {right} is taken for it",
        "store its place";
    InodeTablePlace = "group-inode-table-place", Damage, Nothing, ["PR_0_ITABLE_NOT_GROUP"],
        "the inode table cannot be at block {found}; it is at block {right}",
        "store its place";
    InodeTableLost = "group-inode-table-lost", Damage, File,
        ["PR_0_ITABLE_NOT_GROUP", "PR_1_ITABLE_CONFLICT"],
        "the inode table cannot be at block {found}, and was not found elsewhere; an empty one is \
         made at block {right}",
        "make the empty table";
    UninitWithoutFeature = "group-uninit-without-feature", Damage, Nothing,
        ["PR_0_GDT_UNINIT"],
        "the descriptor says that something is not initialised, without the feature for it",
        "clear the marks";
    LastBlockUninit = "group-last-block-uninit", Damage, Nothing, ["PR_0_BB_UNINIT_LAST"],
        "the block bitmap of the last group is marked as not initialised", "clear the mark";
    TableUnused = "group-table-unused", Damage, Nothing, ["PR_0_GDT_ITABLE_UNUSED"],
        "{found} inodes at the end of the table are said to be unused, {right} are free",
        "read the whole table";
    BackupDiffers = "group-backup-differs", Note, Nothing, [],
        "the backup of descriptors in block {found} is not one of this file system as it is",
        "write it anew";
    // Counts and bitmaps.
    FreeBlocks = "group-free-blocks", Safe, Nothing, ["PR_5_FREE_BLOCK_COUNT_GROUP"],
        "the descriptor counts {found} free clusters, there are {right}",
        "store the number counted";
}
