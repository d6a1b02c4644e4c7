//! What can be wrong with group descriptors and bitmaps.

super::problems! {
    /// A problem of a block group.
    GroupProblem:
    // Bitmaps and counts.
    BlocksNotMarked = "block-bitmap-not-marked", Safe, Nothing,
        ["PR_5_BLOCK_USED", "PR_5_BLOCK_RANGE_USED", "PR_5_BLOCK_BITMAP_HEADER"],
        "{found} clusters are in use and not marked in the block bitmap", "mark them";
    BlocksMarked = "block-bitmap-marked", Safe, Nothing,
        ["PR_5_BLOCK_UNUSED", "PR_5_BLOCK_RANGE_UNUSED"],
        "{found} clusters are marked in the block bitmap and have no owner", "free them";
    BlockBitmapPadding = "block-bitmap-padding", Safe, Nothing, ["PR_5_BLOCK_BMAP_PADDING"],
        "{found} bits past the end of the block bitmap are not set", "set them";
    BlockBitmapChecksum = "block-bitmap-checksum", Safe, Nothing,
        ["PR_5_BLOCK_BITMAP_CSUM_INVALID"],
        "the checksum of the block bitmap is {found}, {right} would match it",
        "compute it for the bitmap as it must be";
    BlocksUninit = "block-bitmap-uninit", Safe, Nothing, ["PR_5_BLOCK_UNINIT"],
        "blocks are in use in a group whose block bitmap is marked as never written",
        "write the bitmap and clear the flag";
    InodesNotMarked = "inode-bitmap-not-marked", Safe, Nothing,
        ["PR_5_INODE_USED", "PR_5_INODE_RANGE_USED", "PR_5_INODE_BITMAP_HEADER"],
        "{found} inodes are in use and not marked in the inode bitmap", "mark them";
    InodesMarked = "inode-bitmap-marked", Safe, Nothing,
        ["PR_5_INODE_UNUSED", "PR_5_INODE_RANGE_UNUSED"],
        "{found} inodes are marked in the inode bitmap and not in use", "free them";
    InodeBitmapPadding = "inode-bitmap-padding", Safe, Nothing, ["PR_5_INODE_BMAP_PADDING"],
        "{found} bits past the end of the inode bitmap are not set", "set them";
    InodeBitmapChecksum = "inode-bitmap-checksum", Safe, Nothing,
        ["PR_5_INODE_BITMAP_CSUM_INVALID"],
        "the checksum of the inode bitmap is {found}, {right} would match it",
        "compute it for the bitmap as it must be";
    InodesUninit = "inode-bitmap-uninit", Safe, Nothing, ["PR_5_INODE_UNINIT"],
        "inodes are in use in a group whose inode bitmap is marked as never written",
        "write the bitmap and clear the flag";
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
    TableUnusedRange = "group-table-unused-range", Damage, Nothing, ["PR_0_GDT_ITABLE_UNUSED"],
        "{found} inodes at the end of the table are said to be unused, {right} are free",
        "read the whole table";
    TableUnusedMarked = "group-table-unused-marked", Damage, Nothing, ["PR_2_INOREF_IN_UNUSED"],
        "the last {found} inodes of the table are said to be unused; by bitmap and table {right} are",
        "read those before, too";
    BackupDiffers = "group-backup-differs", Note, Nothing, [],
        "the backup of descriptors in block {found} is not one of this file system as it is",
        "write it anew";
    // Counts and bitmaps.
    FreeBlocks = "group-free-blocks", Safe, Nothing, ["PR_5_FREE_BLOCK_COUNT_GROUP"],
        "the descriptor counts {found} free clusters, there are {right}",
        "store the number counted";
    FreeInodes = "group-free-inodes", Safe, Nothing, ["PR_5_FREE_INODE_COUNT_GROUP"],
        "the descriptor counts {found} free inodes, there are {right}",
        "store the number counted";
    UsedDirectories = "group-used-directories", Safe, Nothing, ["PR_5_FREE_DIR_COUNT_GROUP"],
        "the descriptor counts {found} directories, there are {right}",
        "store the number counted";
    TableUnused = "group-table-unused", Safe, Nothing, ["PR_2_INOREF_IN_UNUSED", "PR_2_INOREF_BG_INO_UNINIT"],
        "the last {found} inodes of the table are said to be unused, only {right} are",
        "store the number counted";
}
