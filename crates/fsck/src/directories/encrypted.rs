//! Encrypted directories: what their entries name is encrypted under the same policy.
//!
//! Names are any bytes, at least one block of the cipher long. The policy is the encryption
//! context without its nonce. Devices, sockets and fifos are never encrypted.

use uext4_ondisk::encryption::{ENCRYPTION_CONTEXT_NAME, EncryptionContext};
use uext4_ondisk::inode::{FileType, GOOD_OLD_INODE_SIZE, InodeFlags, RawInode};
use uext4_ondisk::xattr::{
    INDEX_ENCRYPTION, XATTR_BLOCK_HEADER_LEN, XATTR_IBODY_HEADER_LEN, XattrEntry, XattrPlace,
    XattrValue, parse_entries,
};
use uext4_ondisk::{Ino, Pblk};

use super::reread;
use super::{Dir, Worker};
use crate::directory_list::Run;
use crate::error::Result;
use crate::finding::Finding;
use crate::problem::DirectoryProblem;
use crate::state::State;

/// Bytes of the shortest encrypted name.
pub(super) const ENCRYPTED_NAME_MIN: usize = 16;

/// An inode that an encrypted directory names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Child {
    ino: Ino,
    is_encrypted: bool,
}

impl Child {
    pub(super) fn new(ino: Ino, file_type: FileType) -> Self {
        use FileType::{Directory, Regular, Symlink};
        Self {
            ino,
            is_encrypted: matches!(file_type, Regular | Directory | Symlink),
        }
    }
}

/// How something is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    /// Not at all.
    None,
    /// In a way that cannot be read: the pass over inodes has had its say.
    Unknown,
    /// By this context, its nonce zero.
    Known(EncryptionContext),
}

impl Worker<'_, '_> {
    /// Compares the policies of what an encrypted directory names with its own.
    pub(super) fn encrypted(&mut self, dir: &Dir, runs: &[Run]) -> Result<()> {
        if self.children.is_empty() {
            return Ok(());
        }
        let own = policy(self.state, dir.ino)?;
        let mut children = std::mem::take(&mut self.children);
        children.retain(|child| child.is_encrypted);
        children.sort_unstable();
        children.dedup();
        let mut wrong = Vec::new();
        for child in &children {
            let of_child = policy(self.state, child.ino)?;
            let problem = match (own, of_child) {
                (Policy::Known(_), Policy::None) => DirectoryProblem::Unencrypted,
                (Policy::Known(a), Policy::Known(b)) if a != b => {
                    DirectoryProblem::EncryptionPolicy
                }
                _ => continue,
            };
            wrong.push((child.ino, problem));
        }
        self.children = children;
        if wrong.is_empty() {
            return Ok(());
        }
        let mut spots = Vec::new();
        reread::for_each(self.state, dir.ino, dir.source(runs), |seen| {
            if let Ok(at) = wrong.binary_search_by_key(&seen.ino, |(ino, _)| *ino) {
                spots.push((seen.spot, seen.ino, seen.name.to_vec(), at));
            }
            Ok(())
        })?;
        for (spot, ino, name, at) in spots {
            let Some((_, problem)) = wrong.get(at) else {
                continue;
            };
            let finding = Finding::new(*problem, spot.place(dir.ino).name(&name)).found(ino.0);
            let cause = self.state.report(finding);
            reread::remove(self.state, dir.ino, dir.seed, &spot, cause)?;
            self.forget(dir, ino);
        }
        Ok(())
    }
}

/// How an inode is encrypted.
fn policy(state: &State<'_>, ino: Ino) -> Result<Policy> {
    let Some(bytes) = state.volume.read_inode(ino)? else {
        return Ok(Policy::Unknown);
    };
    let Ok(raw) = RawInode::parse(&bytes, ino) else {
        return Ok(Policy::Unknown);
    };
    let flags = InodeFlags::from_bits_retain(raw.i_flags.get());
    if !flags.contains(InodeFlags::ENCRYPT) {
        return Ok(Policy::None);
    }
    let extra = usize::from(raw.i_extra_isize.get());
    let list = GOOD_OLD_INODE_SIZE + extra + XATTR_IBODY_HEADER_LEN;
    let region = bytes.get(list..).unwrap_or_default();
    if let Ok(entries) = parse_entries(region, 0, XattrPlace::Inode(ino))
        && let Some(policy) = entries.iter().find_map(context)
    {
        return Ok(policy);
    }
    let high = u64::from(raw.i_file_acl_high.get()) << 32;
    let block = Pblk(u64::from(raw.i_file_acl_lo.get()) | high);
    if block.0 == 0 || !state.geometry().contains(block, 1) {
        return Ok(Policy::Unknown);
    }
    let mut bytes = vec![0; state.geometry().block_size.len()];
    state.volume.overlay().read_block(block, &mut bytes)?;
    let entries = parse_entries(&bytes, XATTR_BLOCK_HEADER_LEN, XattrPlace::Block(block));
    let entries = entries.unwrap_or_default();
    Ok(entries.iter().find_map(context).unwrap_or(Policy::Unknown))
}

/// The policy, if this attribute is an encryption context.
fn context(entry: &XattrEntry<'_>) -> Option<Policy> {
    let XattrValue::Here(value) = entry.value else {
        return None;
    };
    if entry.index != INDEX_ENCRYPTION || entry.name != ENCRYPTION_CONTEXT_NAME {
        return None;
    }
    let mut context = EncryptionContext::parse(value).ok()?;
    match &mut context {
        EncryptionContext::V1(v1) => v1.nonce = [0; 16],
        EncryptionContext::V2(v2) => v2.nonce = [0; 16],
    }
    Some(Policy::Known(context))
}
