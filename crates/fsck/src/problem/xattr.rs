//! What can be wrong with extended attributes.

super::problems! {
    /// A problem of extended attributes.
    XattrProblem:
    References = "xattr-references", Safe, Nothing, ["PR_1_EXTATTR_REFCOUNT"],
        "the block counts {found} references, there are {right}", "store the number counted";
}
