//! Dirty files of a device in the order of writing, and the lock round them.
//!
//! `b_dirty`: those that became dirty, oldest first; `b_io`: those whose turn has come;
//! `b_more_io`: those of which a part was written, or that another thread was at.
//!
//! The lock is the `inode_lock` of the kernel of 2010: one for all inodes. It is taken when a
//! file is made (to put it among all inodes) and when its inode and its first page become dirty;
//! for each file that a thread looks at, and again after its pages, after its inode, and after it
//! was let go of. The inode of a small file is dirty again when its data are written, for its
//! size is only then: it goes through the lists twice (in the thread's profile `redirty_tail` has
//! nearly the samples of `writeback_single_inode`).
//!
//! It is a sequence number​lock: first come, first served. At a hand-over all processors that
//! spin ask for the line with the lock, and they are answered one after the other in no order, so
//! that half of them come before the one whose turn it is: a hand-over takes 1 µs for each of
//! that half and its own (Boyd-Wickizer and others, "Non-scalable locks are dangerous", Linux
//! Symposium 2012).

use std::collections::VecDeque;

use super::{MICRO, Nanos};

/// A hand-over, and holding the lock where it stays on its processor.
const HANDOVER: Nanos = MICRO;
const HOLD: Nanos = MICRO / 10;
/// How often the lock is taken to make a file and a page of it dirty.
const CREATE_LOCKS: u64 = 3;
/// How often after a file was picked: its pages are with the device; its inode is; it is let go of.
const PUT_LOCKS: u64 = 3;
/// Regions of directories, past those of files.
const DIRECTORY_REGIONS: u64 = 1 << 31;

/// One file as writeback sees it: pages from `written` on are dirty.
#[derive(Clone, Debug, Default)]
pub struct File {
    /// Pages of it that were given to the device.
    pub written: u64,
    pub dirty: u64,
    /// It is a small file of this directory, and lies where the directory's last ended.
    pub directory: Option<usize>,
    /// When it became dirty.
    pub since: Nanos,
    /// It is on a list, or a thread writes it.
    pub listed: bool,
    /// Its data are written, its inode is not.
    pub inode_only: bool,
}

#[derive(Debug, Default)]
struct Shard {
    dirty: VecDeque<usize>,
    io: VecDeque<usize>,
    more_io: VecDeque<usize>,
    /// Files that a thread is at: they stay where they are, in the way of those who look for one.
    busy: u64,
    lock: Lock,
}

#[derive(Debug, Default)]
struct Lock {
    free_at: Nanos,
    owner: usize,
    /// When those who hold it or wait for it will have let it go.
    ends: VecDeque<Nanos>,
}

/// What a look at the lists cost and found.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    pub file: Option<usize>,
    /// Processor time, spinning included.
    pub cost: Nanos,
    pub handovers: u64,
}

#[derive(Debug)]
pub struct Lists {
    shards: Vec<Shard>,
    files: Vec<File>,
    /// Pages given out in the region of each directory.
    directories: Vec<u64>,
    /// The caller's numbers of the files, and theirs here.
    index: std::collections::HashMap<usize, usize>,
}

impl Lists {
    pub fn new(shards: u32) -> Self {
        Self {
            shards: (0..shards.max(1)).map(|_| Shard::default()).collect(),
            files: Vec::new(),
            directories: Vec::new(),
            index: std::collections::HashMap::new(),
        }
    }

    /// The file of this number, made if there is none.
    pub fn file(&mut self, number: usize) -> usize {
        let next = self.files.len();
        let index = *self.index.entry(number).or_insert(next);
        if index == next {
            self.files.push(File::default());
        }
        index
    }

    /// A new small file of this directory.
    pub fn create(&mut self, directory: usize) -> usize {
        if self.directories.len() <= directory {
            self.directories.resize(directory + 1, 0);
        }
        self.files.push(File {
            directory: Some(directory),
            ..File::default()
        });
        self.files.len() - 1
    }

    /// Where the next pages of a file go: those of small files are placed as they are written.
    pub fn place(&mut self, file: usize, pages: u64) -> (u64, u64) {
        let it = &self.files[file];
        match it.directory {
            None => (file as u64, it.written),
            Some(directory) => {
                let start = self.directories[directory];
                self.directories[directory] += pages;
                (DIRECTORY_REGIONS + directory as u64, start)
            }
        }
    }

    pub fn get(&self, file: usize) -> &File {
        &self.files[file]
    }

    pub fn get_mut(&mut self, file: usize) -> &mut File {
        &mut self.files[file]
    }

    fn shard_of(&self, file: usize) -> usize {
        file % self.shards.len()
    }

