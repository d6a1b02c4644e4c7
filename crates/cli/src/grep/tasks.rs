//! What is left to do: directories that are still to be read, and files of large directories.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::{Condvar, Mutex};
use uext4::Inode;
use uext4_image::walk::InodeSet;
use uext4_ondisk::Ino;

/// Directories inside each other.
const DEPTH_MAX: u32 = 16_384;
/// Bytes of a path.
const PATH_MAX: usize = 1 << 16;
/// Bytes of tasks above which the files of a directory are no tasks of their own.
const FILES_MAX: usize = 16 << 20;

/// A directory to be read.
#[derive(Debug)]
pub struct Dir {
    /// Its path from the root.
    pub path: Box<[u8]>,
    /// Directories above it.
    pub depth: u32,
    /// Its inode, which is in use and a directory.
    pub inode: Inode,
}

/// A name in a directory.
#[derive(Debug)]
pub struct Name {
    /// The inode.
    pub ino: Ino,
    /// The name as it is shown.
    pub name: Box<[u8]>,
}

/// Something to do.
#[derive(Debug)]
pub enum Task {
    /// Read a directory and search its files.
    Dir(Box<Dir>),
    /// Search files of the directory of this path.
    Files(Box<[u8]>, Vec<Name>),
}

impl Task {
    /// Bytes it takes, roughly.
    fn cost(&self) -> usize {
        match self {
            Self::Dir(dir) => size_of::<Self>() + size_of::<Dir>() + dir.path.len(),
            Self::Files(path, names) => {
                let name = |name: &Name| size_of::<Name>() + name.name.len();
                size_of::<Self>() + path.len() + names.iter().map(name).sum::<usize>()
            }
        }
    }
}

/// Tasks, the newest first.
#[derive(Debug, Default)]
pub struct Tasks {
    state: Mutex<State>,
    added: Condvar,
    stopped: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    tasks: Vec<Task>,
    bytes: usize,
    /// Threads that may add tasks.
    busy: usize,
    /// Directories that were entered.
    entered: InodeSet,
    /// Bytes of all directories that were entered.
    claimed: u64,
}

impl Tasks {
    /// The next task; `None` if nothing is left. The thread must call [`Tasks::done`] after it.
    pub fn next(&self) -> Option<Task> {
        let mut state = self.state.lock();
        loop {
            if self.is_stopped() {
                return None;
            }
            if let Some(task) = state.tasks.pop() {
                state.bytes = state.bytes.saturating_sub(task.cost());
                state.busy += 1;
                return Some(task);
            }
            if state.busy == 0 {
                return None;
            }
            self.added.wait(&mut state);
        }
    }

    /// The task that a thread took is done.
    pub fn done(&self) {
        let mut state = self.state.lock();
        state.busy = state.busy.saturating_sub(1);
        if state.busy == 0 {
            self.added.notify_all();
        }
    }

    /// Nothing more is to be done.
    pub fn stop(&self) {
        // Under the lock, so that no thread waits just now without having seen it.
        let _state = self.state.lock();
        self.stopped.store(true, Relaxed);
        self.added.notify_all();
    }

    /// Whether nothing more is to be done.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Relaxed)
    }

    /// Adds tasks, the last of which is done first.
    pub fn add(&self, tasks: impl Iterator<Item = Task>) {
        let mut state = self.state.lock();
        for task in tasks {
            state.bytes = state.bytes.saturating_add(task.cost());
            state.tasks.push(task);
            self.added.notify_one();
        }
    }

    /// Whether files should be done at once, as there are many tasks.
    pub fn is_full(&self) -> bool {
        self.state.lock().bytes > FILES_MAX
    }

    /// Notes that a directory is entered. On any image, each is entered once, and all together are
    /// no larger than the file system, `len_bytes`.
    ///
    /// # Errors
    /// Why it must not be entered.
    pub fn enter(&self, dir: &Dir, len_bytes: u64) -> Result<(), &'static str> {
        if dir.depth >= DEPTH_MAX || dir.path.len() >= PATH_MAX {
            return Err("too many directories inside each other, not entered");
        }
        let mut state = self.state.lock();
        if !state.entered.insert(dir.inode.ino) {
            return Err("the directory has a second name, or is inside itself");
        }
        state.claimed = state.claimed.saturating_add(dir.inode.size);
        match state.claimed > len_bytes {
            true => Err("directories are larger than the file system, not entered"),
            false => Ok(()),
        }
    }
}
