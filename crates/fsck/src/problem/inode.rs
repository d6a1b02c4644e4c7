//! What can be wrong with inodes.

super::problems! {
    /// A problem of an inode.
    InodeProblem:
    Links = "inode-links", Safe, Nothing, ["PR_4_BAD_REF_COUNT"],
        "i_links_count is {found}, {right} names refer to it", "store the number counted";
    // Of the pass over link counts.
    UnattachedEmpty = "inode-unattached-empty", Safe, Nothing, ["PR_4_ZERO_LEN_INODE"],
        "no name refers to the inode, which is empty", "clear it";
    Unattached = "inode-unattached", Damage, Name, ["PR_4_UNATTACHED_INODE"],
        "no name refers to the inode", "connect it to lost+found";
    DirNlinkFeature = "inode-dir-nlink-feature", Safe, Nothing, ["PR_4_DIR_NLINK_FEATURE"],
        "a directory has more than 65,000 links, which dir_nlink allows", "set the feature";
}
