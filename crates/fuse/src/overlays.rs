//! Handles that overlayfs decodes on this mount, and would be refused the use of.
//!
//! overlayfs stores with each file that it copies up the handle of the lower one, in the attribute
//! `overlay.origin`, and decodes it when it sees the file anew. The kernel asks for the inode by
//! LOOKUP of "." and makes a dentry that has no name. Kernels whose dentries belong to an epoch
//! (`FUSE_NOTIFY_INC_EPOCH`, protocol 7.44, Linux 6.16) give that dentry none, and so take it for
//! one of an epoch that is over as soon as overlayfs looks at it again: the file answers once, and
//! is ESTALE, and missing in listings, from then on. No answer of ours can mend such a dentry; only
//! those that were looked up by name are sound, as those of directories are, which the kernel looks
//! up after it has decoded their handle.
//!
//! Where a handle is stale from the beginning, overlayfs does without the lower file: names,
//! contents and attributes are those of the upper one, and so is the number of the inode. So on
//! these kernels the LOOKUP of a handle that the same thread has just read from that attribute is
//! ESTALE. Handles that programs keep (`open_by_handle_at`, NFS) are decoded: their dentries are
//! not looked at again.
//!
//! Lock: a leaf.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use zerocopy::FromBytes;

/// The first minor version of the protocol whose kernels know epochs.
const EPOCHS: u32 = 44;
/// The attribute, by root and with the option `userxattr`.
const ORIGIN: [&[u8]; 2] = [b"trusted.overlay.origin", b"user.overlay.origin"];
/// What a value begins with: version, magic number, length, flags, and the type of a handle.
const MAGIC: u8 = 0xfb;
/// Types of handles of FUSE: without and with the parent.
const TYPES: [u8; 2] = [0x81, 0x82];
/// Where the node is in a value, behind that and a UUID: the upper half, then the lower one.
const NODE: usize = 5 + 16;
/// How long a thread takes between the requests at most. They are of the same system call.
const PATIENCE: Duration = Duration::from_secs(1);
/// Threads that are remembered at most.
const THREADS_MAX: usize = 1024;

/// The handles that threads have just read, by the threads' numbers.
#[derive(Debug, Default)]
pub struct Origins(Mutex<FxHashMap<u32, (u64, Instant)>>);

/// The node of a handle in the value of the attribute.
fn node_in(value: &[u8]) -> Option<u64> {
    let is_handle = value.get(1) == Some(&MAGIC) && TYPES.contains(value.get(4)?);
    let half = |at: usize| -> Option<u64> {
        let half = u32::read_from_bytes(value.get(at..at + 4)?).ok()?;
        Some(half.into())
    };
    let node = half(NODE)? << 32 | half(NODE + 4)?;
    is_handle.then_some(node)
}

impl Origins {
    /// A thread of a kernel that speaks so has read an attribute.
    pub fn was_read(&self, minor: u32, thread: u32, name: &[u8], value: &[u8]) {
        if minor < EPOCHS || !ORIGIN.contains(&name) {
            return;
        }
        let Some(node) = node_in(value) else { return };
        let mut all = self.0.lock();
        if all.len() >= THREADS_MAX {
            all.clear();
        }
        all.insert(thread, (node, Instant::now()));
    }

    /// Whether it is overlayfs that has a thread decode the handle of this node: it tries one layer
    /// after the other, the upper one first.
    pub fn decodes(&self, thread: u32, node: u64) -> bool {
        let read = self.0.lock().get(&thread).copied();
        read.is_some_and(|(of, at)| of == node && at.elapsed() < PATIENCE)
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;

    /// As overlayfs has stored it on Linux 6.18: version, magic number, 33 bytes, type.
    fn value(node: u64) -> Vec<u8> {
        let mut value = vec![0, MAGIC, 33, 0, 0x81];
        value.extend([0; 16]);
        value.extend(((node >> 32) as u32).as_bytes());
        value.extend((node as u32).as_bytes());
        value.extend(7u32.as_bytes());
        value
    }

    #[test]
    fn only_what_a_thread_has_just_read_is_decoded_by_overlayfs() {
        let origins = Origins::default();
        let read = |minor, name: &[u8], value: &[u8]| origins.was_read(minor, 5, name, value);
        read(EPOCHS, ORIGIN[0], &value(15));
        assert!(!origins.decodes(5, 16) && !origins.decodes(6, 15));
        // For each layer.
        assert!(origins.decodes(5, 15) && origins.decodes(5, 15));
        read(EPOCHS, ORIGIN[1], &value(3 << 32 | 9));
        assert!(origins.decodes(5, 3 << 32 | 9) && !origins.decodes(5, 15));
        for (minor, name, value) in [
            (EPOCHS - 1, ORIGIN[0], value(15)),
            (EPOCHS, &b"trusted.overlay.opaque"[..], value(15)),
            (EPOCHS, ORIGIN[0], value(15)[..28].to_vec()),
            (EPOCHS, ORIGIN[0], vec![0; 33]),
            (EPOCHS, ORIGIN[0], Vec::new()),
        ] {
            read(minor, name, &value);
            assert!(!origins.decodes(5, 15), "{minor} {value:?}");
        }
        for thread in 0..3 * THREADS_MAX as u32 {
            origins.was_read(EPOCHS, thread, ORIGIN[0], &value(15));
        }
        assert!(origins.0.lock().len() <= THREADS_MAX);
    }
}
