//! What can be wrong with the map from logical to physical blocks.

super::problems! {
    /// A problem of a block map: an extent tree or indirect blocks.
    MappingProblem:
    Shared = "blocks-shared", Damage, Nothing, ["PR_1B_DUP_BLOCK"],
        "{found} blocks belong to more than one owner", "give each owner its own copy";
}
