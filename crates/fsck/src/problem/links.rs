//! What can be wrong with the number of names of an inode.

super::problems! {
    /// A problem of the names and links of an inode.
    LinksProblem:
    UnattachedEmpty = "unattached-empty", Safe, Nothing, ["PR_4_ZERO_LEN_INODE"],
        "no name refers to the inode, which is empty", "clear it";
    Unattached = "unattached", Damage, Name, ["PR_4_UNATTACHED_INODE"],
        "no name refers to the inode", "connect it to lost+found";
    DirNlinkFeature = "links-dir-nlink-feature", Safe, Nothing, ["PR_4_DIR_NLINK_FEATURE"],
        "a directory has more than 65,000 links, which dir_nlink allows", "set the feature";
}
