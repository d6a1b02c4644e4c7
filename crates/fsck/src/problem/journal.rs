//! What can be wrong with the journal.

super::problems! {
    /// A problem of the journal.
    JournalProblem:
    Damaged = "journal-damaged", Damage, Data, ["PR_0_JOURNAL_BAD_SUPER"],
        "the journal's superblock is not what it must be", "make an empty journal";
}
