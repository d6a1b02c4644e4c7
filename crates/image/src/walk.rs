//! A walk over a tree in the image, in a chosen order, with bounded memory, on any image.
//!
//! **Order.** Each directory yields *events*: every name once as an entry, and every directory once
//! more as its subtree. Sorting a directory's events by the order's key gives the walk:
//!
//! | order | key of an entry | key of a subtree | who |
//! |---|---|---|---|
//! | [`Order::Sorted`] | `name` | `name/` | `manifest`: full paths ascend as text |
//! | [`Order::Nested`] | `name␀0` | `name␀1` | `tree`, `tar`, `get`: contents follow their directory |
//! | [`Order::Listing`] | `0name` | `1name` | `ls -R`: a directory's list, then its subdirectories |
//!
//! `Sorted` is right because all paths below `name` share the prefix `name/`, so no sibling can
//! sort between them.
//!
//! **Memory.** Pending events are limited (`LIMITS`). A directory with more names is
//! read in several passes, each taking the smallest keys above the last one served; when the sum
//! over the open directories is too large, the outermost forget theirs and read them again later.
//! Forgetting pays for itself: what made it necessary was as large.
//!
//! **Hostile images.** A directory is entered once; meeting it again (a cycle, or hard-linked
//! directories) is a [`Problem`]. Depth and length of paths are limited, and directories together
//! may be no larger than the file system. A directory that cannot be read, wholly or in part,
//! reports so with its own entry.

mod events;
mod seen;
/// A path below the argument, as it would be typed.
pub fn joined(argument: &[u8], below: &[u8]) -> Vec<u8> {
    let mut path = argument.to_vec();
    if !below.is_empty() {
        if !path.ends_with(b"/") {
            path.push(b'/');
        }
        path.extend_from_slice(below);
    }
    path
}

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;

use uext4::{Error, Image, Inode};
use uext4_ondisk::Ino;
use uext4_ondisk::inode::FileType;

use self::events::{Event, Smallest, collect, text_name};
pub use self::seen::InodeSet;

/// How much may be pending.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Bytes of events over all open directories.
    all: usize,
    /// Bytes of events of one directory.
    one: usize,
}

const LIMITS: Limits = Limits {
    all: 64 << 20,
    one: 24 << 20,
};
/// Directories inside each other.
const DEPTH_MAX: usize = 16_384;
/// Bytes of a path.
const PATH_MAX: usize = 1 << 16;
/// In which order the entries come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// By full path, as text.
    Sorted,
    /// By name; the contents of a directory right after it.
    Nested,
    /// By name; the contents of directories after the directory that holds them.
    Listing,
}

/// What is wrong with a name, or why a directory is not or not wholly entered.
#[derive(Debug)]
pub enum Problem {
    /// Reading it failed.
    Unreadable(Error),
    /// It was met before: a cycle or a second hard link.
    Again(Ino),
    /// Too many directories inside each other, or too long a path.
    TooDeep,
    /// With this one, directories are larger than the file system: some share their blocks.
    TooMuch,
    /// The entry says directory, the inode does not, or the other way round.
    TypeDiffers,
    /// No path can hold the name.
    BadName,
    /// Another file of the directory has the name: of such files the first is shown without this.
    /// A copy of both could write through the one what is below the other.
    NameTwice,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(error) => error.fmt(f),
            Self::Again(ino) => {
                write!(
                    f,
                    "directory inode {ino} has a second name, or is inside itself"
                )
            }
            Self::TooDeep => write!(
                f,
                "deeper than {DEPTH_MAX} directories or longer than {PATH_MAX} bytes, not entered"
            ),
            Self::TooMuch => {
                f.write_str("directories are larger than the file system, not entered")
            }
            Self::BadName => f.write_str("no file can have this name"),
            Self::NameTwice => f.write_str("another file in the directory has the same name"),
            Self::TypeDiffers => f.write_str("directory entry and inode state different types"),
        }
    }
}

/// What a step of the walk shows.
#[derive(Debug)]
pub enum Step {
    /// A name.
    Entry(Entry),
    /// The entries that follow are in this directory.
    Enter(Inode),
    /// The last directory entered is done.
    Leave,
}

/// A name in the tree.
#[derive(Debug)]
pub struct Entry {
    /// The name; empty for the walk's own top.
    pub name: Vec<u8>,
    /// Its inode number.
    pub ino: Ino,
    /// Its inode, if it could be read.
    pub inode: Result<Inode, Error>,
    /// What is wrong with its name, or why it is a directory that is not or not wholly entered.
    pub problem: Option<Problem>,
    /// Directories above it in the walk; 0 for the top.
    pub depth: usize,
    /// True if no other name follows in its directory ([`Order::Nested`] only).
    pub last: bool,
}

