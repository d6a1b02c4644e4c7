//! What can be wrong with inodes.

super::problems! {
    /// A problem of an inode.
    InodeProblem:
    Links = "inode-links", Safe, Nothing, ["PR_4_BAD_REF_COUNT"],
        "i_links_count is {found}, {right} names refer to it", "store the number counted";
}
