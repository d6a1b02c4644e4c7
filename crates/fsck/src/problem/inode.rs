//! What can be wrong with inodes.

super::problems! {
    /// A problem of an inode.
    InodeProblem:
    Links = "inode-links", Safe, Nothing, ["PR_4_BAD_REF_COUNT"],
        "i_links_count is {found}, {right} names refer to it", "store the number counted";
    LinksUncounted = "inode-links-uncounted", Note, Nothing, ["PR_4_DIR_OVERFLOW_REF_COUNT"],
        "i_links_count is {found}, as of a directory that had too many; {right} names refer to it",
        "store the number counted";
    Checksum = "inode-checksum", Damage, Nothing, ["PR_1_INODE_ONLY_CSUM_INVALID"],
        "the checksum is {found}, not {right}, and the fields can be used", "store the right one";
    Garbage = "inode-garbage", Damage, File, ["PR_1_INODE_IS_GARBAGE"],
        "the checksum is {found}, not {right}, and the fields make no sense", "clear the inode";
    ExtraSize = "inode-extra-size", Safe, Attributes, ["PR_1_EXTRA_ISIZE"],
        "i_extra_isize is {found}, which no inode of this size can have", "store {right}";
    DeletionTime = "inode-deletion-time", Safe, Nothing,
        ["PR_1_SET_DTIME", "PR_1_ROOT_DTIME", "PR_1_LOW_DTIME", "PR_1_ORPHAN_LIST_REFUGEES"],
        "i_dtime is {found}, but the inode is in use", "store 0";
    NoDeletionTime = "inode-no-deletion-time", Safe, Nothing, ["PR_1_ZERO_DTIME"],
        "the inode has no links, but no deletion time either", "store the time of the repair";
    RootMissing = "root-missing", Damage, Nothing, ["PR_1_ROOT_NO_DIR", "PR_3_NO_ROOT_INODE"],
        "inode 2 is not a directory", "make an empty root directory";
    Directory = "directory-mode", Damage, Nothing, ["PR_1_TREAT_AS_DIRECTORY"],
        "i_mode is {found}, but the first block begins as one of this directory does",
        "make it a directory";
    Regular = "regular-file-mode", Damage, Nothing, [],
        "i_mode is {found}, but the inode holds the blocks of a regular file",
        "make it a regular file";
    Mode = "inode-mode", Damage, File, ["PR_2_BAD_MODE"],
        "i_mode is {found}, which is no type of file", "clear the inode";
    ReservedMode = "reserved-mode", Damage, Data, ["PR_1_RESERVED_BAD_MODE"],
        "i_mode is {found}, but a reserved inode is empty or a regular file", "clear the inode";
    SystemMode = "system-file-mode", Safe, Nothing,
        ["PR_1_JOURNAL_BAD_MODE", "PR_1_QUOTA_BAD_MODE", "PR_1_ORPHAN_FILE_BAD_MODE"],
        "i_mode is {found}, but a file of the file system itself is a regular file", "store {right}";
    SystemUnused = "system-file-unused", Safe, Nothing,
        ["PR_1_JOURNAL_INODE_NOT_CLEAR", "PR_1_QUOTA_INODE_NOT_CLEAR",
            "PR_1_ORPHAN_FILE_NOT_CLEAR"],
        "the inode is not in use, as the superblock does not name it, but it is not empty",
        "clear the inode";
    BadBlocks = "bad-blocks-inode", Damage, Nothing, ["PR_1_INVALID_BAD_INODE"],
        "the inode of bad blocks holds more than a list of blocks", "clear the inode";
    BadBlockMetadata = "bad-block-metadata", Damage, Nothing,
        ["PR_1_BB_FS_BLOCK", "PR_1_BBINODE_BAD_METABLOCK", "PR_1_BAD_PRIMARY_BLOCK",
            "PR_1_BAD_SUPERBLOCK", "PR_1_BAD_GROUP_DESCRIPTORS", "PR_1_BB_BAD_BLOCK",
            "PR_1_IB_BAD_BLOCK", "PR_1_BADBLOCKS_IN_BADBLOCKS"],
        "{found} blocks in the list of bad blocks belong to the file system itself",
        "take them off the list: the file system cannot do without them";
    Imagic = "inode-imagic", Safe, Attributes, ["PR_1_SET_IMAGIC"],
        "the flag IMAGIC is set, and the file system does not have that feature", "clear the flag";
    EaInode = "inode-ea-inode", Safe, Nothing, [],
        "the flag EA_INODE is set, and the file system does not have that feature",
        "clear the flag";
    Verity = "inode-verity", Damage, Nothing, [],
        "the flag VERITY is set, and neither the file system nor the file has what is verified",
        "clear the flag";
    VerityFeature = "verity-feature", Safe, Nothing, [],
        "the inode has a tree of hashes behind its end, and the superblock does not have verity",
        "set the feature";
    ExtentsFeature = "extents-feature", Safe, Nothing, ["PR_1_EXTENTS_SET"],
        "the inode holds an extent tree, and the superblock does not have the feature extent",
        "set the feature";
    ExtentsFlag = "inode-extents-flag", Damage, Data, ["PR_1_EXTENT_FEATURE"],
        "the flag EXTENTS is set, but neither the file system nor the inode has extents",
        "clear the flag";
    ExtentsMissing = "inode-extents-missing", Safe, Nothing, ["PR_1_UNSET_EXTENT_FL"],
        "the inode holds an extent tree, and its flag EXTENTS is not set", "set the flag";
    FastSymlinkExtents = "symlink-extents", Safe, Nothing, ["PR_1_FAST_SYMLINK_EXTENT_FL"],
        "the flag EXTENTS is set, but the target is in the inode", "clear the flag";
    SpecialFlags = "special-flags", Safe, Nothing,
        ["PR_1_SET_IMMUTABLE", "PR_1_SPECIAL_EXTENTS_IDATA"],
        "i_flags is {found}, of which this type of file can have {right}",
        "clear the other flags";
    SpecialSize = "special-size", Safe, Nothing, ["PR_1_SET_NONZSIZE"],
        "i_size is {found}, but a device, a pipe or a socket has no size", "store 0";
    SpecialBlocks = "special-blocks", Damage, File,
        ["PR_2_BAD_CHAR_DEV", "PR_2_BAD_BLOCK_DEV", "PR_2_BAD_FIFO", "PR_2_BAD_SOCKET"],
        "a device, a pipe or a socket holds more than the number of a device", "clear the inode";
    InlineFeature = "inode-inline-feature", Damage, Data, ["PR_1_INLINE_DATA_FEATURE"],
        "the flag INLINE_DATA is set, and the file system does not have that feature",
        "clear the flag";
    InlineAndExtents = "inode-inline-and-extents", Damage, Data,
        ["PR_1_CLEAR_INLINE_DATA_FOR_EXTENT", "PR_1_CLEAR_EXTENT_FOR_INLINE_DATA",
            "PR_1_CLEAR_EXTENT_INLINE_DATA_FLAGS", "PR_1_CLEAR_EXTENT_INLINE_DATA_INODE"],
        "both flags INLINE_DATA and EXTENTS are set", "clear the one that does not fit";
    InlineFlag = "inode-inline-flag", Damage, Nothing, [],
        "the flag INLINE_DATA is set (i_flags is {found}), but the contents lie elsewhere",
        "clear the flag";
    InlineAttribute = "inode-inline-attribute", Damage, Nothing, [],
        "{found} bytes are in the inode, without the attribute that must go with them",
        "make the attribute";
    InlineSize = "inode-inline-size", Damage, Data,
        ["PR_1_BAD_I_SIZE", "PR_1_INLINE_DATA_NO_ATTR"],
        "i_size is {found}, but {right} bytes are in the inode", "store the bytes there are";
    Casefold = "inode-casefold", Safe, Attributes, ["PR_1_CASEFOLD_NONDIR", "PR_1_CASEFOLD_FEATURE"],
        "the flag CASEFOLD is set, which this inode or file system cannot have", "clear the flag";
    IndexFlag = "inode-index-flag", Safe, Nothing, ["PR_1_HTREE_NODIR", "PR_1_HTREE_SET"],
        "the flag INDEX is set, which this inode or file system cannot have", "clear the flag";
    BlockMapBigalloc = "inode-numbers-bigalloc", Damage, Data, ["PR_1_NO_BIGALLOC_BLOCKMAP_FILES"],
        "the inode has block numbers, but with bigalloc all files have extents", "clear the inode";
    Blocks = "inode-blocks", Safe, Nothing, ["PR_1_BAD_I_BLOCKS"],
        "i_blocks is {found}, {right} are in use", "store the number counted";
    PastEnd = "inode-blocks-past-end", Damage, Nothing, ["PR_1_BAD_I_SIZE"],
        "the inode maps blocks up to {found}; by its size and its count of blocks it ends at {right}",
        "leave out what lies behind the end";
    Size = "inode-size", Safe, Nothing, ["PR_1_BAD_I_SIZE", "PR_1_INODE_TOOBIG"],
        "i_size is {found}, by the blocks it is {right}", "store the size by the blocks";
    EmptyDirectory = "directory-empty", Damage, File, ["PR_1_ZERO_LENGTH_DIR"],
        "the directory has no blocks", "clear the inode";
    DirectoryHole = "inode-directory-hole", Damage, Nothing,
        ["PR_1_COLLAPSE_DBLOCK", "PR_2_DIRECTORY_HOLE", "PR_1_TOOBIG_DIR"],
        "the directory has {right} blocks, but its last one is number {found}",
        "move the blocks together; the index is lost, and made anew";
    UnwrittenDirectory = "directory-unwritten", Safe, Nothing, ["PR_1_UNINIT_DBLOCK"],
        "blocks of the directory are marked as never written", "mark them as written";
    SymlinkSize = "symlink-size", Safe, Nothing, ["PR_2_INVALID_SYMLINK"],
        "the target of the symbolic link ends after {right} bytes, its length is {found}",
        "store the right length";
    SymlinkPlain = "symlink-plain", Safe, Nothing, [],
        "the flag ENCRYPT is set (i_flags is {found}), and the target of the symbolic link is plain",
        "clear the flag";
    SymlinkInBlock = "symlink-in-block", Damage, Nothing, [],
        "the target of the symbolic link has {found} bytes, and is in a block all the same",
        "put it into the inode";
    Symlink = "symlink-invalid", Damage, File, ["PR_2_INVALID_SYMLINK"],
        "the target of the symbolic link cannot be, its length is {found}", "clear the inode";
    FileAcl = "inode-file-acl", Safe, Attributes, ["PR_2_FILE_ACL_BAD", "PR_2_FILE_ACL_ZERO"],
        "i_file_acl is {found}, where no attributes can be", "store 0";
    FileAclHigh = "inode-file-acl-high", Safe, Nothing, ["PR_2_I_FILE_ACL_HI_ZERO"],
        "i_file_acl_high is {found}, but block numbers have 32 bits", "store 0";
    Fragment = "inode-fragment", Safe, Nothing,
        ["PR_2_FADDR_ZERO", "PR_2_FRAG_ZERO", "PR_2_FSIZE_ZERO"],
        "i_faddr is {found}, but there are no fragments", "store 0";
    BlocksHigh = "inode-blocks-high", Safe, Nothing, ["PR_2_BLOCKS_HI_ZERO"],
        "i_blocks_high is {found}, but the file system does not have huge_file", "store 0";
    DirectorySizeHigh = "directory-size-high", Safe, Nothing, ["PR_2_DIR_SIZE_HIGH_ZERO"],
        "i_size_high of a directory is {found}", "store 0";
    LargeFile = "large-file-feature", Safe, Nothing, ["PR_2_FEATURE_LARGE_FILES"],
        "there are files of 2 GiB and more, and the superblock does not have large_file",
        "set the feature";
}