impl Entry {
    /// True for a name no path can hold: empty, a dot name, or one with a slash or zero byte; and
    /// for one that an entry before it has.
    pub fn is_unusable(&self) -> bool {
        let is_repeated = matches!(self.problem, Some(Problem::NameTwice));
        is_repeated || self.depth > 0 && is_unusable(&self.name)
    }
}

fn is_unusable(name: &[u8]) -> bool {
    matches!(name, b"" | b"." | b"..") || name.contains(&b'/') || name.contains(&0)
}

/// The walk. [`Walk::step`] goes on; the paths are those of the last step.
#[derive(Debug)]
pub struct Walk<'a> {
    fs: &'a Image,
    order: Order,
    limits: Limits,
    top: Inode,
    stage: Stage,
    stack: Vec<Frame>,
    pending_bytes: usize,
    /// Bytes of all directories shown.
    claimed: u64,
    /// Directories whose entry was shown without a problem.
    shown: InodeSet,
    /// Directories whose contents were shown.
    entered: InodeSet,
    raw: Vec<u8>,
    text: String,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Nothing was shown yet.
    Start,
    /// The top's entry was shown, and it is a directory.
    EnterTop,
    /// In the midst of it.
    Below,
}

/// An open directory.
#[derive(Debug)]
struct Frame {
    dir: Inode,
    /// Lengths of the two paths of the directory, without a slash behind it.
    raw_len: usize,
    text_len: usize,
    pending: VecDeque<Event>,
    pending_bytes: usize,
    /// There are more events than those pending.
    truncated: bool,
    /// The key of the last event served.
    done: Option<Box<[u8]>>,
    /// The name of the last entry served.
    last: Option<Box<[u8]>>,
}

impl<'a> Walk<'a> {
    /// A walk over `top` and, if it is a directory, everything below.
    pub fn new(fs: &'a Image, top: Inode, order: Order) -> Self {
        Self {
            fs,
            order,
            limits: LIMITS,
            top,
            stage: Stage::Start,
            stack: Vec::new(),
            pending_bytes: 0,
            claimed: 0,
            shown: InodeSet::default(),
            entered: InodeSet::default(),
            raw: Vec::new(),
            text: String::new(),
        }
    }

    /// Path below the top of what the last step showed: names joined by slashes; empty for the top.
    pub fn path(&self) -> &[u8] {
        &self.raw
    }

    /// The same as text: components that are not UTF-8 (or that no path can hold) as `hex:…`, the
    /// top as `.`.
    pub fn text_path(&self) -> &str {
        if self.text.is_empty() {
            "."
        } else {
            &self.text
        }
    }

    /// Directories the walk is inside of.
    pub fn depth(&self) -> usize {
        self.stack.len()
    }

    /// Leaves out the contents of a directory whose entry was just shown.
    pub fn skip_contents(&mut self, ino: Ino) {
        self.entered.insert(ino);
    }

    /// The next step; `None` at the end.
    pub fn step(&mut self) -> Option<Step> {
        match self.stage {
            Stage::Start => return Some(self.start()),
            Stage::EnterTop => {
                self.stage = Stage::Below;
                return self.enter_if_sound(self.top.ino).map(Step::Enter);
            }
            Stage::Below => {}
        }
        loop {
            let index = self.stack.len().checked_sub(1)?;
            let Some(event) = self.next_event(index) else {
                self.leave();
                return Some(Step::Leave);
            };
            self.set_path(index, &event.name);
            if !event.subtree {
                return Some(Step::Entry(self.entry(index, event)));
            }
            if let Some(dir) = self.enter_if_sound(Ino(event.ino)) {
                return Some(Step::Enter(dir));
            }
        }
    }

    /// The first step. In [`Order::Sorted`] a directory's own entry is an event of its own frame,
    /// as some names sort before `.`.
    fn start(&mut self) -> Step {
        let top = self.top.clone();
        self.stage = Stage::Below;
        let is_dir = top.file_type == FileType::Directory;
        if is_dir && self.order == Order::Sorted {
            self.shown.insert(top.ino);
            self.enter(top.clone());
            return Step::Enter(top);
        }
        if is_dir {
            self.stage = Stage::EnterTop;
        }
        Step::Entry(self.judged(top.ino, Ok(top), Vec::new(), None))
    }

    fn next_event(&mut self, index: usize) -> Option<Event> {
        let frame = &self.stack[index];
        // Two are wanted, so that an entry knows whether it is the last.
        if frame.truncated && frame.pending.len() <= 2 {
            self.load(index);
        }
        let frame = &mut self.stack[index];
        let event = frame.pending.pop_front()?;
        frame.pending_bytes -= event.cost();
        self.pending_bytes -= event.cost();
        frame.done = Some(event.key.clone());
        Some(event)
    }

    fn set_path(&mut self, index: usize, name: &[u8]) {
        let frame = &self.stack[index];
        self.raw.truncate(frame.raw_len);
        self.text.truncate(frame.text_len);
        if !self.raw.is_empty() && !name.is_empty() {
            self.raw.push(b'/');
            self.text.push('/');
        }
        self.raw.extend_from_slice(name);
        self.text.push_str(&text_name(name));
    }

