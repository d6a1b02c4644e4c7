//! The caller of an operation: it decides whether the blocks that are reserved for the superuser
//! may be used. Permissions are not decided here.

/// The caller of an operation; by default the superuser.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}
