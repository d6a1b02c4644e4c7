//! What is asked of the listed sources before the image is filled.

use std::path::PathBuf;

use uext4_ondisk::inode::{FileType, GOOD_OLD_INODE_SIZE};

use crate::error::Error;
use crate::source::{Source, Warnings};
use crate::tree::{EntryId, Tree};
/// What a registry or a container engine stores is not the tree of files that its containers see.
///
/// # Errors
/// [`Error::ContainerImage`].
pub fn refuse_container_image(alone: Option<Source>, tree: &Tree) -> Result<(), Error> {
    let Some(source) = alone else {
        return Ok(());
    };
    let has = |name: &[u8]| tree.child(EntryId::ROOT, name).is_some();
    let has_layers = || {
        let mut entries = tree.children(EntryId::ROOT);
        entries.any(|entry| tree.child(entry, b"layer.tar").is_some())
    };
    let what = if has(b"manifest.json") && (has(b"repositories") || has(b"blobs") || has_layers()) {
        "a docker-archive"
    } else if has(b"oci-layout") && has(b"index.json") {
        "an OCI image layout"
    } else {
        return Ok(());
    };
    let path = match source {
        Source::Directory(path) | Source::TarFile(path) => path,
        _ => PathBuf::from("-"),
    };
    Err(Error::ContainerImage { path, what })
}

/// The files that come first, as the options name them.
pub fn first_files(tree: &Tree, order: &[Vec<u8>], warnings: &mut Warnings) -> Vec<EntryId> {
    let mut first = Vec::with_capacity(order.len());
    for path in order {
        match tree.lookup(path) {
            Some(entry) if tree.node_of(entry).file_type() == FileType::Regular => {
                if tree.node_of(entry).size() > 0 {
                    first.push(entry);
                }
            }
            _ => warnings.add(path, "is to come first, and is not a file of the image"),
        }
    }
    first
}

/// Names what has a time that 32 bits do not hold, which is all that inodes of 128 bytes have.
pub fn warn_of_times(tree: &Tree, inode_size: u16, warnings: &mut Warnings) {
    if usize::from(inode_size) > GOOD_OLD_INODE_SIZE {
        return;
    }
    for entry in tree.entries() {
        let mut times = tree.node_of(entry).times().into_iter();
        if times.any(|time| i32::try_from(time.sec).is_err()) {
            let what = "its times lie outside of 1901 to 2038, which inodes of 128 bytes cannot \
                        hold: they are stored as others; make the image with -I 256";
            warnings.add(&tree.path(entry), what);
        }
    }
}
