//! What can be wrong with group descriptors and bitmaps.

super::problems! {
    /// A problem of a block group.
    GroupProblem:
    // Bitmaps and counts.
    BlocksNotMarked = "block-bitmap-not-marked", Damage, Nothing,
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
    BlocksUninit = "block-bitmap-uninit", Damage, Nothing, ["PR_5_BLOCK_UNINIT"],
        "blocks are in use in a group whose block bitmap is marked as never written",
        "write the bitmap and clear the flag";
    InodesNotMarked = "inode-bitmap-not-marked", Damage, Nothing,
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
    InodesUninit = "inode-bitmap-uninit", Damage, Nothing, ["PR_5_INODE_UNINIT"],
        "inodes are in use in a group whose inode bitmap is marked as never written",
        "write the bitmap and clear the flag";
    FreeBlocks = "group-free-blocks", Safe, Nothing, ["PR_5_FREE_BLOCK_COUNT_GROUP"],
        "the descriptor counts {found} free clusters, there are {right}",
        "store the number counted";
    FreeInodes = "group-free-inodes", Safe, Nothing, ["PR_5_FREE_INODE_COUNT_GROUP"],
        "the descriptor counts {found} free inodes, there are {right}",
        "store the number counted";
    UsedDirectories = "group-used-directories", Safe, Nothing, ["PR_5_FREE_DIR_COUNT_GROUP"],
        "the descriptor counts {found} directories, there are {right}",
        "store the number counted";
    TableUnused = "group-table-unused", Safe, Nothing, ["PR_2_INOREF_IN_UNUSED"],
        "the last {found} inodes of the table are said to be unused, only {right} are",
        "store the number counted";
}
