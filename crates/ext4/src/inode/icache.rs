//! Inodes in use, each once in memory.
//!
//! A [`Cell`] is what all users of one inode share: its fields, what is known of its blocks, and
//! its locks. It lives as long as a thread holds it, and for a while after.

use std::fmt::Debug;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use uext4_extent_status::{ExtentStatusCache, Tree};
use uext4_jbd2::Tid;
use uext4_mballoc::FileSpace;
use uext4_ondisk::Ino;
use uext4_ondisk::indirect::Reach;
use uext4_writeback::{FilePages, Mapping};

use crate::base::disk::Disk;
use crate::base::edit::Edit;
use crate::base::error::{Error, Result};
use crate::base::lock_order::{Rank, RankedLock};
use crate::base::memory::Shrinker;
use crate::inode::delayed_tables::DelayedTables;
use crate::inode::store::store;
use crate::inode::{Inode, iget};

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
    /// What is known of its blocks, once any thread asked: see [`InodeCache::known_blocks`].
    extents: OnceLock<Tree>,
    /// What the allocator remembers of its data, once it was asked for blocks.
    space: OnceLock<Box<FileSpace>>,
    /// Tables that its delayed blocks may take, if it has no extents and ever had such blocks.
    delayed_tables: OnceLock<Box<DelayedTables>>,
    /// The last transaction that changed anything of it.
    pub(crate) sync_tid: AtomicU64,
    /// The last one that changed what is needed to read its data.
    pub(crate) datasync_tid: AtomicU64,
    /// End of what a write is taking in, while it does: what is written of that counts on disk.
    pub(crate) pending_end: AtomicU64,
    /// Data of it were given up, and what was reserved for them is not given back yet.
    pub(crate) has_lost: AtomicBool,
    /// Its contents were cut to nothing, and no close has written new ones since.
    pub(crate) cut_to_zero: AtomicBool,
    /// Was made without a name, and has got none yet; others that lost their last get none again.
    pub(crate) may_get_name: AtomicBool,
    /// The pages of a regular file, once it was read or written.
    pages: OnceLock<WithPages>,
    /// Fields have changed that are stored with the next commit.
    later: AtomicBool,
    /// The last transaction that [`Cell::store_times`] stored the fields in.
    stored_in: AtomicU64,
    me: Weak<Self>,
    /// A thread wanted it since reclaim came by last.
    referenced: AtomicBool,
    /// Users that hold it; changed under the lock of the table's part.
    users: AtomicU32,
    /// Of these, those that have it open for writing: the kernel's `i_writecount`.
    writers: AtomicU32,
    /// No thread may have it any more: it is being deleted.
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
    /// How many those are.
    later_count: AtomicUsize,
    room: Arc<ExtentStatusCache>,
    /// Inodes in the table, and how many of them have pages.
    count: AtomicU64,
    with_pages: AtomicU64,
    /// The part of the table that reclaim visits next.
    hand: AtomicUsize,
    /// The last transaction that changed any of those that were let go of: who reads one again must
    /// take it for the last that changed that.
    gone_tid: AtomicU64,
}

impl Cell {
    /// Bytes that one takes, its place in the table and what the allocator remembers included.
    const MEMORY: u64 = (size_of::<Self>() + size_of::<FileSpace>()) as u64 + 64;
    /// Bytes that its pages take beyond that, without any folio.
    const PAGES_MEMORY: u64 = PagesOf::MEMORY + 48;

    fn new(inode: Inode) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            pending_end: AtomicU64::new(0),
            has_lost: AtomicBool::new(false),
            cut_to_zero: AtomicBool::new(false),
            may_get_name: AtomicBool::new(false),
            pages: OnceLock::new(),
            later: AtomicBool::new(false),
            stored_in: AtomicU64::new(0),
            me: Weak::clone(me),
            ino: inode.ino,
            rw: RankedLock::new(Rank::Names, ()),
            inode: RankedLock::new(Rank::Inode, inode),
            extents: OnceLock::new(),
            space: OnceLock::new(),
            delayed_tables: OnceLock::new(),
            sync_tid: AtomicU64::new(0),
            datasync_tid: AtomicU64::new(0),
            users: AtomicU32::new(0),
            writers: AtomicU32::new(0),
            dead: AtomicBool::new(false),
            referenced: AtomicBool::new(false),
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

    /// What is known of its blocks, if any thread asked for them.
    pub(crate) fn known_blocks_if_any(&self) -> Option<&Tree> {
        self.extents.get()
    }

    /// What the allocator remembers of its data.
    pub(crate) fn space(&self) -> &FileSpace {
        self.space.get_or_init(Box::default)
    }

    /// The same, if it was ever asked for blocks.
    pub(crate) fn space_if_any(&self) -> Option<&FileSpace> {
        self.space.get().map(|space| &**space)
    }

