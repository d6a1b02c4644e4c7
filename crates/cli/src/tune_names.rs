//! Names of bits in the superblock that `info` shows and `tune` sets: those of tune2fs.

/// `s_flags`.
pub const FLAGS: [(&str, u32); 3] = [
    ("signed_directory_hash", 0x1),
    ("unsigned_directory_hash", 0x2),
    ("test_filesystem", 0x4),
];

/// `s_default_mount_opts`.
pub const MOUNT_OPTIONS: [(&str, u32); 12] = [
    ("debug", 0x1),
    ("bsdgroups", 0x2),
    ("user_xattr", 0x4),
    ("acl", 0x8),
    ("uid16", 0x10),
    ("journal_data", 0x20),
    ("journal_data_ordered", 0x40),
    ("journal_data_writeback", 0x60),
    ("nobarrier", 0x100),
    ("block_validity", 0x200),
    ("discard", 0x400),
    ("nodelalloc", 0x800),
];

/// The three ways to journal data are values of these two bits.
pub const MOUNT_DATA_MODE: u32 = 0x60;
