//! Deletions under way: space that is about to be free.
//!
//! Whoever takes a file's last name is answered before the file is deleted: the kernel tells only then
//! that it knows the file no longer (FORGET), which another thread may read, and deleting a large one takes a while.
//! On a file system of the kernel the space is free when the name is gone. So who asks how much there is, and who
//! finds none, waits here first: for deletions that have begun, and, where a name was taken just now, until
//! nothing is left to be deleted. What somebody still has open keeps him [`SOON`] at most.
//!
//! No lock; those who wait look again every millisecond.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use uext4::Filesystem;

/// How soon after a name is gone the kernel forgets the file, at most.
const SOON: Duration = Duration::from_millis(50);
/// How long is waited for deletions at most.
const LONG: Duration = Duration::from_secs(2);
/// How often is looked.
const LOOK: Duration = Duration::from_millis(1);

/// What is being deleted.
#[derive(Debug)]
pub struct Deletions {
    born: Instant,
    /// When the last name was taken: nanoseconds since `born`, plus one; 0 before that.
    last: AtomicU64,
    /// Deletions that other threads are at.
    running: AtomicUsize,
}

impl Default for Deletions {
    fn default() -> Self {
        Self {
            born: Instant::now(),
            last: AtomicU64::new(0),
            running: AtomicUsize::new(0),
        }
    }
}

/// A deletion, as long as it lives.
#[derive(Debug)]
pub struct Deletion(Arc<Deletions>);

impl Drop for Deletion {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, SeqCst);
    }
}

impl Deletions {
    /// A name was taken, perhaps the last of its file.
    pub fn name_taken(&self) {
        let now = u64::try_from(self.born.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.last.store(now.saturating_add(1), SeqCst);
    }

    /// A deletion begins.
    pub fn begin(self: &Arc<Self>) -> Deletion {
        self.running.fetch_add(1, SeqCst);
        Deletion(Arc::clone(self))
    }

    /// Waits for what may be free soon; tells whether there was anything to wait for.
    pub fn settle(&self, fs: &Filesystem) -> bool {
        let last = match self.last.load(SeqCst) {
            0 => None,
            nanos => Some(self.born + Duration::from_nanos(nanos - 1)),
        };
        let now = Instant::now();
        let (soon, long) = (last.map(|last| last + SOON), now + LONG);
        let is_near = || soon.is_some_and(|soon| Instant::now() < soon) && fs.unlinked() > 0;
        let is_running = || self.running.load(SeqCst) > 0 && Instant::now() < long;
        let mut has_waited = false;
        while is_near() || is_running() {
            has_waited = true;
            thread::sleep(LOOK);
        }
        has_waited
    }
}

#[cfg(test)]
mod tests {
    use uext4::{Creation, NewInode};

    use super::*;
    use crate::abi::{Kstatfs, opcode};
    use crate::testing::{Client, file_system};

    #[test]
    fn who_asks_waits_for_deletions_and_for_no_more() {
        let (fs, _) = file_system();
        let deletions = Arc::new(Deletions::default());
        assert!(!deletions.settle(&fs));
        let root = fs.root().unwrap();
        let how = Creation::default();
        let file = root.create(b"file", NewInode::File, &how).unwrap();
        root.unlink(b"file").unwrap();
        assert_eq!(fs.unlinked(), 1);
        // Nobody says that a name was taken: a file that has been open for long.
        assert!(!deletions.settle(&fs));
        deletions.name_taken();
        let begun = Instant::now();
        assert!(deletions.settle(&fs));
        assert!(begun.elapsed() >= SOON / 2);
        deletions.name_taken();
        let ends = thread::spawn(move || {
            thread::sleep(5 * LOOK);
            drop(file);
        });
        assert!(deletions.settle(&fs));
        assert_eq!(fs.unlinked(), 0);
        ends.join().unwrap();
        assert!(!deletions.settle(&fs));
    }

    #[test]
    fn what_another_thread_deletes_is_waited_for() {
        let (fs, _) = file_system();
        let deletions = Arc::new(Deletions::default());
        let one = deletions.begin();
        let ends = thread::spawn(move || {
            thread::sleep(20 * LOOK);
            drop(one);
        });
        assert!(deletions.settle(&fs));
        assert_eq!(deletions.running.load(SeqCst), 0);
        ends.join().unwrap();
    }

    /// Writes until there is no room.
    fn fill(client: &Client, name: &[u8]) -> u64 {
        let root = client.server.file_system().root().unwrap();
        let file = root.create(name, NewInode::File, &Creation::default());
        let (file, mut at) = (file.unwrap(), 0);
        while let Ok(len @ 1..) = file.write(at, &[7; 65_536]) {
            at += len as u64;
        }
        client.lookup(1, name).unwrap().nodeid
    }

    #[test]
    fn space_is_there_when_the_name_is_gone() {
        let client = Client::new().asking_as_root();
        let free = || {
            let told: Kstatfs = client.get(opcode::STATFS, 1, &[]).unwrap();
            told.bfree
        };
        let before = free();
        let small = client.create(1, b"small");
        for round in 0..4 {
            let full = fill(&client, b"full");
            assert!(free() < before / 8);
            client.ask(opcode::UNLINK, 1, b"full\0").unwrap();
            thread::scope(|scope| {
                // As the kernel does: when it has told the other that the name is gone.
                scope.spawn(|| {
                    thread::sleep(5 * LOOK);
                    client.forget(full, 1);
                });
                match round % 2 {
                    0 => assert!(free() > before / 8 * 7),
                    _ => client.write(small, round * 4096, &[1; 4096]),
                }
            });
        }
    }
}
