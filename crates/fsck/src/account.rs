//! What a repair takes out of the tree: the tree before, as far as it can be read, against the tree
//! that its remedies make.
//!
//! Findings know what their remedies lose at worst; this knows what they lose. Both trees are read
//! by the same walks that the passes use, which show what can be used of a damaged map or
//! directory. So what is counted could be read before: what the damage took is no loss of the
//! repair. The journal is replayed first, and what it says is no loss either.
//!
//! ```text
//! tables before │ after ─▶ inodes that are gone, or differ ─▶ bytes, attributes
//! maps before           ─▶ directories with changed blocks ─▶ names
//! ```
//! Inodes are compared one by one, in the order of the tables; of all that is equal nothing is
//! kept. Maps are walked only if blocks changed that may be a file's. Memory is a word for each
//! changed block, each inode that is gone and each name of one directory; nothing is done where
//! nothing was found. Many inodes that claim the same blocks end the count early: it is a lower
//! bound then.

mod attributes;
mod before;
mod contents;
mod names;
mod pair;
mod walk;

use std::sync::Arc;

use rustc_hash::FxHashMap;
use uext4_blockdev::BlockDevice;
use uext4_ondisk::Ino;

use crate::error::{Error, Result};
use crate::journal;
use crate::options::Options;
use crate::overlay::Overlay;
use crate::report::Findings;
use crate::state::State;

/// Most names that are kept to be shown.
const SHOWN_MAX: usize = 20;

/// What a repair takes out of the tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lost {
    /// Files, of any type, that had a name and are not there any more.
    pub files: u64,
    /// Names that led to an inode in use and do not any more.
    pub names: u64,
    /// Bytes of regular files and symbolic links that do not read as before: zeroes, others, or
    /// past the end. Those of the files that are gone are among them.
    pub bytes: u64,
    /// Files whose permissions, owner, times, flags or extended attributes are not those of before.
    pub attributes: u64,
    /// How many of the names are lost with an inode table or a root directory that is made anew,
    /// empty, because the one that was there was found nowhere.
    pub with_structures: u64,
    /// Blocks of which the journal held a newer copy that was not replayed, because its log, or the
    /// copy, is damaged: at most so many were committed and not yet in their places.
    pub journal_blocks: u64,
    /// Some of the names, in the order of their directories.
    pub shown: Vec<LostName>,
}

/// A name that is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostName {
    /// The directory.
    pub directory: Ino,
    /// The name as stored.
    pub name: Vec<u8>,
    /// The inode that it led to.
    pub ino: Ino,
}

impl Lost {
    /// Whether nothing is lost.
    pub fn is_nothing(&self) -> bool {
        [
            self.files,
            self.names,
            self.bytes,
            self.attributes,
            self.journal_blocks,
        ] == [0; 5]
    }
}

/// Compares the tree on `device` with that of `after`, which is what remedies made of it;
/// `findings` know which structures were made anew. `None` if the tree before cannot be read,
/// wholly or in a part that is compared.
///
/// # Errors
/// Of the overlay; [`crate::Error::Cancelled`].
pub fn compare(
    device: &Arc<dyn BlockDevice>,
    options: &Options,
    after: Overlay,
    findings: &Findings<'_>,
) -> Result<(Option<Lost>, Overlay)> {
    // What this finds is known already.
    let silent = Findings::new(&(), 0);
    let after = before::volume(after, options)?;
    let after = State::new(options, &silent, after);
    crate::inodes::claim_metadata(&after);
    let counted = before::Before::new(device, options, &silent, &after);
    let counted = counted.and_then(|before| count(before.as_ref(), &after, findings));
    let lost = match counted {
        // A remedy may replace what the device cannot read.
        Err(Error::Device(_)) => None,
        counted => counted?,
    };
    Ok((lost, after.volume.into_overlay()))
}

fn count(
    before: Option<&before::Before<'_>>,
    after: &State<'_>,
    findings: &Findings<'_>,
) -> Result<Option<Lost>> {
    let Some(before) = before else {
        return Ok(None);
    };
    let mut lost = Lost::default();
    let mut walked = walk::inodes(before, after, findings, &mut lost)?;
    let emptied = findings.emptied();
    names::count(before, after, &mut walked, &emptied, &mut lost)?;
    lost.journal_blocks = emptied.left_out;
    if emptied.log {
        // Last, because it changes what the journal's superblock says.
        lost.journal_blocks += journal::unreplayed(&before.state.volume, findings)?;
    }
    Ok(Some(lost))
}

/// What the walk over inodes leaves to that over names.
#[derive(Debug, Default)]
struct Walked {
    /// Inodes that are gone, with the bytes that could be read of them.
    gone: FxHashMap<Ino, u64>,
    /// Directories whose names may differ.
    directories: Vec<Ino>,
}
