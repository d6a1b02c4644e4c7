//! What can be wrong with directories.

super::problems! {
    /// A problem of a directory.
    DirectoryProblem:
    Unconnected = "directory-unconnected", Damage, Name, ["PR_3_UNCONNECTED_DIR"],
        "no directory has an entry for this one", "connect it to lost+found";
}