    fn entry(&mut self, index: usize, event: Event) -> Entry {
        let ino = Ino(event.ino);
        // Equal names sort next to each other in every order.
        let last = self.stack[index].last.replace(event.name.clone());
        let is_repeated = last.is_some_and(|last| last == event.name);
        let name = event.name.into_vec();
        let mut entry = match is_repeated {
            false => self.judged(ino, self.fs.inode(ino), name, event.directory),
            true => Entry {
                name,
                ino,
                inode: self.fs.inode(ino),
                problem: Some(Problem::NameTwice),
                depth: self.stack.len(),
                last: false,
            },
        };
        let rest = &self.stack[index].pending;
        entry.last = !rest.iter().take(2).any(|e| !e.subtree);
        entry
    }

    /// An entry with the verdict on its directory, if it is one.
    fn judged(
        &mut self,
        ino: Ino,
        inode: Result<Inode, Error>,
        name: Vec<u8>,
        stated_directory: Option<bool>,
    ) -> Entry {
        // The top stands above its frame in `Sorted`, all others below one.
        let depth = if name.is_empty() { 0 } else { self.stack.len() };
        let is_bad = depth > 0 && is_unusable(&name);
        let sound = inode.as_ref().ok().filter(|_| !is_bad);
        let problem = is_bad.then_some(Problem::BadName);
        let problem = problem.or_else(|| {
            let inode = sound?;
            let is_dir = inode.file_type == FileType::Directory;
            if stated_directory.is_some_and(|reported| reported != is_dir) {
                return Some(Problem::TypeDiffers);
            }
            if !is_dir {
                return None;
            }
            if depth >= DEPTH_MAX || self.raw.len() >= PATH_MAX {
                return Some(Problem::TooDeep);
            }
            if !self.shown.insert(ino) && depth > 0 {
                return Some(Problem::Again(ino));
            }
            self.claimed = self.claimed.saturating_add(inode.size);
            if self.claimed > self.fs.geometry().len_bytes() {
                self.entered.insert(ino);
                return Some(Problem::TooMuch);
            }
            self.first_error(inode).map(Problem::Unreadable)
        });
        Entry {
            name,
            ino,
            inode,
            problem,
            depth,
            last: false,
        }
    }

    /// The first error of reading a directory through.
    fn first_error(&self, dir: &Inode) -> Option<Error> {
        match self.fs.read_dir(dir) {
            Ok(mut entries) => entries.find_map(Result::err),
            Err(error) => Some(error),
        }
    }

    /// Enters a directory if its entry was shown as sound and it was not entered before.
    fn enter_if_sound(&mut self, ino: Ino) -> Option<Inode> {
        let fits = self.stack.len() <= DEPTH_MAX && self.raw.len() < PATH_MAX;
        if !fits || !self.shown.contains(ino) || self.entered.contains(ino) {
            return None;
        }
        let dir = self.fs.inode(ino).ok()?;
        if dir.file_type != FileType::Directory {
            return None;
        }
        self.enter(dir.clone());
        Some(dir)
    }

    fn enter(&mut self, dir: Inode) {
        self.entered.insert(dir.ino);
        self.stack.push(Frame {
            dir,
            raw_len: self.raw.len(),
            text_len: self.text.len(),
            pending: VecDeque::new(),
            pending_bytes: 0,
            truncated: false,
            done: None,
            last: None,
        });
        self.load(self.stack.len() - 1);
    }

    fn leave(&mut self) {
        if let Some(frame) = self.stack.pop() {
            self.pending_bytes -= frame.pending_bytes;
            self.raw.truncate(frame.raw_len);
            self.text.truncate(frame.text_len);
        }
    }

    /// Reads the next pending events of a directory, and makes room for them.
    fn load(&mut self, index: usize) {
        let is_top = index == 0 && self.order == Order::Sorted;
        let frame = &mut self.stack[index];
        self.pending_bytes -= frame.pending_bytes;
        let mut smallest = Smallest::new(frame.done.take(), self.limits.one);
        if is_top {
            smallest.add(Event {
                key: (*b".").into(),
                name: Box::default(),
                ino: frame.dir.ino.0,
                subtree: false,
                directory: Some(true),
            });
        }
        collect(self.fs, &frame.dir, self.order, &mut smallest);
        (frame.pending, frame.truncated) = smallest.finish();
        frame.done = smallest.above;
        frame.pending_bytes = frame.pending.iter().map(Event::cost).sum();
        self.pending_bytes += frame.pending_bytes;
        for frame in &mut self.stack[..index] {
            if self.pending_bytes <= self.limits.all {
                break;
            }
            if frame.done.is_some() {
                self.pending_bytes -= frame.pending_bytes;
                frame.pending_bytes = 0;
                frame.truncated = true;
                frame.pending = VecDeque::new();
            }
        }
    }
}
