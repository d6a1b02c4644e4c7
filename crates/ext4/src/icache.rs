//! Inodes in use, each once in memory.
//!
//! A [`Cell`] is what all users of one inode share: its fields, what is known of its blocks, and its
//! locks. It lives as long as somebody holds it, and for a while after.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use uext4_extent_status::{Room, Tree};
use uext4_jbd2::Tid;
use uext4_ondisk::{Damage, Ino};
use uext4_writeback::{FilePages, Mapping};

use crate::edit::Edit;
use crate::error::{Error, Result};
use crate::inode::{Inode, iget};
use crate::inode_store::store;
use crate::lock_order::{Rank, RankedLock};
use crate::sbi::Sbi;

/// Inodes whose fields are stored with the next commit.
type Later = Mutex<Vec<Arc<Cell>>>;

/// Parts of the table, a power of two.
const SHARDS: usize = 64;

/// One inode in use.
#[derive(Debug)]
pub(crate) struct Cell {
    /// Its number.
    pub(crate) ino: Ino,
    /// One change of a directory's names, or of a file's size and contents, at a time; who only
    /// looks shares it. Outermost of an inode's locks, taken before a handle is started.
    pub(crate) rw: RankedLock<()>,
    /// The fields, and with `i_block` the map of its blocks. Taken inside a handle; held while the
    /// extent tree is read or changed.
    pub(crate) inode: RankedLock<Inode>,
    /// What is known of its blocks, once anybody asked: see [`InodeCache::known_blocks`].
    extents: OnceLock<Tree>,
    /// The last transaction that changed anything of it.
    pub(crate) sync_tid: AtomicU64,
    /// The last one that changed what is needed to read its data.
    pub(crate) datasync_tid: AtomicU64,
    /// End of what a write is taking in, while it does: bytes up to there are the file's.
    pub(crate) pending_end: AtomicU64,
    /// Was made without a name, and has got none yet; others that lost their last get none again.
    pub(crate) may_get_name: AtomicBool,
    /// The pages of a regular file, once it was read or written.
    pages: OnceLock<WithPages>,
    /// Fields have changed that are stored with the next commit.
    later: AtomicBool,
    /// The last transaction that [`Cell::store_times`] stored the fields in.
    stored_in: AtomicU64,
    me: Weak<Self>,
    /// Users that hold it; changed under the lock of the table's part.
    users: AtomicU32,
    /// Nobody may have it any more: it is being deleted.
    dead: AtomicBool,
}

/// The pages of one file, for the engine's errors.
pub(crate) type PagesOf = FilePages<Error>;

/// The pages of an inode and what maps them.
#[derive(Debug)]
pub(crate) struct WithPages {
    pub(crate) pages: PagesOf,
    /// Held here, weakly by the cache of pages.
    pub(crate) _mapping: Arc<dyn MapsPages>,
}

/// A mapping that can be shown.
pub(crate) trait MapsPages: Mapping<Error = Error> + Debug {}

/// The inodes in memory.
#[derive(Debug)]
pub(crate) struct InodeCache {
    shards: [Mutex<FxHashMap<Ino, Arc<Cell>>>; SHARDS],
    /// Those whose fields are stored with the next commit.
    later: Later,
    room: Arc<Room>,
}

