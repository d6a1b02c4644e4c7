//! What can be wrong with directories.

super::problems! {
    /// A problem of a directory.
    DirectoryProblem:
    Hole = "directory-hole", Safe, Nothing, ["PR_2_DIRECTORY_HOLE"],
        "{found} blocks within the size of the directory are missing",
        "write the directory anew, without holes";
    BlockChecksum = "directory-block-checksum", Damage, Nothing,
        ["PR_2_LEAF_NODE_ONLY_CSUM_INVALID"],
        "the records are valid, and the checksum of the block is {found} instead of {right}",
        "compute the checksum anew";
    NoBlockChecksum = "directory-block-no-checksum", Damage, Nothing,
        ["PR_2_LEAF_NODE_MISSING_CSUM"],
        "the block does not end with a checksum record", "make room for a checksum record";
    Record = "directory-record", Damage, Name, ["PR_2_DIR_CORRUPTED", "PR_2_FINAL_RECLEN"],
        "a record of length {found} cannot be here",
        "keep the records that can be read, and close the gap";
    DotMissing = "directory-dot-missing", Damage, Nothing,
        ["PR_2_MISSING_DOT", "PR_2_1ST_NOT_DOT"],
        "the first record is not \".\"", "write the directory anew";
    DotInode = "directory-dot-inode", Damage, Nothing, ["PR_2_BAD_INODE_DOT"],
        "\".\" names inode {found} instead of {right}", "let it name the directory";
    DotTerminator = "directory-dot-terminator", Safe, Nothing,
        ["PR_2_DOT_NULL_TERM", "PR_2_DOT_DOT_NULL_TERM"],
        "no zero byte stands behind the name", "write zeroes behind the name";
    DotTooBig = "directory-dot-too-big", Safe, Nothing, ["PR_2_SPLIT_DOT"],
        "the record of \".\" has {found} bytes", "split it";
    DotDotMissing = "directory-dotdot-missing", Damage, Nothing,
        ["PR_2_MISSING_DOT_DOT", "PR_2_2ND_NOT_DOT_DOT"],
        "the second record is not \"..\"", "write the directory anew";
    DotTwice = "directory-dot-twice", Damage, Nothing, ["PR_2_DUP_DOT", "PR_2_DUP_DOT_DOT"],
        "a second entry has the name \".\" or \"..\"", "remove the entry";
    EmptyName = "directory-empty-name", Damage, Name, ["PR_2_NULL_NAME"],
        "an entry without a name names inode {found}", "remove the entry";
    IllegalName = "directory-illegal-name", Damage, Nothing, ["PR_2_BAD_NAME"],
        "the name has a slash or a zero byte", "replace these bytes by dots";
    BadEncoding = "directory-bad-encoding", Damage, Nothing, ["PR_2_BAD_ENCODED_NAME"],
        "the name is no valid UTF-8, which the directory asks for",
        "replace what is not valid by dots";
    ShortEncryptedName = "directory-short-encrypted-name", Damage, Name,
        ["PR_2_BAD_ENCRYPTED_NAME"],
        "an encrypted name of {found} bytes is too short", "remove the entry";
    Unencrypted = "directory-unencrypted-inode", Damage, Name, ["PR_2_UNENCRYPTED_FILE"],
        "an entry of an encrypted directory names inode {found}, which is not encrypted",
        "remove the entry";
    EncryptionPolicy = "directory-encryption-policy", Damage, Name,
        ["PR_2_INCONSISTENT_ENCRYPTION_POLICY"],
        "an entry names inode {found}, which is encrypted under another policy",
        "remove the entry";
    NoSuchInode = "directory-no-such-inode", Damage, Nothing, ["PR_2_BAD_INO"],
        "an entry names inode {found}, which does not exist", "remove the entry";
    UnusedInode = "directory-unused-inode", Damage, Nothing, ["PR_2_UNUSED_INODE"],
        "an entry names inode {found}, which is not in use", "remove the entry";
    ReservedInode = "directory-reserved-inode", Damage, Nothing,
        ["PR_2_BAD_INO", "PR_2_BB_INODE"],
        "an entry names inode {found}, which the file system itself uses", "remove the entry";
    EaInode = "directory-ea-inode", Damage, Nothing, [],
        "an entry names inode {found}, which holds the value of an attribute",
        "remove the entry";
    LinkToSelf = "directory-link-to-self", Damage, Nothing, ["PR_2_LINK_DOT"],
        "an entry names the directory itself", "remove the entry";
    LinkToRoot = "directory-link-to-root", Damage, Nothing, ["PR_2_LINK_ROOT"],
        "an entry names the root directory", "remove the entry";
    SecondParent = "directory-second-parent", Damage, Name, ["PR_2_LINK_DIR"],
        "an entry names directory {found}, which has its parent elsewhere", "remove the entry";
    FileTypeUnset = "directory-file-type-unset", Safe, Nothing, ["PR_2_SET_FILETYPE"],
        "the entry has no file type where it should be {right}", "store the type of the inode";
    FileType = "directory-file-type", Damage, Nothing, ["PR_2_BAD_FILETYPE"],
        "the entry has file type {found} instead of {right}", "store the type of the inode";
    FileTypeWithoutFeature = "directory-file-type-without-feature", Safe, Nothing,
        ["PR_2_CLEAR_FILETYPE", "PR_2_FILENAME_LONG"],
        "the entry has file type {found} in a file system without file types", "clear it";
    DuplicateName = "directory-duplicate-name", Damage, Nothing,
        ["PR_2_DUPLICATE_DIRENT", "PR_2_REPORT_DUP_DIRENT", "PR_2_NON_UNIQUE_FILE",
         "PR_2_NON_UNIQUE_FILE_NO_RENAME"],
        "the name is in the directory before, too; this entry names inode {found}",
        "remove the entry if both name the same inode, else give it another name";
    InlineRecord = "directory-inline-size", Damage, Name, ["PR_2_BAD_INLINE_DIR_SIZE"],
        "the data within the inode have {found} bytes where records end with {right}",
        "end with the records that can be read";
    IndexFlag = "directory-index-flag", Damage, Nothing, ["PR_2_UNEXPECTED_HTREE_BLOCK"],
        "the directory is said to have an index and cannot have one",
        "write the directory anew";
    IndexRoot = "directory-index-root", Damage, Nothing, ["PR_2_HTREE_BAD_ROOT", "PR_1_HTREE_BADROOT", "PR_1_HTREE_INCOMPAT"],
        "the root of the index is not what it must be", "write the directory anew";
    IndexHashVersion = "directory-index-hash-version", Damage, Nothing, ["PR_1_HTREE_HASHV", "PR_1_HTREE_NEEDS_SIPHASH", "PR_1_HTREE_CANNOT_SIPHASH"],
        "the index uses hash {found}, which is not known", "write the directory anew";
    IndexDepth = "directory-index-depth", Damage, Nothing, ["PR_2_HTREE_BAD_DEPTH", "PR_1_HTREE_DEPTH"],
        "the index has {found} levels, at most {right} can be", "write the directory anew";
    IndexLimit = "directory-index-limit", Damage, Nothing, ["PR_2_HTREE_BAD_LIMIT"],
        "a node of the index has room for {found} entries instead of {right}",
        "write the directory anew";
    IndexCount = "directory-index-count", Damage, Nothing, ["PR_2_HTREE_BAD_COUNT"],
        "a node of the index has {found} entries, room for {right}", "write the directory anew";
    IndexOrder = "directory-index-order", Damage, Nothing, ["PR_2_HTREE_HASH_ORDER"],
        "the hashes of a node of the index are not in order", "write the directory anew";
    IndexBlock = "directory-index-block", Damage, Nothing, ["PR_2_HTREE_BADBLK"],
        "the index refers to logical block {found}, which is none of the directory",
        "write the directory anew";
    IndexTwice = "directory-index-twice", Damage, Nothing, ["PR_2_HTREE_DUPREF"],
        "the index refers to the block more than once", "write the directory anew";
    IndexNotReferenced = "directory-index-not-referenced", Damage, Nothing,
        ["PR_2_HTREE_NOTREF"],
        "the index does not refer to the block", "write the directory anew";
    IndexMinHash = "directory-index-min-hash", Damage, Nothing, ["PR_2_HTREE_MIN_HASH"],
        "the hash {found} is in the block whose hashes begin with {right}",
        "write the directory anew";
    IndexMaxHash = "directory-index-max-hash", Damage, Nothing, ["PR_2_HTREE_MAX_HASH"],
        "the hash {found} is in the block whose hashes end before {right}",
        "write the directory anew";
    IndexChecksum = "directory-index-checksum", Damage, Nothing,
        ["PR_2_HTREE_ROOT_CSUM_INVALID", "PR_2_HTREE_NODE_CSUM_INVALID"],
        "the checksum of a node of the index is wrong", "write the directory anew";
    NotOptimal = "directory-not-optimal", Note, Nothing, ["PR_3A_OPTIMIZE_DIR"],
        "the directory is to be written anew, as was asked for", "write the directory anew";
    NoRoot = "directory-no-root", Damage, Nothing, ["PR_3_NO_ROOT_INODE", "PR_3_NO_ROOT_INODE_ABORT", "PR_3_ROOT_NOT_DIR_ABORT"],
        "there is no root directory", "make one";
    Unconnected = "directory-unconnected", Damage, Name, ["PR_3_UNCONNECTED_DIR"],
        "no directory has an entry for this one", "connect it to lost+found";
    Loop = "directory-loop", Damage, Name, ["PR_3_LOOPED_DIR"],
        "the directory is within itself, by an entry of directory {found}",
        "connect it to lost+found";
    DotDot = "directory-dotdot-inode", Damage, Nothing, ["PR_3_BAD_DOT_DOT", "PR_3_FIX_PARENT_NOFIND"],
        "\"..\" names inode {found} instead of {right}", "let it name the parent";
    LostFoundMissing = "lost-found-missing", Note, Nothing, ["PR_3_NO_LF_DIR"],
        "there is no directory /lost+found for the files found", "make one";
    LostFoundNoDirectory = "lost-found-no-directory", Damage, Name, ["PR_3_LPF_NOTDIR"],
        "/lost+found names inode {found}, which is no directory",
        "make a directory in its place";
    LostFoundEncrypted = "lost-found-encrypted", Damage, Name, ["PR_3_LPF_ENCRYPTED"],
        "/lost+found is encrypted, so that no name can be added",
        "make a directory in its place";
}
