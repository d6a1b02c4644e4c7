//! What can be wrong with the journal and with the lists of orphans.

super::problems! {
    /// A problem of the journal or of the orphans.
    JournalProblem:
    Replay = "journal-replay", Note, Nothing, ["PR_0_JOURNAL_RUN_DEFAULT"],
        "the journal holds {found} blocks that are not in their places yet",
        "write them there, and mark the journal as empty";
    FastCommits = "journal-fast-commits", Note, Nothing, [],
        "the journal holds {found} changes that were committed behind its log",
        "replay them on what the log leaves";
    FastCommitMisfit = "journal-fast-commit-misfit", Damage, Data, [],
        "a change that was committed behind the log does not fit the file system",
        "leave it out";
    RecoverMissing = "journal-recover-missing", Damage, Nothing,
        ["PR_0_JOURNAL_RECOVER_SET", "PR_0_JOURNAL_RUN", "PR_0_JOURNAL_RECOVERY_CLEAR"],
        "the journal is not empty, but needs_recovery is not set", "replay the journal";
    RecoverOfNothing = "journal-recover-of-nothing", Note, Nothing, [],
        "needs_recovery is set, and the journal is empty", "clear needs_recovery";
    RecoverWithoutJournal = "journal-recover-without-journal", Safe, Nothing,
        ["PR_0_JOURNAL_RECOVER_SET"],
        "needs_recovery is set without a journal", "clear needs_recovery";
    Errno = "journal-errno", Safe, Nothing, [],
        "the journal says that the file system stopped with error {found}", "clear the mark";
    Inode = "journal-inode", Damage, Data,
        ["PR_0_JOURNAL_BAD_INODE"],
        "the journal's inode cannot be one", "clear it";
    Missing = "journal-missing", Damage, Nothing, ["PR_6_RECREATE_JOURNAL"],
        "has_journal is set, and there is no journal", "make one in free space";
    NoRoom = "journal-no-room", Damage, Nothing, ["PR_6_RECREATE_JOURNAL"],
        "has_journal is set, and there is neither a journal nor room for one",
        "clear has_journal";
    InodeBackup = "journal-inode-from-backup", Damage, Nothing, ["PR_0_JOURNAL_BAD_INODE"],
        "the journal's inode is damaged; the superblock holds a copy of its block map",
        "restore the inode from the copy";
    Unreachable = "journal-unreachable", Damage, Nothing, [],
        "the log must be replayed, and the journal's inode is not where the descriptor says",
        "replay it by the copy of its block map in the superblock";
    InodeNumber = "journal-inode-number", Damage, Nothing, ["PR_0_JOURNAL_BAD_INODE"],
        "s_journal_inum is {found}, the journal is in inode {right}", "store the right number";
    Device = "journal-device", Safe, Nothing, [],
        "s_journal_dev is {found}, but the journal is in inode {right}", "store 0";
    Uuid = "journal-uuid", Safe, Nothing, ["PR_0_CANT_FIND_JOURNAL"],
        "s_journal_uuid names a journal on another device, but there is none", "clear it";
    Damaged = "journal-damaged", Damage, Data,
        ["PR_0_JOURNAL_BAD_SUPER", "PR_0_JOURNAL_RESET_JOURNAL", "PR_0_JOURNAL_UNSUPP_SUPER",
         "PR_0_JOURNAL_UNSUPP_VERSION"],
        "the journal's superblock is not what it must be", "make an empty journal";
    Torn = "journal-torn", Damage, Data, ["PR_0_JNL_TXN_CORRUPT"],
        "a transaction in the journal is damaged",
        "replay what was committed before it, and empty the journal";
    BlockLeftOut = "journal-block-left-out", Damage, Data, ["PR_0_JNL_TXN_CORRUPT"],
        "the journal's copy of block {found} is damaged",
        "replay the others, and of this one an older copy if there is one";
    BlockInPlace = "journal-block-in-place", Damage, Nothing, ["PR_0_JNL_TXN_CORRUPT"],
        "the journal's copy of block {found} is damaged; the block itself is up to date",
        "replay the others";
    OlderInode = "inode-from-journal", Damage, Nothing, [],
        "the inode is damaged, and block {found} in the journal has an older copy",
        "restore the copy";
    OlderNames = "directory-from-journal", Damage, Nothing, [],
        "a block of the directory is damaged, and block {found} in the journal is an older copy",
        "restore the copy";
    InodeSize = "journal-inode-size", Damage, Nothing, [],
        "i_size of the journal is {found}, its blocks have {right} bytes", "store the right size";
    MapHole = "journal-map-hole", Damage, Nothing, [],
        "the journal's map has {found} where block {right} must be: its neighbours are on both sides",
        "store that number";
    ShortLog = "journal-short-log", Damage, Nothing, [],
        "{found} blocks of the journal are for fast commits, and leave fewer than {right} for the \
         log", "clear the journal's feature fast_commit";
    VersionOne = "journal-v1", Safe, Nothing, [],
        "the journal is of the first version, which lacks the features that the file system needs",
        "make it one of the second";
    VersionOneFields = "journal-v1-fields", Damage, Nothing, ["PR_0_CLEAR_V2_JOURNAL"],
        "fields of the second version are set in a journal of the first", "clear them";
    Users = "journal-users", Safe, Nothing,
        ["PR_0_JOURNAL_UNSUPP_MULTIFS", "PR_0_CLEAR_V2_JOURNAL"],
        "the journal says that {found} file systems use it, and only one can", "store 1";
    WithoutFeature = "journal-without-feature", Safe, Nothing, ["PR_0_JOURNAL_HAS_JOURNAL"],
        "has_journal is not set, but inode {found} holds a journal", "clear its number";
    NotBackedUp = "journal-not-backed-up", Note, Nothing, ["PR_0_BACKUP_JNL"],
        "the superblock has no copy of the journal's block map", "make one";
    Orphan = "orphan", Note, Nothing, ["PR_0_ORPHAN_CLEAR_INODE"],
        "the inode was deleted or cut while it was open", "delete it or what was cut of it";
    OrphanFileEntry = "orphan-file-entry", Safe, Nothing, ["PR_6_ORPHAN_BLOCK_DIRTY"],
        "the orphan file names the inode: it was deleted or cut while it was open",
        "delete it or what was cut of it";
    OrphanShared = "orphan-blocks-shared", Damage, Nothing, [],
        "{found} blocks of an orphan have another owner, too", "leave them to the other owner";
    OrphanRange = "orphan-block-range", Damage, Nothing, ["PR_0_ORPHAN_ILLEGAL_BLOCK_NUM"],
        "the map of the orphan names block {found}, which does not lie within the file system",
        "leave it out";
    OrphanFree = "orphan-blocks-free", Damage, Nothing, ["PR_0_ORPHAN_ALREADY_CLEARED_BLOCK"],
        "{found} blocks of orphans are free in the block bitmap already", "leave them so";
    OrphanHead = "orphan-list-head", Damage, Nothing, ["PR_0_ORPHAN_ILLEGAL_HEAD_INODE"],
        "s_last_orphan is {found}, which cannot be an orphan", "clear it";
    OrphanNext = "orphan-list-next", Damage, Nothing,
        ["PR_0_ORPHAN_ILLEGAL_INODE", "PR_1_ORPHAN_LIST_REFUGEES"],
        "the next orphan would be inode {found}, which cannot be one", "cut the list";
    OrphanFileInode = "orphan-file-inode", Damage, Nothing,
        ["PR_0_ORPHAN_FILE_WRONG_SIZE", "PR_0_ORPHAN_FILE_HOLE", "PR_1_ORPHAN_FILE_BAD_MODE",
         "PR_6_ORPHAN_FILE_CORRUPTED", "PR_6_ORPHAN_FILE_HOLE", "PR_6_ORPHAN_FILE_WRONG_SIZE"],
        "the orphan file is not one", "clear the feature orphan_file and the inode";
    OrphanFileBlock = "orphan-file-block", Damage, Nothing,
        ["PR_0_ORPHAN_FILE_BAD_MAGIC", "PR_0_ORPHAN_FILE_BAD_CHECKSUM", "PR_6_ORPHAN_BLOCK_DIRTY"],
        "a block of the orphan file is damaged", "empty it";
    OrphanFileWithoutJournal = "orphan-file-without-journal", Damage, Nothing,
        ["PR_6_ORPHAN_FILE_WITHOUT_JOURNAL"],
        "the feature orphan_file is set without a journal", "clear it and the file";
    OrphanFilePresent = "orphan-file-present", Safe, Nothing,
        ["PR_6_ORPHAN_PRESENT_CLEAN_FILE", "PR_6_ORPHAN_PRESENT_NO_FILE"],
        "orphan_present is set, and the orphan file is empty", "clear orphan_present";
}
