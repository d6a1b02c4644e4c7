//! The search of `grep`: the files of an image, read where they lie, by as many threads as there
//! are processors.
//!
//! ```text
//! Tasks: directories and files to do      Worker, one a thread      Found: output of one file
//! ```
//! A worker takes a directory, adds those below it to the tasks, and searches its files in the
//! order of their inodes, which is mostly that of their data; the files of a large directory
//! become tasks of their own. Matcher, searcher, printer and buffers are made once for each
//! thread. What is found in a file goes out in one piece, through the thread that called.

mod found;
mod globs;
mod tasks;
mod worker;

use std::io::Write;
use std::num::NonZero;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{self, SyncSender};
use std::thread;

use grep_printer::{JSONBuilder, StandardBuilder, SummaryBuilder};
use grep_regex::RegexMatcher;
use grep_searcher::SearcherBuilder;
use parking_lot::Mutex;
use uext4::{Image, Inode};
use uext4_ondisk::inode::FileType;

use crate::failure::{Complaints, Exit, Failure};
use crate::grep::found::Turn;
pub use crate::grep::globs::Globs;
use crate::grep::tasks::{Dir, Task, Tasks};
use crate::grep::worker::Worker;

/// Pieces of output that wait to be written.
const WAITING_MAX: usize = 16;

/// What is searched for, and how it is shown.
#[derive(Debug)]
pub struct Search {
    /// The pattern.
    pub matcher: RegexMatcher,
    /// Lines, contexts and binary files.
    pub searcher: SearcherBuilder,
    /// How matches are shown.
    pub shown: Shown,
    /// With the escape sequences of a terminal.
    pub colored: bool,
    /// Which files.
    pub globs: Globs,
    /// Files of more bytes are left out.
    pub max_filesize: Option<u64>,
    /// Also files with zero bytes.
    pub text: bool,
    /// One match is enough.
    pub first_only: bool,
    /// By one thread, in the order of the paths.
    pub sorted: bool,
}

/// What is printed of a file with a match.
#[derive(Debug)]
pub enum Shown {
    /// Lines.
    Lines(Box<StandardBuilder>),
    /// Its name, or a number.
    Summary(Box<SummaryBuilder>),
    /// JSON messages.
    Json(JSONBuilder),
}

/// A part of an image that is searched.
#[derive(Clone, Copy, Debug)]
pub struct Tree<'a> {
    /// The image.
    pub fs: &'a Image,
    /// What stands before its paths.
    pub prefix: &'a [u8],
    /// The path of `top`, as it was given.
    pub start: &'a [u8],
    /// The directory or file.
    pub top: &'a Inode,
}

/// What the threads share.
#[derive(Debug)]
struct Shared<'a> {
    search: &'a Search,
    tree: Tree<'a>,
    tasks: Tasks,
    /// Whose output it is now.
    turn: Turn,
    complaints: &'a Mutex<Complaints>,
    matched: AtomicBool,
    /// By one thread, in the order of the paths.
    in_order: bool,
}

impl Search {
    /// Searches a tree and writes what is found. Says whether there was a match; what cannot be
    /// read is a complaint.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn run(
        &self,
        tree: Tree<'_>,
        out: &mut dyn Write,
        complaints: &Mutex<Complaints>,
    ) -> Result<bool, Failure> {
        let shared = Shared {
            search: self,
            tree,
            tasks: Tasks::default(),
            turn: Turn::default(),
            complaints,
            matched: AtomicBool::new(false),
            in_order: self.sorted || tree.top.file_type != FileType::Directory,
        };
        let top = Task::Dir(Box::new(Dir {
            path: tree.start.into(),
            depth: 0,
            inode: tree.top.clone(),
        }));
        shared.tasks.add(std::iter::once(top));
        let threads = match shared.in_order {
            true => 1,
            false => thread::available_parallelism().map_or(1, NonZero::get),
        };
        let (sender, pieces) = mpsc::sync_channel::<Vec<u8>>(WAITING_MAX);
        let written = thread::scope(|scope| {
            let mut started = 0;
            for _ in 0..threads {
                let (shared, sender) = (&shared, SyncSender::clone(&sender));
                let named = thread::Builder::new().name("uext4-grep".to_owned());
                let worker = move || Worker::new(shared, sender).run();
                started += usize::from(named.spawn_scoped(scope, worker).is_ok());
            }
            drop(sender);
            if started == 0 {
                let what = "the system has no thread for the search";
                return Err(Failure::new(Exit::System, what));
            }
            // When writing fails, the threads have no receiver any more, and end.
            pieces
                .into_iter()
                .try_for_each(|piece| out.write_all(&piece))
                .map_err(Failure::from)
        });
        written.map(|()| shared.matched.load(Relaxed))
    }
}
