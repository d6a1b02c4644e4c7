//! Deletions under way: space that is about to be free.
//!
//! A thread that takes a file's last name is answered before the file is deleted: the kernel
//! reports only then that it knows the file no longer (FORGET), which another thread may read,
//! and a large one is deleted by the pool. On a file system of the kernel the space is free when
//! the name is gone. So the caller how much there is is answered when the deletions that had
//! begun are over, and, where a name was taken just now, when nothing is left to be deleted; and
//! what finds no space is tried once more then.
//!
//! STATFS waits with the timer and holds no thread. What finds no space waits in the thread that
//! serves it, so it waits [`TRY`] at most, and only [`WAITING_MAX`] do at once: a thread has to
//! read what the kernel forgets. A file without a name that a thread has open is waited for as
//! well, [`SOON`] at most.
//!
//! No lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use crate::errno::Errno;
use crate::served::Served;

/// How soon after a name is gone the kernel forgets the file, at most.
const SOON: Duration = Duration::from_millis(50);
/// How long who finds no space waits at most.
const TRY: Duration = Duration::from_millis(100);
/// How often is looked.
pub const LOOK: Duration = Duration::from_millis(1);
/// Most that wait at once for space.
const WAITING_MAX: usize = 2;

/// What is being deleted.
#[derive(Debug)]
pub struct Deletions {
    born: Instant,
    /// When the last name was taken: nanoseconds since `born`, plus one; 0 before that.
    last: AtomicU64,
    begun: AtomicU64,
    ended: AtomicU64,
    waiting: AtomicUsize,
}

impl Default for Deletions {
    fn default() -> Self {
        Self {
            born: Instant::now(),
            last: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
        }
    }
}

/// A deletion, as long as it lives.
#[derive(Debug)]
pub struct Deletion(Arc<Deletions>);

impl Drop for Deletion {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, SeqCst);
    }
}

/// What there was to wait for at a moment.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// The deadline for the kernel to forget a node whose name is gone.
    soon: Option<Instant>,
    begun: u64,
}

impl Deletions {
    /// A name was taken, perhaps the last of its file.
    pub fn name_taken(&self) {
        let now = u64::try_from(self.born.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.last.store(now.saturating_add(1), SeqCst);
    }

    /// A deletion begins.
    pub fn begin(self: &Arc<Self>) -> Deletion {
        self.begun.fetch_add(1, SeqCst);
        Deletion(Arc::clone(self))
    }

    fn ended(&self) -> u64 {
        self.ended.load(SeqCst)
    }

    /// What there is to wait for now.
    pub fn expected(&self) -> Expected {
        let last = self.last.load(SeqCst).checked_sub(1);
        Expected {
            soon: last.map(|nanos| self.born + Duration::from_nanos(nanos) + SOON),
            begun: self.begun.load(SeqCst),
        }
    }

    /// Whether some of it is still to come.
    pub fn is_due(&self, expected: Expected, fs: &Served) -> bool {
        self.ended() < expected.begun
            || expected.soon.is_some_and(|soon| Instant::now() < soon) && fs.unlinked() > 0
    }

    /// Whether there may be more space than before so many had ended; waits for it if some is due.
    fn has_freed(&self, fs: &Served, ended: u64) -> bool {
        let expected = self.expected();
        if self.ended() != ended || !self.is_due(expected, fs) {
            return self.ended() != ended;
        }
        // What is deleted meanwhile need not be among what is counted.
        let others = self.waiting.fetch_add(1, SeqCst);
        let until = Instant::now() + TRY;
        while others < WAITING_MAX && self.is_due(expected, fs) && Instant::now() < until {
            thread::sleep(LOOK);
        }
        self.waiting.fetch_sub(1, SeqCst);
        others < WAITING_MAX || self.ended() != ended
    }

    /// Does what may find no space, of which nothing is done then; once more if there may be some
    /// now.
    pub fn retried<R>(
        &self,
        fs: &Served,
        mut f: impl FnMut() -> R,
        failed: impl Fn(&R) -> Option<Errno>,
    ) -> R {
        let ended = self.ended();
        let done = f();
        let is_full = matches!(failed(&done), Some(Errno::ENOSPC | Errno::EDQUOT));
        match is_full && self.has_freed(fs, ended) {
            true => f(),
            false => done,
        }
    }
}

#[cfg(test)]
mod tests {
    use uext4::{Creation, NewInode};

    use super::*;
    use crate::abi::{Kstatfs, opcode};
    use crate::testing::{Client, file_system};

    #[test]
    fn the_timer_waits_for_due_entries_only() {
        let (fs, _) = file_system();
        let served = Served::from(fs.clone());
        let deletions = Arc::new(Deletions::default());
        let waited = |deletions: &Arc<Deletions>| {
            let begun = Instant::now();
            let mut tries = 0;
            let reported = deletions.retried(
                &served,
                || {
                    tries += 1;
                    Errno::ENOSPC
                },
                |error| Some(*error),
            );
            assert_eq!(reported, Errno::ENOSPC);
            (tries, begun.elapsed())
        };
        assert_eq!(waited(&deletions).0, 1);
        let root = fs.root().unwrap();
        let how = Creation::default();
        let file = root.create(b"file", NewInode::File, &how).unwrap();
        root.unlink(b"file").unwrap();
        assert_eq!(fs.unlinked(), 1);
        // No thread says that a name was taken: a file that has been open for long.
        assert_eq!(waited(&deletions).0, 1);
        deletions.name_taken();
        let (tries, took) = waited(&deletions);
        assert!(tries == 2 && took >= SOON / 2, "{tries} {took:?}");
        drop(file);
        deletions.name_taken();
        assert_eq!(waited(&deletions).0, 1);
        // Begun, and not over in time.
        let one = deletions.begin();
        let (tries, took) = waited(&deletions);
        assert!(tries == 2 && took >= TRY, "{tries} {took:?}");
        // Others wait, so this one does not.
        deletions.waiting.store(WAITING_MAX, SeqCst);
        assert_eq!(waited(&deletions).0, 1);
        drop(one);
        assert_eq!(deletions.waiting.load(SeqCst), WAITING_MAX);
    }

    #[test]
    fn what_ended_meanwhile_is_not_missed() {
        let (fs, _) = file_system();
        let served = Served::from(fs.clone());
        let deletions = Arc::new(Deletions::default());
        let mut one = Some(deletions.begin());
        let full = |is_full: &bool| is_full.then_some(Errno::ENOSPC);
        let reported = deletions.retried(&served, || one.take().is_some(), full);
        assert!(!reported);
    }

    /// Writes until there is no room.
    fn fill(client: &Client, name: &[u8]) -> u64 {
        let root = client
            .server
            .file_system()
            .writable()
            .unwrap()
            .root()
            .unwrap();
        let file = root.create(name, NewInode::File, &Creation::default());
        let (file, mut at) = (file.unwrap(), 0);
        while let Ok(len @ 1..) = file.write_at(at, &[7; 65_536]) {
            at += len as u64;
        }
        client.lookup(1, name).unwrap().nodeid
    }

    #[test]
    fn space_is_there_when_the_name_is_gone() {
        let client = Client::new().asking_as_root();
        let free = || {
            let reported: Kstatfs = client.get(opcode::STATFS, 1, &[]).unwrap();
            reported.bfree
        };
        let before = free();
        let small = client.create(1, b"small");
        for round in 0..4 {
            let full = fill(&client, b"full");
            assert!(free() < before / 8);
            client.ask(opcode::UNLINK, 1, b"full\0").unwrap();
            thread::scope(|scope| {
                // As the kernel does: when it has reported the other that the name is gone.
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
