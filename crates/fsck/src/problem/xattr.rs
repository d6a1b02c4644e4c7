//! What can be wrong with extended attributes.

super::problems! {
    /// A problem of extended attributes.
    XattrProblem:
    BlockMagic = "xattr-block-magic", Damage, Attributes, ["PR_1_BAD_EA_BLOCK"],
        "the block of attributes begins with {found} instead of its magic number",
        "clear i_file_acl of the inodes that refer to it";
    BlockCount = "xattr-block-count", Damage, Nothing, ["PR_1_EA_MULTI_BLOCK"],
        "the attributes are said to take {found} blocks instead of 1", "store 1";
    BlockChecksum = "xattr-block-checksum", Safe, Nothing, ["PR_1_EA_BLOCK_ONLY_CSUM_INVALID"],
        "the checksum of the block of attributes is {found}, {right} would match its contents",
        "store the checksum of the attributes that can be kept";
    BlockEmptied = "xattr-block-emptied", Damage, Attributes, ["PR_1_BAD_EA_BLOCK"],
        "no attribute of the block can be kept",
        "clear i_file_acl of the inodes that refer to it";
    BlockLost = "xattr-block-lost", Damage, Attributes, ["PR_1_BAD_EA_BLOCK"],
        "the inode refers to block {found}, which holds no attributes that can be kept",
        "clear i_file_acl";
    Order = "xattr-order", Safe, Nothing, [],
        "the attributes are not in the order in which the kernel looks for them", "sort them";
    List = "xattr-list", Damage, Attributes, ["PR_1_ATTR_NAME_LEN", "PR_1_EA_BAD_NAME"],
        "the list of attributes has no end; those from here on cannot be read",
        "drop the rest of the list";
    Name = "xattr-name", Damage, Attributes, ["PR_1_EA_BAD_NAME"],
        "the name of the attribute cannot be one", "drop the attribute";
    EmptyValue = "xattr-empty-value", Safe, Nothing, ["PR_1_ATTR_VALUE_OFFSET"],
        "the value of the attribute has no bytes, but the offset {found}", "store 0";
    Value = "xattr-value", Damage, Attributes,
        ["PR_1_ATTR_VALUE_OFFSET", "PR_1_ATTR_VALUE_SIZE", "PR_1_EA_BAD_VALUE"],
        "the value of the attribute, {found} bytes, does not lie where it must",
        "drop the attribute";
    Overlap = "xattr-overlap", Damage, Attributes,
        ["PR_1_EA_ALLOC_COLLISION", "PR_1_INODE_EA_ALLOC_COLLISION"],
        "the value of the attribute lies over another value or over the list",
        "drop the attribute";
    Context = "xattr-encryption-context", Damage, Attributes,
        ["PR_1_CORRUPT_ENCRYPTION_XATTR"],
        "the encryption context, {found} bytes, cannot be one", "drop the attribute";
    ContextMissing = "xattr-encryption-missing", Damage, Attributes,
        ["PR_1_MISSING_ENCRYPTION_XATTR"],
        "the inode is marked as encrypted and has no encryption context", "clear ENCRYPT";
    Hash = "xattr-hash", Damage, Attributes, ["PR_1_ATTR_HASH"],
        "the hash of the attribute is {found} instead of {right}", "drop the attribute";
    ValueFeature = "xattr-value-feature", Damage, Attributes, ["PR_1_ATTR_VALUE_BLOCK"],
        "the attribute's value is in inode {found}, without the feature ea_inode",
        "drop the attribute";
    ValueOfReserved = "xattr-value-of-reserved-inode", Damage, Attributes, [],
        "the attribute belongs to a reserved inode, and its value is in inode {found}",
        "drop the attribute";
    ValueInode = "xattr-value-inode", Damage, Attributes,
        ["PR_1_ATTR_VALUE_EA_INODE", "PR_1_ATTR_NO_EA_INODE_FL"],
        "the attribute's value is in inode {found}, which does not hold it",
        "drop the attribute";
    ValueInodeFlag = "xattr-value-inode-flag", Damage, Nothing, ["PR_1_ATTR_SET_EA_INODE_FL"],
        "the inode holds the value of an attribute and is not marked so", "set EA_INODE";
    ValueHash = "xattr-value-hash", Damage, Attributes, [],
        "the value's hash is {found}, that of its bytes {right}: the value has changed",
        "store the hash of the bytes, and drop the attributes whose value it no longer is";
    ValueReferences = "xattr-value-references", Safe, Nothing, ["PR_4_EA_INODE_REF_COUNT"],
        "the value counts {found} references, there are {right}", "store the number counted";
    ValueUnused = "xattr-value-unused", Damage, Nothing, [],
        "the inode holds the value of an attribute that does not exist", "delete it";
    ValueNamed = "xattr-value-named", Damage, Nothing, [],
        "the inode is marked as the value of an attribute, and is a file with a name",
        "clear EA_INODE";
    References = "xattr-references", Safe, Nothing, ["PR_1_EXTATTR_REFCOUNT"],
        "the block counts {found} references, there are {right}", "store the number counted";
}
