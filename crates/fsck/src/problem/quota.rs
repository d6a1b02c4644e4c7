//! What can be wrong with quota files.

super::problems! {
    /// A problem of quota files.
    QuotaProblem:
    Usage = "quota-usage", Safe, Nothing, ["PR_6_UPDATE_QUOTAS"],
        "the quota file's usage is not that of the files", "write the usage that was counted";
}