impl Cell {
    fn new(inode: Inode) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            pending_end: AtomicU64::new(0),
            may_get_name: AtomicBool::new(false),
            pages: OnceLock::new(),
            later: AtomicBool::new(false),
            stored_in: AtomicU64::new(0),
            me: Weak::clone(me),
            ino: inode.ino,
            rw: RankedLock::new(Rank::Names, ()),
            inode: RankedLock::new(Rank::Inode, inode),
            extents: OnceLock::new(),
            sync_tid: AtomicU64::new(0),
            datasync_tid: AtomicU64::new(0),
            users: AtomicU32::new(0),
            dead: AtomicBool::new(false),
        })
    }

    /// The pages, which `make` makes from a handle to this cell if there are none yet.
    pub(crate) fn pages_or(&self, make: impl FnOnce(Weak<Self>) -> WithPages) -> &PagesOf {
        let with = self.pages.get_or_init(|| make(Weak::clone(&self.me)));
        &with.pages
    }

    /// The pages, if there are any.
    pub(crate) fn pages_if_any(&self) -> Option<&PagesOf> {
        self.pages.get().map(|with| &with.pages)
    }

    /// Drops all pages, dirty or not, once what is under way is written.
    pub(crate) fn drop_pages(&self) {
        if let Some(pages) = self.pages_if_any() {
            pages.truncate(0);
        }
    }

    /// What is known of its blocks, if anybody asked for them.
    pub(crate) fn known_blocks_if_any(&self) -> Option<&Tree> {
        self.extents.get()
    }

    /// Whether fields wait for the next commit.
    pub(crate) fn is_changed_later(&self) -> bool {
        self.later.load(Relaxed)
    }

    /// Nothing of it is only in memory.
    fn is_idle(&self) -> bool {
        let clean = self.pages_if_any().is_none_or(|pages| !pages.is_dirty());
        let promised = self.extents.get().map_or(0, Tree::delayed_blocks);
        self.users() == 0 && clean && !self.is_changed_later() && promised == 0
    }

    /// One more user, beside one there is.
    pub(crate) fn add_user(&self) {
        self.users.fetch_add(1, Relaxed);
    }

    /// Notes that transaction `tid` changes the inode, and whether its data cannot be read without
    /// the change.
    pub(crate) fn changed_in(&self, tid: Tid, data: bool) {
        self.sync_tid.fetch_max(tid, Relaxed);
        if data {
            self.datasync_tid.fetch_max(tid, Relaxed);
        }
    }

    /// Users that hold it now.
    pub(crate) fn users(&self) -> u32 {
        self.users.load(Relaxed)
    }
}

