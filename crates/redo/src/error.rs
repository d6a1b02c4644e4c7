//! Why a log could not be read or finished.

use uext4_ondisk::mmp::{MmpBlock, MmpState};

/// Why something could not be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] uext4_blockdev::Error),
    /// Another host has the file system, by the block for multiple mount protection.
    #[error(
        "the file system is marked as {state} by \"{node}\"; if no host has it, clear the mark by \
         `uext4 tune -f -E clear_mmp IMAGE`"
    )]
    InUse {
        /// What the host does with it.
        state: &'static str,
        /// Its name, escaped.
        node: String,
    },
    /// The block for multiple mount protection cannot be read as one.
    #[error("the block for multiple mount protection is damaged: `uext4 repair IMAGE` mends it")]
    MmpDamaged,
    /// The device ends before its superblock does.
    #[error("the device ends before its superblock")]
    NoSuperblock,
}

impl Error {
    /// The refusal of a file system that another host has.
    pub fn in_use(block: &MmpBlock) -> Self {
        let state = match block.state() {
            Some(MmpState::Fsck) => "being examined",
            _ => "mounted",
        };
        let node = block.mmp_nodename.split(|&byte| byte == 0).next();
        Self::InUse {
            state,
            node: node.unwrap_or_default().escape_ascii().to_string(),
        }
    }
}

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
