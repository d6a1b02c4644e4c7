//! `auto_da_alloc`: data that replaces older contents of a file does not wait for a flusher.
//!
//! Programs replace a file by writing another one and renaming it, or by truncating the file to
//! zero and writing it anew, mostly without fsync. The commit makes the new name, or the
//! truncation, durable within seconds, while delayed data would wait for half a minute: a crash
//! between the two would leave an empty file instead of either contents. So a rename over an
//! existing file writes the dirty data of its source before it starts its handle, and closing a
//! file that was truncated to zero writes the data that is dirty then. Both map the data in the
//! transaction of the change or in an earlier one, and the flush before a commit block makes the
//! data durable (`data=ordered`). No thread waits for a flush of the device here.

use std::sync::atomic::Ordering::Relaxed;

use uext4_ondisk::inode::FileType;
use uext4_writeback::OFFSET_MAX;

use crate::inode::icache::Cell;
use crate::journal::sbi::Sbi;

/// Whether a file has data that must be written before it replaces another file in a rename.
pub(crate) fn is_unwritten(sbi: &Sbi, file: &Cell) -> bool {
    let is_on = sbi.rw().is_some_and(|rw| rw.limits.auto_da_alloc);
    is_on && is_dirty(file)
}

fn is_dirty(file: &Cell) -> bool {
    let pages = file.pages_if_any();
    pages.is_some_and(uext4_writeback::FilePages::is_dirty)
}

/// Writes the dirty data of a file. The caller holds no handle; it may hold `Names` locks. Data
/// that cannot be written stays dirty, and the next fsync of the file reports the error.
pub(crate) fn write(file: &Cell) {
    if let Some(pages) = file.pages_if_any() {
        _ = pages.flush(0..OFFSET_MAX);
    }
}

/// Records that a non-empty file was truncated to zero.
pub(crate) fn note_cut(sbi: &Sbi, file: &Cell) {
    if sbi.rw().is_some_and(|rw| rw.limits.auto_da_alloc) {
        file.cut_to_zero.store(true, Relaxed);
    }
}

/// Whether the file was truncated to zero and has new data, which is written when it is closed.
pub(crate) fn writes_on_close(file: &Cell) -> bool {
    // Checked at each close, and true for few files.
    file.cut_to_zero.load(Relaxed) && is_dirty(file) && is_named_file(file)
}

/// An inode without a name has no contents to protect.
fn is_named_file(file: &Cell) -> bool {
    let inode = file.inode.read();
    inode.file_type == FileType::Regular && inode.links > 0
}

/// Writes the new data of a file that was truncated to zero, when one of its users drops it.
pub(crate) fn close(file: &Cell) {
    if writes_on_close(file) && file.cut_to_zero.swap(false, Relaxed) {
        write(file);
    }
}
