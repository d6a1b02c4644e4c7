//! A reference to an inode in use: the inode stays valid, even without a name, until the last
//! user drops it.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};

use uext4_ondisk::{Damage, Geometry, Ino};
use uext4_writeback::Place;

use crate::base::caller::Caller;
use crate::base::error::{Error, Result};
use crate::dir::namei::is_hidden;
use crate::file;
use crate::file::auto_da_alloc;
use crate::file::evict;
use crate::file::pages::FilePages;
use crate::file::quota_change;
use crate::inode::icache::{Cell, PagesOf, WithPages};
use crate::journal::error_record;
use crate::journal::sbi::Sbi;
use crate::map::data_blocks;

/// An inode of a file system mounted for writing, in use on behalf of a caller. Each clone is a
/// user of its own. An inode without a name is deleted when its last user is dropped.
#[derive(Debug)]
pub(crate) struct InodeRef {
    user: Arc<User>,
    caller: Caller,
}

/// A user of an inode, on behalf of any number of callers.
#[derive(Debug)]
struct User {
    sbi: Arc<Sbi>,
    cell: Arc<Cell>,
    /// Write-back errors that were reported to this user.
    seen: AtomicU64,
    /// Whether this user received the error that its data may be lost because writing was
    /// aborted.
    knows_abort: AtomicBool,
    /// One of [`READS`], [`WRITES`], [`SERVES`].
    role: AtomicU8,
}

/// A user that has written no data.
const READS: u8 = 0;
/// A user that has the inode open for writing: it is counted in its cell until it is dropped.
const WRITES: u8 = 1;
/// A user through which others write, who have the inode open themselves: it is never counted.
const SERVES: u8 = 2;

/// The approximate location of an inode's data: allocation begins in its group, and the groups of
/// a flex group have their bitmaps next to each other.
fn place(geometry: &Geometry, ino: Ino) -> Place {
    let group = geometry.inode_group(ino).map_or(0, |(group, _)| group.0);
    let bits = u32::from(geometry.log_groups_per_flex);
    Place {
        area: group.checked_shr(bits).unwrap_or(0).into(),
        order: ino.0.into(),
    }
}

impl InodeRef {
    /// Wraps a cell that was taken from the cache with its user count incremented.
    pub(crate) fn new(sbi: &Arc<Sbi>, cell: Arc<Cell>) -> Self {
        let seen = cell.pages_if_any().map_or(0, PagesOf::error_token);
        let user = User {
            sbi: Arc::clone(sbi),
            cell,
            seen: AtomicU64::new(seen),
            knows_abort: AtomicBool::new(false),
            role: AtomicU8::new(READS),
        };
        Self {
            user: Arc::new(user),
            caller: Caller::default(),
        }
    }

    /// Returns this user, acting for `caller`.
    pub(crate) fn with_caller(self, caller: Caller) -> Self {
        Self { caller, ..self }
    }

    /// Returns another handle of the same user that acts for `caller`.
    pub(crate) fn as_caller(&self, caller: Caller) -> Self {
        Self {
            user: Arc::clone(&self.user),
            caller,
        }
    }

    /// The caller that it acts for.
    pub(crate) fn caller(&self) -> Caller {
        self.caller
    }

    /// Adds a user to an inode.
    pub(crate) fn get(sbi: &Arc<Sbi>, ino: Ino) -> Result<Self> {
        // A caller that could change the journal's file, for example, would overwrite the
        // journal's blocks.
        if is_hidden(sbi, ino) {
            return Err(Error::Corrupt(Damage::InodeNumber {
                what: "name or orphan",
                ino,
                inodes_count: sbi.geometry().inodes_count,
            }));
        }
        let mut unknown = None;
        let rw = sbi.writable()?;
        let (cell, is_new) = rw.inodes.get(sbi, ino, |inode| {
            // Otherwise its last user would free blocks a second time that may belong to another
            // file by then.
            if inode.links == 0 && !rw.orphans.contains(ino) {
                let why = "it was deleted";
                return Err(Error::Corrupt(Damage::UnusedInode { ino, why }));
            }
            quota_change::attach(sbi, inode)?;
            unknown = inode.owners.clone().filter(|owners| !owners.is_placed());
            Ok(())
        })?;
        let inode = Self::new(sbi, cell);
        if is_new {
            sbi.relieve();
        }
        if let Some(owners) = unknown {
            // The id had no entry although it owns an inode: its usage will be wrong until e2fsck
            // recounts it, with an entry or without.
            _ = quota_change::place(sbi, Caller::default(), &owners);
        }
        Ok(inode)
    }

    /// Adds another user, which is notified only of errors from now on.
    pub(crate) fn reopened(&self) -> Self {
        self.add_user();
        Self::new(self.sbi(), Arc::clone(&self.user.cell)).with_caller(self.caller)
    }