    /// Makes pages of a file dirty.
    pub fn dirty(&mut self, file: usize, pages: u64, now: Nanos) {
        let shard = self.shard_of(file);
        let it = &mut self.files[file];
        it.dirty += pages;
        if !it.listed {
            it.listed = true;
            it.since = now;
            self.shards[shard].dirty.push_back(file);
        }
    }

    /// A file of this directory is about to become dirty.
    pub fn enlist(&mut self, file: usize, cpu: usize, now: Nanos) -> Look {
        let (cost, handovers) = self.lock(self.shard_of(file), cpu, CREATE_LOCKS, now);
        Look {
            file: Some(file),
            cost,
            handovers,
        }
    }

    /// Takes the lock so many times, once a file.
    fn lock(&mut self, shard: usize, cpu: usize, times: u64, now: Nanos) -> (Nanos, u64) {
        let others = self.shards[shard].busy > 1;
        let lock = &mut self.shards[shard].lock;
        while lock.ends.front().is_some_and(|end| *end <= now) {
            lock.ends.pop_front();
        }
        let spinning = lock.ends.len() as u64;
        let wait = lock.free_at.saturating_sub(now);
        // With others about, each release hands it over.
        let handovers = match others || wait > 0 {
            true => times,
            false => u64::from(lock.owner != cpu),
        };
        // One of those before this one holds the lock: with this one, as many spin.
        let hold = handovers * HANDOVER * (spinning + 1).max(2) / 2 + (times - handovers) * HOLD;
        lock.free_at = now + wait + hold;
        lock.owner = cpu;
        lock.ends.push_back(lock.free_at);
        (wait + hold, handovers)
    }

    /// The next file of the shard that no thread writes and that is dirty since before `older`;
    /// it is the caller's then. Another shard's if this has none.
    pub fn pick(&mut self, shard: usize, cpu: usize, older: Nanos, now: Nanos) -> Look {
        let count = self.shards.len();
        let mut all = Look {
            file: None,
            cost: 0,
            handovers: 0,
        };
        for step in 0..count {
            let look = self.pick_from((shard + step) % count, cpu, older, now + all.cost);
            all.cost += look.cost;
            all.handovers += look.handovers;
            all.file = look.file;
            if all.file.is_some() {
                break;
            }
        }
        all
    }

    fn pick_from(&mut self, shard: usize, cpu: usize, older: Nanos, now: Nanos) -> Look {
        let it = &mut self.shards[shard];
        let more = std::mem::take(&mut it.more_io);
        it.io.extend(more);
        while let Some(&file) = it.dirty.front()
            && self.files[file].since <= older
        {
            it.dirty.pop_front();
            it.io.push_back(file);
        }
        let (mut visits, mut found) = (1, None);
        while let Some(file) = self.shards[shard].io.pop_front() {
            visits += 1;
            if self.files[file].dirty == 0 && !self.files[file].inode_only {
                self.files[file].listed = false;
            } else {
                found = Some(file);
                break;
            }
        }
        // Files whose turn is not yet over come last: who meets them has met all others.
        visits += match found {
            Some(_) => 0,
            None => self.shards[shard].busy,
        };
        let (cost, handovers) = self.lock(shard, cpu, visits, now);
        self.shards[shard].busy += u64::from(found.is_some());
        Look {
            file: found,
            cost,
            handovers,
        }
    }

    /// Puts a file back that was picked: `cut` if its turn ended before its dirty pages did.
    pub fn put(&mut self, file: usize, cut: bool, cpu: usize, now: Nanos) -> Look {
        let shard = self.shard_of(file);
        let it = &self.files[file];
        let again = it.directory.is_some() && it.dirty == 0 && !it.inode_only;
        let times = PUT_LOCKS + u64::from(again);
        let (cost, handovers) = self.lock(shard, cpu, times, now);
        self.shards[shard].busy -= 1;
        let it = &mut self.files[file];
        if again {
            it.inode_only = true;
            it.since = now;
            self.shards[shard].dirty.push_back(file);
        } else if it.dirty == 0 {
            it.listed = false;
            it.inode_only = false;
        } else if cut {
            self.shards[shard].more_io.push_back(file);
        } else {
            it.since = now;
            self.shards[shard].dirty.push_back(file);
        }
        Look {
            file: None,
            cost,
            handovers,
        }
    }

    /// When the file dirty for longest became so.
    pub fn oldest(&self) -> Option<Nanos> {
        let fronts = self.shards.iter().flat_map(|shard| {
            let lists = [&shard.dirty, &shard.io, &shard.more_io];
            lists.into_iter().filter_map(|list| list.front().copied())
        });
        fronts.map(|file| self.files[file].since).min()
    }
}
