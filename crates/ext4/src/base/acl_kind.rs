//! The two ACLs an inode may have, as attributes know them.

use uext4_ondisk::xattr::{INDEX_POSIX_ACL_ACCESS, INDEX_POSIX_ACL_DEFAULT};

/// Which of an inode's two ACLs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AclKind {
    /// Who may access it.
    Access,
    /// What is made in this directory begins with it.
    Default,
}

impl AclKind {
    /// Of an attribute with this `e_name_index`.
    pub(crate) fn of_index(index: u8) -> Option<Self> {
        match index {
            INDEX_POSIX_ACL_ACCESS => Some(Self::Access),
            INDEX_POSIX_ACL_DEFAULT => Some(Self::Default),
            _ => None,
        }
    }

    /// `e_name_index` of its attribute, whose name has nothing more.
    pub(crate) fn index(self) -> u8 {
        match self {
            Self::Access => INDEX_POSIX_ACL_ACCESS,
            Self::Default => INDEX_POSIX_ACL_DEFAULT,
        }
    }
}
