//! What can be wrong with the map from logical to physical blocks.

super::problems! {
    /// A problem of a block map: an extent tree or indirect blocks.
    MappingProblem:
    // Blocks that more than one owner claims.
    Shared = "blocks-shared", Damage, Nothing,
        ["PR_1B_DUP_BLOCK", "PR_1B_DUP_RANGE", "PR_1B_DUP_BLOCK_HEADER", "PR_1D_DUP_FILE",
            "PR_1D_DUP_FILE_LIST", "PR_1D_CLONE_QUESTION", "PR_1_DUP_BLOCKS_PREENSTOP"],
        "{found} blocks from here on belong to inode {right}, too",
        "give this inode a copy of its own";
    SharedGiven = "blocks-shared-given", Damage, Data, ["PR_1D_DELETE_QUESTION"],
        "{found} blocks from here on belong to inode {right}, too; they are not copied, as asked",
        "make them a hole, which reads as zeroes";
    SharedNoSpace = "blocks-shared-no-space", Damage, Data, ["PR_1D_CLONE_ERROR"],
        "{found} blocks from here on belong to inode {right}, too, and no space is left for a copy",
        "make them a hole, which reads as zeroes";
    SharedMetadata = "blocks-shared-metadata", Damage, Data,
        ["PR_1D_SHARE_METADATA", "PR_1_BLOCK_OVERLAPS_METADATA", "PR_1_BB_FS_BLOCK"],
        "{found} blocks from here on belong to the file system's own structures",
        "make them a hole, which reads as zeroes";
    SharedProved = "blocks-shared-proved", Damage, Data, ["PR_1B_DUP_BLOCK"],
        "{found} blocks from here on hold metadata of inode {right}, as their checksum shows",
        "make them a hole, which reads as zeroes";
    SharedNode = "blocks-shared-node", Damage, Nothing, ["PR_1B_DUP_BLOCK"],
        "{found} blocks of the inode's map have another owner, too",
        "pack the map into blocks of its own";
    SharedAttributes = "blocks-shared-attributes", Damage, Nothing, ["PR_1B_DUP_BLOCK"],
        "the inode's block of attributes has another owner, too", "copy it to a block of its own";
    SharedAttributesNoSpace = "blocks-shared-attributes-no-space", Damage, Attributes,
        ["PR_1D_CLONE_ERROR"],
        "the inode's block of attributes has another owner, too, and no space is left for a copy",
        "drop the attributes in it";
    MapNoSpace = "map-no-space", Damage, Data, [],
        "no space is left for the map of the inode's {found} extents, of which {right} are kept",
        "keep what the inode itself can map";
    RootHeader = "extent-root-header", Damage, Data,
        ["PR_1_MISSING_EXTENT_HEADER", "PR_1_EXTENT_HEADER_INVALID", "PR_1_READ_EXTENT"],
        "the header of the extent tree in the inode is not what it must be",
        "make an empty extent tree: nothing says where the blocks are";
    NodeRange = "extent-node-range", Damage, Data,
        ["PR_1_EXTENT_BAD_START_BLK", "PR_1_READ_EXTENT"],
        "a node of the extent tree lies at block {found}, outside the file system or in its metadata",
        "leave the node out";
    NodeHeader = "extent-node-header", Damage, Data, ["PR_1_EXTENT_HEADER_INVALID"],
        "the header of a node of the extent tree is not what it must be", "leave the node out";
    RootDepth = "extent-root-depth", Damage, Nothing, ["PR_1_EXTENT_HEADER_INVALID"],
        "the root of the extent tree says that its depth is {found}; by what it names it is {right}",
        "read the tree so, and pack it anew";
    NodeDepth = "extent-node-depth", Damage, Nothing, ["PR_1_EXTENT_HEADER_INVALID"],
        "a node of the extent tree says that it has depth {found}, its parent says {right}",
        "take it for what the parent says";
    NodeTwice = "map-node-twice", Damage, Data, ["PR_1B_DUP_BLOCK"],
        "block {found} stands twice in the inode's map as a part of the map",
        "leave it out where it stands the second time";
    NodeTooOften = "map-node-too-often", Damage, Data, ["PR_1B_DUP_BLOCK", "PR_1_BLOCK_ITERATE"],
        "the maps of too many inodes share their blocks",
        "make the map of this inode empty";
    NodeEmpty = "extent-node-empty", Damage, Nothing, ["PR_1_EXTENT_HEADER_INVALID"],
        "a node of the extent tree is empty", "leave the node out";
    NodeChecksum = "extent-node-checksum", Damage, Nothing, ["PR_1_EXTENT_ONLY_CSUM_INVALID"],
        "the checksum of a node of the extent tree is {found}, not {right}",
        "keep what can be used, with the right checksum";
    IndexStart = "extent-index-start", Damage, Nothing, ["PR_1_EXTENT_INDEX_START_INVALID"],
        "the index says that the node begins at logical block {right}, it begins at {found}",
        "store where the node begins";
    IndexOrder = "extent-index-order", Damage, Data, ["PR_1_OUT_OF_ORDER_EXTENTS"],
        "an index begins at logical block {found}, where {right} is the least it may begin at",
        "keep what the nodes hold in order";
    TooDeep = "extent-tree-deep", Safe, Nothing, ["PR_1_EXTENT_BAD_MAX_DEPTH"],
        "the extent tree is {found} levels deep, {right} are the most there may be",
        "pack the tree anew";
    ExtentEmpty = "extent-empty", Damage, Nothing, ["PR_1_EXTENT_LENGTH_ZERO"],
        "an extent of no blocks", "leave the extent out";
    ExtentRange = "extent-range", Damage, Data,
        ["PR_1_EXTENT_BAD_START_BLK", "PR_1_EXTENT_ENDS_BEYOND"],
        "an extent of {found} blocks does not lie within the file system",
        "keep the blocks that lie within it";
    ExtentOrder = "extent-order", Damage, Data, ["PR_1_OUT_OF_ORDER_EXTENTS"],
        "an extent begins at logical block {found}, those before it end at {right}",
        "put the extents in order, and keep what of them does not overlap";
    ExtentBounds = "extent-bounds", Damage, Data, ["PR_1_EXTENT_END_OUT_OF_BOUNDS"],
        "an extent ends at logical block {found}, its node may hold blocks before {right}",
        "keep the part before that";
    ExtentCluster = "extent-cluster", Damage, Data, ["PR_1_MISALIGNED_CLUSTER"],
        "logical and physical block of an extent lie at different places of their clusters",
        "leave the extent out";
    ClusterSplit = "extent-cluster-split", Damage, Nothing, ["PR_1_MISALIGNED_CLUSTER"],
        "the blocks of one logical cluster lie in clusters {right} and {found}",
        "copy them to the first one";
    BlockRange = "block-range", Damage, Data,
        ["PR_1_ILLEGAL_BLOCK_NUM", "PR_1_TOOBIG_REG", "PR_1_TOOBIG_DIR", "PR_1_TOOBIG_SYMLINK"],
        "block number {found} does not lie within the file system", "make it a hole";
    TableRange = "table-range", Damage, Data,
        ["PR_1_ILLEGAL_BLOCK_NUM", "PR_1_CRITICAL_METADATA_COLLISION"],
        "an indirect block is {found}, outside the file system or in its metadata",
        "make what it maps a hole";
    TableGarbage = "table-garbage", Damage, Data,
        ["PR_1_INODE_BLOCK_LATCH", "PR_1_ILLEGAL_BLOCK_NUM"],
        "{found} of {right} numbers in an indirect block cannot be: it holds something else",
        "make what it maps a hole";
}