    /// Records that this user writes data: it has the inode open for writing until it is dropped.
    /// Many threads may share the flag; its cache line is written once.
    pub(crate) fn note_writing(&self) {
        let user = &self.user;
        let is_new = user.role.load(Relaxed) == READS
            && user
                .role
                .compare_exchange(READS, WRITES, Relaxed, Relaxed)
                .is_ok();
        if is_new {
            user.cell.begin_writing();
        }
    }

    /// Records that others write through this user, who have the inode open themselves. One that
    /// has written already stays what it is.
    pub(crate) fn note_serving(&self) {
        let role = &self.user.role;
        // The first of two threads is right, and the result says nothing more.
        _ = role.compare_exchange(READS, SERVES, Relaxed, Relaxed);
    }

    /// Whether this user has the inode open for writing.
    pub(crate) fn is_writing(&self) -> bool {
        self.user.role.load(Relaxed) == WRITES
    }

    /// The inode number.
    pub(crate) fn ino(&self) -> Ino {
        self.user.cell.ino
    }

    /// The inode's pages.
    pub(crate) fn pages(&self) -> Result<&PagesOf> {
        let sbi = self.sbi();
        let rw = sbi.writable()?;
        Ok(self.user.cell.pages_or(|cell| {
            rw.inodes.made_pages();
            let mapping = Arc::new(FilePages::new(sbi, &cell));
            let weak = Arc::downgrade(&mapping);
            let pages = rw.pages.file_at(weak, place(sbi.geometry(), self.ino()));
            WithPages {
                pages,
                _mapping: mapping,
            }
        }))
    }

    /// Writes all dirty pages of the inode.
    pub(crate) fn write_pages(&self) -> Result<()> {
        self.user.write_pages()
    }

    /// Errors of writing its data that this user has been notified, as a number that grows.
    pub(crate) fn reported_errors(&self) -> u64 {
        self.user.seen.load(Relaxed)
    }

    /// Whether data of it were given up since this user had been notified so many errors.
    pub(crate) fn gave_up_since(&self, reported: u64) -> bool {
        let pages = self.pages_if_any();
        pages.is_some_and(|pages| pages.gave_up_since(reported))
    }

    /// Maps the error that fsync returns to this user after an error has ended all writing: the
    /// first time, that data may be lost (EIO), and from then on that writing is not allowed
    /// (EROFS).
    pub(crate) fn failed_sync(&self, error: Error) -> Error {
        let is_aborted = self.sbi().rw().is_some_and(|rw| rw.journal.is_aborted());
        let is_first = is_aborted && !self.user.knows_abort.swap(true, Relaxed);
        match error {
            Error::Aborted { reason } if is_first => Error::NotDurable { reason },
            error => error,
        }
    }

    /// The file system.
    pub(crate) fn sbi(&self) -> &Arc<Sbi> {
        &self.user.sbi
    }
}

impl Clone for InodeRef {
    fn clone(&self) -> Self {
        let user = &self.user;
        user.cell.add_user();
        let user = User {
            sbi: Arc::clone(&user.sbi),
            cell: Arc::clone(&user.cell),
            seen: AtomicU64::new(user.seen.load(Relaxed)),
            knows_abort: AtomicBool::new(user.knows_abort.load(Relaxed)),
            role: AtomicU8::new(READS),
        };
        Self {
            user: Arc::new(user),
            caller: self.caller,
        }
    }
}

impl Deref for InodeRef {
    type Target = Cell;

    fn deref(&self) -> &Cell {
        &self.user.cell
    }
}

impl User {
    fn write_pages(&self) -> Result<()> {
        let Some(pages) = self.cell.pages_if_any() else {
            return Ok(());
        };
        Ok(pages.sync(0..uext4_writeback::OFFSET_MAX, &self.seen)?)
    }
}

impl Drop for User {
    fn drop(&mut self) {
        // Users that only read the file while it is being written do not count as closing it.
        let closes = self.role.load(Relaxed) == WRITES;
        if closes {
            // First: what is written now is placed as the data of a file that will not grow.
            self.cell.end_writing();
            auto_da_alloc::close(&self.cell);
        }
        let Some(rw) = self.sbi.rw() else {
            return;
        };
        // Writing pages needs the file system, which is torn down with the last user.
        if rw.writes_on_drop.load(Relaxed)
            && !std::thread::panicking()
            && let Err(error) = self.write_pages()
        {
            tracing::error!(%error, ino = self.cell.ino.0, "data of an inode were not written");
        }
        if rw.inodes.put(&self.cell) {
            // A deletion that fails leaves an orphan. A later tick deletes it, or the next mount
            // if no error is recorded by then.
            let evicted = evict::evict(&self.sbi, &self.cell);
            let evicted = error_record::noted(&self.sbi, self.cell.ino, evicted);
            if evicted.is_err_and(|error| evict::may_go_on(rw, &error)) {
                rw.unfinished.note_deletion(&self.cell);
            }
        } else {
            file::pages::settle_lost(&self.sbi, &self.cell);
            if closes {
                data_blocks::discard_if_left(&self.sbi, &self.cell);
            }
        }
    }
}