    /// What is reserved for the tables of its delayed blocks, of a file without extents.
    pub(crate) fn delayed_tables(&self, reach: Reach) -> &DelayedTables {
        let new = || Box::new(DelayedTables::new(reach));
        self.delayed_tables.get_or_init(new)
    }

    /// The same, if it ever had delayed blocks.
    pub(crate) fn delayed_tables_if_any(&self) -> Option<&DelayedTables> {
        self.delayed_tables.get().map(|tables| &**tables)
    }

    /// Whether fields wait for the next commit.
    pub(crate) fn is_changed_later(&self) -> bool {
        self.later.load(Acquire)
    }

    /// Nothing of it is only in memory.
    fn is_idle(&self) -> bool {
        let clean = self.pages_if_any().is_none_or(|pages| !pages.is_dirty());
        let reserved = self.extents.get().map_or(0, Tree::delayed_blocks);
        self.users() == 0 && clean && !self.is_changed_later() && reserved == 0
    }

    /// Whether it may leave the table, which holds it only once. With `all`, also one that a
    /// thread wanted lately, or that has clean pages.
    fn may_go(&self, all: bool) -> bool {
        let referenced = self.referenced.swap(false, Relaxed);
        let has_pages = self.pages_if_any().is_some_and(|pages| !pages.is_empty());
        self.is_idle() && (all || !referenced && !has_pages)
    }

    /// One more user, in addition to one there is.
    pub(crate) fn add_user(&self) {
        self.users.fetch_add(1, Relaxed);
    }

    /// One of its users has it open for writing from now on, until [`Cell::end_writing`].
    pub(crate) fn begin_writing(&self) {
        self.writers.fetch_add(1, Relaxed);
    }

    /// A user that had it open for writing closes it.
    pub(crate) fn end_writing(&self) {
        self.writers.fetch_sub(1, Relaxed);
    }

