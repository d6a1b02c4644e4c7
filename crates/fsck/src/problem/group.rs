//! What can be wrong with group descriptors and bitmaps.

super::problems! {
    /// A problem of a block group.
    GroupProblem:
    FreeBlocks = "group-free-blocks", Safe, Nothing, ["PR_5_FREE_BLOCK_COUNT_GROUP"],
        "the descriptor counts {found} free clusters, there are {right}",
        "store the number counted";
}
