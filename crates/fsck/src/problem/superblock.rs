//! What can be wrong with the superblock and with the file system as a whole.

super::problems! {
    /// A problem of the superblock or of the file system as a whole.
    SuperblockProblem:
    UnfinishedRepair = "unfinished-repair", Safe, Nothing, [],
        "a repair was cut off, {found} blocks of its log may not be in their places",
        "write them to their places";
    FreeBlocks = "superblock-free-blocks", Safe, Nothing, ["PR_5_FREE_BLOCK_COUNT"],
        "s_free_blocks_count is {found}, {right} blocks are free", "store the number counted";
    FreeInodes = "superblock-free-inodes", Safe, Nothing, ["PR_5_FREE_INODE_COUNT"],
        "s_free_inodes_count is {found}, {right} inodes are free", "store the number counted";
}
