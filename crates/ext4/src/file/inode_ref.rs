//! An inode that a thread uses: it stays what it is, even without a name, until the last user is
//! gone.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

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

/// An inode of a file system mounted for writing, in use on behalf of a caller. Clones are users of
/// their own. An inode without a name is deleted when its last user is dropped.
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
    /// Errors of writing its data that were reported to this user.
    seen: AtomicU64,
    /// It was reported to this user that what it wrote may be lost because writing has ended.
    knows_abort: AtomicBool,
    /// Whether this user writes its data.
    writes: AtomicBool,
}

/// Where the data of an inode lie, about: allocation begins in its group, and the groups of a flex
/// group have their bitmaps side by side.
fn place(geometry: &Geometry, ino: Ino) -> Place {
    let group = geometry.inode_group(ino).map_or(0, |(group, _)| group.0);
    let bits = u32::from(geometry.log_groups_per_flex);
    Place {
        area: group.checked_shr(bits).unwrap_or(0).into(),
        order: ino.0.into(),
    }
}

impl InodeRef {
    /// Of a cell that has been got from the cache, with its count of users.
    pub(crate) fn new(sbi: &Arc<Sbi>, cell: Arc<Cell>) -> Self {
        let seen = cell.pages_if_any().map_or(0, PagesOf::error_token);
        let user = User {
            sbi: Arc::clone(sbi),
            cell,
            seen: AtomicU64::new(seen),
            knows_abort: AtomicBool::new(false),
            writes: AtomicBool::new(false),
        };
        Self {
            user: Arc::new(user),
            caller: Caller::default(),
        }
    }

    /// This user, acting for `caller`.
    pub(crate) fn with_caller(self, caller: Caller) -> Self {
        Self { caller, ..self }
    }

    /// The same user, acting for `caller` by this handle too.
    pub(crate) fn as_caller(&self, caller: Caller) -> Self {
        Self {
            user: Arc::clone(&self.user),
            caller,
        }
    }

    /// The caller it acts for.
    pub(crate) fn caller(&self) -> Caller {
        self.caller
    }

    /// One more user of an inode.
    pub(crate) fn get(sbi: &Arc<Sbi>, ino: Ino) -> Result<Self> {
        // A thread that could change the journal's file, for one, would write over its blocks.
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
            // Its last user would free a second time what may belong to another file by then.
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
            // A caller that had no entry although an inode is its: what is counted will be wrong
            // until e2fsck counts anew, with an entry or without.
            _ = quota_change::place(sbi, Caller::default(), &owners);
        }
        Ok(inode)
    }

    /// Another user, who is notified only of errors from now on.
    pub(crate) fn reopened(&self) -> Self {
        self.add_user();
        Self::new(self.sbi(), Arc::clone(&self.user.cell)).with_caller(self.caller)
    }

    /// Notes that this user writes data. Many threads may share it, and write its line once.
    pub(crate) fn note_writing(&self) {
        if !self.is_writing() {
            self.user.writes.store(true, Relaxed);
        }
    }

    /// Whether this user writes data.
    pub(crate) fn is_writing(&self) -> bool {
        self.user.writes.load(Relaxed)
    }

    /// Its number.
    pub(crate) fn ino(&self) -> Ino {
        self.user.cell.ino
    }

    /// Its pages.
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

    /// Writes all its dirty pages.
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

    /// What an fsync of this user says where an error has ended all writing: the first time that
    /// data may be lost (EIO), and from then on that nothing may be written (EROFS).
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
            writes: AtomicBool::new(false),
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
        // Others who look at the file while it is being written do not close it.
        if self.writes.load(Relaxed) {
            auto_da_alloc::close(&self.cell);
        }
        let Some(rw) = self.sbi.rw() else {
            return;
        };
        // Writing pages takes the file system, which the last user's end takes away.
        if rw.writes_on_drop.load(Relaxed)
            && !std::thread::panicking()
            && let Err(error) = self.write_pages()
        {
            tracing::error!(%error, ino = self.cell.ino.0, "data of an inode were not written");
        }
        if rw.inodes.put(&self.cell) {
            // What fails stays an orphan, and is deleted by a later tick, or at the next mount if
            // no error is recorded by then.
            let evicted = evict::evict(&self.sbi, &self.cell);
            let evicted = error_record::noted(&self.sbi, self.cell.ino, evicted);
            if evicted.is_err_and(|error| evict::may_go_on(rw, &error)) {
                rw.unfinished.note_deletion(&self.cell);
            }
        } else {
            file::pages::settle_lost(&self.sbi, &self.cell);
            data_blocks::discard_if_left(&self.sbi, &self.cell);
        }
    }
}