    /// Whether any user has it open for writing. Users that only hold it (a node of a mount is one
    /// until the kernel forgets it) do not count.
    pub(crate) fn is_open_for_writing(&self) -> bool {
        self.writers.load(Relaxed) > 0
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
    pub(crate) fn new(room: &Arc<ExtentStatusCache>) -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            later: Later::default(),
            later_count: AtomicUsize::new(0),
            room: Arc::clone(room),
            count: AtomicU64::new(0),
            with_pages: AtomicU64::new(0),
            hand: AtomicUsize::new(0),
            gone_tid: AtomicU64::new(0),
        }
    }

    fn shard(&self, ino: Ino) -> &Mutex<FxHashMap<Ino, Arc<Cell>>> {
        &self.shards[ino.0 as usize % SHARDS]
    }

    /// What all its inodes know of their blocks.
    pub(crate) fn room(&self) -> &Arc<ExtentStatusCache> {
        &self.room
    }

    /// The inode for one more user, read from its table if no thread has it, and whether it was;
    /// then `complete` adds what does not stand there, or refuses the inode. [`InodeCache::put`]
    /// must follow.
    pub(crate) fn get(
        &self,
        disk: &Disk,
        ino: Ino,
        complete: impl FnOnce(&mut Inode) -> Result<()>,
    ) -> Result<(Arc<Cell>, bool)> {
        let mut shard = self.shard(ino).lock();
        if let Some(cell) = shard.get(&ino) {
            if cell.dead.load(Relaxed) {
                return Err(Error::NotFound);
            }
            cell.users.fetch_add(1, Relaxed);
            // Read first, so that a thread that only looks leaves the line to the others.
            if !cell.referenced.load(Relaxed) {
                cell.referenced.store(true, Relaxed);
            }
            return Ok((Arc::clone(cell), false));
        }
        let mut inode = iget(disk, ino)?;
        complete(&mut inode)?;
        let cell = Cell::new(inode);
        cell.changed_in(self.gone_tid.load(Relaxed), true);
        cell.users.store(1, Relaxed);
        shard.insert(ino, Arc::clone(&cell));
        self.count.fetch_add(1, Relaxed);
        Ok((cell, true))
    }

    /// Whether the table has an inode of this number.
    pub(crate) fn holds(&self, ino: Ino) -> bool {
        self.shard(ino).lock().contains_key(&ino)
    }

    /// Takes in an inode that was just made, for its first user.
    pub(crate) fn insert(&self, inode: Inode) -> Arc<Cell> {
        let mut shard = self.shard(inode.ino).lock();
        // A caller that guessed the number may have read it from its table while it was made.
        if let Some(cell) = shard.get(&inode.ino)
            && !cell.dead.load(Relaxed)
        {
            let cell = Arc::clone(cell);
            cell.users.fetch_add(1, Relaxed);
            drop(shard);
            *cell.inode.write() = inode;
            return cell;
        }
        let cell = Cell::new(inode);
        cell.users.store(1, Relaxed);
        if let Some(old) = shard.insert(cell.ino, Arc::clone(&cell)) {
            self.left(&old);
        }
        self.count.fetch_add(1, Relaxed);
        cell
    }

    /// A file got its pages; to be called once for each, while a thread uses it.
    pub(crate) fn made_pages(&self) {
        self.with_pages.fetch_add(1, Relaxed);
    }

    /// An inode has left the table; returns the bytes it took, what is known of its blocks
    /// included.
    fn left(&self, cell: &Cell) -> u64 {
        self.count.fetch_sub(1, Relaxed);
        let mut bytes = Cell::MEMORY + cell.extents.get().map_or(0, |_| Tree::MEMORY);
        if cell.pages.get().is_some() {
            self.with_pages.fetch_sub(1, Relaxed);
            bytes += Cell::PAGES_MEMORY;
        }
        bytes
    }

    /// A user is done with the inode. True if it was the last, and no name is left: the inode is
    /// dead from now on, and the caller must delete it.
    pub(crate) fn put(&self, cell: &Cell) -> bool {
        let shard = self.shard(cell.ino).lock();
        let last = cell.users.fetch_sub(1, Relaxed) == 1;
        // A caller that holds the inode's fields may wait for the table.
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
        let removed = self.shard(ino).lock().remove(&ino);
        if let Some(cell) = removed {
            self.left(&cell);
        }
    }

    /// Lets go of inodes of one part of the table that no thread uses and nothing waits for,
    /// until `bytes` are free. With `all` as in [`Cell::may_go`]. Returns how many went.
    fn shrink_part(&self, bytes: u64, all: bool) -> u64 {
        let part = self.hand.fetch_add(1, Relaxed) % SHARDS;
        // A caller that holds it may be reading an inode from the device.
        let Some(mut shard) = self.shards[part].try_lock() else {
            return 0;
        };
        let (mut freed, mut gone) = (0, Vec::new());
        shard.retain(|_, cell| {
            let goes = freed < bytes && Arc::strong_count(cell) == 1 && cell.may_go(all);
            if goes {
                let tid = cell.sync_tid.load(Relaxed);
                self.gone_tid.fetch_max(tid, Relaxed);
                freed += self.left(cell);
                gone.push(Arc::clone(cell));
            }
            !goes
        });
        if shard.len() < shard.capacity() / 4 {
            let keep = shard.len() * 2;
            shard.shrink_to(keep);
        }
        drop(shard);
        // They take their pages with them, which need not be done under the lock.
        drop(gone);
        freed
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
            let mut later = self.later.lock();
            later.push(cell);
            self.later_count.store(later.len(), Relaxed);
        }
    }

    /// Stores the fields, which the caller has locked. Where only times differ from what was stored
    /// `before`, one transaction does so twice at most: at the first change, which makes the block
    /// part of it, and for all others when it is closed.
    pub(crate) fn store_times(
        &self,
        disk: &Disk,
        edit: &impl Edit,
        tid: Tid,
        cell: &Cell,
        inode: &Inode,
        before: &Inode,
    ) -> Result<()> {
        let first = cell.stored_in.swap(tid, Relaxed) != tid;
        if first || !inode.differs_in_times_only(before) {
            return store(edit, disk, inode);
        }
        self.store_with_commit(cell);
        Ok(())
    }

    /// Stores the fields of inodes that wait for a commit, through what closes the transaction.
    pub(crate) fn store_later(&self, disk: &Disk, edit: &impl Edit, tid: Tid) -> Result<()> {
        let later = {
            let mut later = self.later.lock();
            self.later_count.store(0, Relaxed);
            std::mem::take(&mut *later)
        };
        for cell in later {
            let inode = cell.inode.read();
            if !cell.dead.load(Relaxed) {
                store(edit, disk, &inode)?;
                cell.changed_in(tid, false);
            }
            // Last: who finds it false must find the transaction.
            cell.later.store(false, Release);
        }
        Ok(())
    }

    /// Inodes that wait for a commit.
    pub(crate) fn later_count(&self) -> usize {
        self.later_count.load(Relaxed)
    }

    /// Bytes that they take.
    pub(crate) fn later_memory(&self) -> u64 {
        self.later_count() as u64 * (Cell::MEMORY + Cell::PAGES_MEMORY)
    }
}

impl Shrinker for InodeCache {
    fn memory(&self) -> u64 {
        let pages = self.with_pages.load(Relaxed) * Cell::PAGES_MEMORY;
        self.count.load(Relaxed) * Cell::MEMORY + pages
    }

    fn count(&self) -> u64 {
        Shrinker::memory(self)
    }

    fn scan(&self, bytes: u64) -> u64 {
        let mut freed = 0;
        for all in [false, true] {
            for _ in 0..SHARDS {
                if freed >= bytes {
                    return freed;
                }
                freed += self.shrink_part(bytes - freed, all);
            }
        }
        freed
    }
}
