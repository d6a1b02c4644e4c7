//! The members of the ext family.

/// `-t`: the family of features and defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FsType {
    /// No journal, block maps.
    Ext2,
    /// A journal, block maps.
    Ext3,
    /// A journal, extents, flexible groups, checksums, 64 bits.
    #[default]
    Ext4,
}

impl FsType {
    /// From the value of `-t`.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "ext2" => Self::Ext2,
            "ext3" => Self::Ext3,
            "ext4" => Self::Ext4,
            _ => return None,
        })
    }
}
