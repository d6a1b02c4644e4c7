//! What can be wrong with quota files.

super::problems! {
    /// A problem of quota files.
    QuotaProblem:
    File = "quota-file", Damage, Attributes, ["PR_1_QUOTA_BAD_MODE"],
        "the superblock names the inode as a quota file, and it is not in use",
        "make it a quota file without limits";
    Header = "quota-header", Damage, Attributes, ["PR_6_UPDATE_QUOTAS"],
        "the quota file's header says {found} where {right} must be",
        "write the file anew, with the limits that can be read";
    Tree = "quota-tree", Damage, Attributes, ["PR_6_UPDATE_QUOTAS"],
        "{found} entries or blocks of the quota file's tree lead nowhere",
        "write the file anew, with the limits that can be read";
    Stray = "quota-entry-stray", Damage, Nothing, ["PR_6_UPDATE_QUOTAS"],
        "{found} entries of the quota file are not in its tree",
        "write the file anew, with those whose owners have no other";
    Usage = "quota-usage", Safe, Nothing, ["PR_6_UPDATE_QUOTAS"],
        "the usage of {found} owners in the quota file is not that of their files",
        "write the usage that was counted";
}