impl InodeCache {
    /// An empty table whose inodes keep what they know of blocks in `room`.
    pub(crate) fn new(room: &Arc<Room>) -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            later: Later::default(),
            room: Arc::clone(room),
        }
    }

    fn shard(&self, ino: Ino) -> &Mutex<FxHashMap<Ino, Arc<Cell>>> {
        &self.shards[ino.0 as usize % SHARDS]
    }

    /// The inode for one more user, read from its table if nobody has it. [`InodeCache::put`] must
    /// follow.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it is being deleted, [`Damage::InodeField`] if it was, damage, device
    /// errors.
    pub(crate) fn get(&self, sbi: &Sbi, ino: Ino) -> Result<Arc<Cell>> {
        let mut shard = self.shard(ino).lock();
        if let Some(cell) = shard.get(&ino) {
            if cell.dead.load(Relaxed) {
                return Err(Error::NotFound);
            }
            cell.users.fetch_add(1, Relaxed);
            return Ok(Arc::clone(cell));
        }
        let inode = iget(sbi, ino)?;
        // Its last user would free a second time what may be somebody else's by then.
        if inode.links == 0 && !sbi.writable()?.orphans.contains(ino) {
            return Err(Error::Corrupt(Damage::InodeField {
                ino,
                field: "i_links_count",
                value: 0,
                why: "the inode was deleted",
            }));
        }
        let cell = Cell::new(inode);
        cell.users.store(1, Relaxed);
        shard.insert(ino, Arc::clone(&cell));
        Ok(cell)
    }

    /// Takes in an inode that was just made, for its first user.
    pub(crate) fn insert(&self, inode: Inode) -> Arc<Cell> {
        let cell = Cell::new(inode);
        cell.users.store(1, Relaxed);
        let mut shard = self.shard(cell.ino).lock();
        shard.insert(cell.ino, Arc::clone(&cell));
        cell
    }

    /// A user is done with the inode. True if it was the last, and no name is left: the inode is dead
    /// from now on, and the caller must delete it.
    pub(crate) fn put(&self, cell: &Cell) -> bool {
        let shard = self.shard(cell.ino).lock();
        let last = cell.users.fetch_sub(1, Relaxed) == 1;
        // Who holds the inode's fields may wait for the table.
        drop(shard);
        if !last || cell.inode.read().links > 0 {
            return false;
        }
        let _shard = self.shard(cell.ino).lock();
        // One that is dead already has been deleted by its last user; one that has a user again is
        // that user's business.
        cell.users.load(Relaxed) == 0 && !cell.dead.swap(true, Relaxed)
    }

    /// Declares an inode dead whose only user is the caller; false if there are others.
    pub(crate) fn kill(&self, cell: &Cell) -> bool {
        let _shard = self.shard(cell.ino).lock();
        let only = cell.users.load(Relaxed) == 1;
        if only {
            cell.dead.store(true, Relaxed);
        }
        only
    }

    /// Takes back [`InodeCache::kill`]: the inode could not be deleted yet.
    pub(crate) fn revive(&self, cell: &Cell) {
        let _shard = self.shard(cell.ino).lock();
        cell.dead.store(false, Relaxed);
    }

    /// Lets go of an inode that was deleted.
    pub(crate) fn remove(&self, ino: Ino) {
        self.shard(ino).lock().remove(&ino);
    }

    /// Lets go of inodes that nobody uses and nothing waits for, until at most `most` are left.
    pub(crate) fn shrink(&self, most: usize) {
        let mut over = self.count().saturating_sub(most);
        for shard in &self.shards {
            if over == 0 {
                return;
            }
            shard.lock().retain(|_, cell| {
                let goes = over > 0 && Arc::strong_count(cell) == 1 && cell.is_idle();
                over -= usize::from(goes);
                !goes
            });
        }
    }

    /// What is known of an inode's blocks: nothing at first.
    pub(crate) fn known_blocks<'a>(&self, cell: &'a Cell) -> &'a Tree {
        cell.extents.get_or_init(|| Tree::new(&self.room))
    }

    /// Changes fields that may wait for the next commit to be stored.
    pub(crate) fn change_later(&self, cell: &Cell, f: impl FnOnce(&mut Inode)) {
        f(&mut cell.inode.write());
        self.store_with_commit(cell);
    }

    fn store_with_commit(&self, cell: &Cell) {
        if !cell.later.swap(true, Relaxed)
            && let Some(cell) = cell.me.upgrade()
        {
            self.later.lock().push(cell);
        }
    }

    /// Stores the fields, which the caller has locked. Where only times differ from what was stored
    /// `before`, one transaction does so twice at most: at the first change, which makes the block
    /// part of it, and for all others when it is closed.
    ///
    /// # Errors
    /// Those of [`store`].
    pub(crate) fn store_times(
        &self,
        (sbi, edit, tid): (&Sbi, &impl Edit, Tid),
        cell: &Cell,
        inode: &Inode,
        before: &Inode,
    ) -> Result<()> {
        let first = cell.stored_in.swap(tid, Relaxed) != tid;
        if first || !inode.differs_in_times_only(before) {
            return store(edit, sbi, inode);
        }
        self.store_with_commit(cell);
        Ok(())
    }

    /// Stores the fields of inodes that wait for a commit, through what closes the transaction.
    ///
    /// # Errors
    /// Damage, device errors.
    pub(crate) fn store_later(&self, sbi: &Sbi, edit: &impl Edit, tid: Tid) -> Result<()> {
        let later = std::mem::take(&mut *self.later.lock());
        for cell in later {
            let inode = cell.inode.read();
            cell.later.store(false, Relaxed);
            if !cell.dead.load(Relaxed) {
                store(edit, sbi, &inode)?;
                cell.changed_in(tid, false);
            }
        }
        Ok(())
    }

    /// Whether any inode waits for a commit.
    pub(crate) fn has_later(&self) -> bool {
        !self.later.lock().is_empty()
    }

    /// Inodes in memory.
    pub(crate) fn count(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}
