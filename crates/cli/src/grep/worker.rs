//! One thread of the search.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::SyncSender;

use grep_printer::{JSON, Standard, Summary};
use grep_regex::RegexMatcher;
use grep_searcher::{Searcher, Sink};
use memchr::memchr;
use uext4::{Error, Image, Inode};
use uext4_image::walk::{Order, Step, Walk, joined};
use uext4_ondisk::inode::FileType;

use super::found::Found;
use super::tasks::{Dir, Name, Task};
use super::{Shared, Shown};
use crate::failure::Exit;
use crate::show::escaped;

/// Bytes at the beginning of a file that show whether it is binary.
const FIRST: usize = 64 << 10;
/// Files up to this size are searched in one piece; larger ones are read in such pieces.
const PIECE: usize = 1 << 20;
/// Files of one task.
const FILES: usize = 128;

/// A thread with what it searches with.
pub struct Worker<'a> {
    shared: &'a Shared<'a>,
    matcher: RegexMatcher,
    searcher: Searcher,
    printer: Printer<'a>,
    buffer: Vec<u8>,
    path: Vec<u8>,
    shown: Vec<u8>,
}

enum Printer<'a> {
    Lines(Box<Standard<Found<'a>>>),
    Summary(Box<Summary<Found<'a>>>),
    Json(Box<JSON<Found<'a>>>),
}

/// Why a file was not searched to its end.
enum Stop {
    /// It cannot be read.
    Engine(Error),
    /// The output takes no more, or a line is too long.
    Io(io::Error),
}

impl<'a> Worker<'a> {
    /// A thread that passes on what it finds.
    pub fn new(shared: &'a Shared<'a>, to: SyncSender<Vec<u8>>) -> Self {
        let search = shared.search;
        let found = Found::new(to, &shared.turn, search.colored);
        Self {
            shared,
            matcher: search.matcher.clone(),
            searcher: search.searcher.build(),
            printer: match &search.shown {
                Shown::Lines(builder) => Printer::Lines(Box::new(builder.build(found))),
                Shown::Summary(builder) => Printer::Summary(Box::new(builder.build(found))),
                Shown::Json(builder) => Printer::Json(Box::new(builder.build(found))),
            },
            buffer: Vec::new(),
            path: Vec::new(),
            shown: Vec::new(),
        }
    }

    /// Works until nothing is left.
    pub fn run(mut self) {
        if self.shared.in_order {
            return self.sorted();
        }
        while let Some(task) = self.shared.tasks.next() {
            match task {
                Task::Dir(dir) => self.dir(&dir),
                Task::Files(path, names) => self.files(&path, names),
            }
            self.pass_on();
            self.shared.tasks.done();
        }
    }

    /// What was found is printed now.
    fn pass_on(&mut self) {
        if self.printer.found().pass_on().is_err() {
            self.shared.tasks.stop();
        }
    }

    /// Searches the whole tree in the order of its paths.
    fn sorted(&mut self) {
        let tree = &self.shared.tree;
        let globs = &self.shared.search.globs;
        let mut walk = Walk::new(tree.fs, tree.top.clone(), Order::Nested);
        while let Some(step) = walk.step() {
            let Step::Entry(entry) = step else {
                continue;
            };
            let path = joined(tree.start, walk.path());
            match (&entry.inode, &entry.problem) {
                (Err(error), _) => self.shared.complain(&path, error),
                (_, Some(problem)) => self.shared.report(&path, problem),
                _ => {}
            }
            match &entry.inode {
                Ok(inode) if inode.file_type == FileType::Directory => {
                    match entry.depth == 0 || globs.takes_dir(&path) {
                        true => {}
                        false => walk.skip_contents(entry.ino),
                    }
                }
                Ok(inode) if entry.depth == 0 || globs.takes_file(&path) => {
                    self.path = path;
                    self.file(inode);
                }
                _ => {}
            }
            if self.shared.tasks.is_stopped() {
                break;
            }
        }
        self.pass_on();
    }

    /// Reads a directory: those below it become tasks, its files are searched.
    fn dir(&mut self, dir: &Dir) {
        let shared = self.shared;
        let fs = shared.tree.fs;
        if let Err(why) = shared.tasks.enter(dir, fs.geometry().len_bytes()) {
            return shared.report(&dir.path, why);
        }
        let entries = match fs.read_dir(&dir.inode) {
            Ok(entries) => entries,
            Err(error) => return shared.complain(&dir.path, &error),
        };
        let (mut names, mut below) = (Vec::new(), Vec::new());
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    shared.complain(&dir.path, &error);
                    continue;
                }
            };
            let name = Name {
                ino: entry.ino,
                name: fs.entry_name(&dir.inode, &entry).into(),
            };
            match entry.file_type {
                Some(FileType::Regular) => names.push(name),
                Some(FileType::Directory) | None => self.below(dir, name, &mut names, &mut below),
                Some(_) => {}
            }
            if names.len() >= FILES && shared.tasks.is_full() {
                self.files(&dir.path, std::mem::take(&mut names));
            }
        }
        names.sort_unstable_by_key(|name| name.ino);
        // The first task is done last.
        shared
            .tasks
            .add(below.into_iter().rev().map(|dir| Task::Dir(Box::new(dir))));
        let mut more = Vec::new();
        while names.len() > FILES {
            let rest = names.split_off(names.len() - FILES);
            more.push(Task::Files(dir.path.clone(), rest));
        }
        shared.tasks.add(more.into_iter());
        self.files(&dir.path, names);
    }

    /// Adds what may be a directory to those below `dir`, or to the files.
    fn below(&mut self, dir: &Dir, name: Name, names: &mut Vec<Name>, below: &mut Vec<Dir>) {
        self.set_path(&dir.path, &name.name);
        match self.shared.tree.fs.inode(name.ino) {
            Err(error) => self.shared.complain(&self.path, &error),
            Ok(inode) if inode.file_type == FileType::Directory => {
                if self.shared.search.globs.takes_dir(&self.path) {
                    below.push(Dir {
                        path: self.path.as_slice().into(),
                        depth: dir.depth + 1,
                        inode,
                    });
                }
            }
            Ok(_) => names.push(name),
        }
    }

    fn set_path(&mut self, dir: &[u8], name: &[u8]) {
        self.path.clear();
        self.path.extend_from_slice(dir);
        if !dir.ends_with(b"/") {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name);
    }

    fn files(&mut self, dir: &[u8], names: Vec<Name>) {
        for name in names {
            self.set_path(dir, &name.name);
            if !self.shared.search.globs.takes_file(&self.path) {
                continue;
            }
            match self.shared.tree.fs.inode(name.ino) {
                Ok(inode) => self.file(&inode),
                Err(error) => self.shared.complain(&self.path, &error),
            }
            if self.shared.tasks.is_stopped() {
                return;
            }
        }
    }

    /// Searches the file of the path that is set.
    fn file(&mut self, inode: &Inode) {
        let search = self.shared.search;
        let is_left_out = search.max_filesize.is_some_and(|max| inode.size > max);
        if inode.file_type != FileType::Regular || inode.size == 0 || is_left_out {
            return;
        }
        if inode.size > PIECE as u64 {
            self.pass_on();
        }
        match self.contents(inode) {
            Ok(false) => {}
            Ok(true) => {
                self.shared.matched.store(true, Relaxed);
                if search.first_only {
                    self.shared.tasks.stop();
                }
            }
            Err(Stop::Engine(error)) => self.shared.complain(&self.path, &error),
            Err(Stop::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.shared.tasks.stop();
            }
            Err(Stop::Io(error)) => self.shared.report(&self.path, error),
        }
        if self.printer.found().end_file().is_err() {
            self.shared.tasks.stop();
        }
    }

    /// Reads and searches a file; says whether there was a match.
    fn contents(&mut self, inode: &Inode) -> Result<bool, Stop> {
        let fs = self.shared.tree.fs;
        self.buffer.resize(PIECE, 0);
        let first = fs.read_at(inode, 0, &mut self.buffer[..FIRST]);
        let mut len = first.map_err(Stop::Engine)?;
        let quits = !self.shared.search.text;
        let mut has_zero = quits && memchr(0, &self.buffer[..len]).is_some();
        if has_zero && !has_bom(&self.buffer[..len]) {
            return Ok(false);
        }
        if len == FIRST && inode.size > FIRST as u64 {
            let rest = fs.read_at(inode, FIRST as u64, &mut self.buffer[FIRST..]);
            len += rest.map_err(Stop::Engine)?;
            has_zero |= quits && memchr(0, &self.buffer[FIRST..len]).is_some();
        }
        let mut file = Contents {
            fs,
            inode,
            next: len as u64,
            at: 0,
            len,
            has_zero,
            buffer: &mut self.buffer,
            error: None,
        };
        self.shown.clear();
        let prefix = self.shared.tree.prefix;
        if let Printer::Json(_) = self.printer {
            self.shown.extend_from_slice(prefix);
            self.shown.extend_from_slice(&self.path);
        } else {
            let path = escaped(&self.path);
            self.shown.extend_from_slice(escaped(prefix).as_bytes());
            self.shown.extend_from_slice(path.as_bytes());
        }
        let path = Path::new(OsStr::from_bytes(&self.shown));
        let (matcher, searcher) = (&self.matcher, &mut self.searcher);
        let matched = match &mut self.printer {
            Printer::Lines(printer) => {
                let mut sink = printer.sink_with_path(matcher, path);
                search(matcher, searcher, &mut file, &mut sink).map(|()| sink.has_match())
            }
            Printer::Summary(printer) => {
                let mut sink = printer.sink_with_path(matcher, path);
                search(matcher, searcher, &mut file, &mut sink).map(|()| sink.has_match())
            }
            Printer::Json(printer) => {
                let mut sink = printer.sink_with_path(matcher, path);
                search(matcher, searcher, &mut file, &mut sink).map(|()| sink.has_match())
            }
        };
        match file.error {
            Some(error) => Err(Stop::Engine(error)),
            None => matched.map_err(Stop::Io),
        }
    }
}

/// Searches a file, in one piece if it is in memory and text.
fn search<S: Sink<Error = io::Error>>(
    matcher: &RegexMatcher,
    searcher: &mut Searcher,
    file: &mut Contents<'_>,
    sink: S,
) -> io::Result<()> {
    // A search in one piece does not end at a zero byte.
    if file.len as u64 == file.inode.size && !file.has_zero {
        return searcher.search_slice(matcher, &file.buffer[..file.len], sink);
    }
    searcher.search_reader(matcher, file, sink)
}

/// Whether a text begins as UTF-16 does, whose characters have zero bytes.
fn has_bom(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff")
}

impl<'a> Printer<'a> {
    fn found(&mut self) -> &mut Found<'a> {
        match self {
            Self::Lines(printer) => printer.get_mut(),
            Self::Summary(printer) => printer.get_mut(),
            Self::Json(printer) => printer.get_mut(),
        }
    }
}

impl Shared<'_> {
    fn complain(&self, path: &[u8], error: &Error) {
        let subject = escaped(&[self.tree.prefix, path].concat());
        self.complaints.lock().engine(subject, error);
    }

    fn report(&self, path: &[u8], what: impl std::fmt::Display) {
        let subject = escaped(&[self.tree.prefix, path].concat());
        let what = format_args!("{subject}: {what}");
        self.complaints.lock().report(Exit::Damaged, what);
    }
}

/// The contents of a file, read in large pieces.
struct Contents<'a> {
    fs: &'a Image,
    inode: &'a Inode,
    /// Where the next piece begins.
    next: u64,
    /// What is left of the piece in memory.
    at: usize,
    len: usize,
    /// A zero byte, at which the search ends, is in the first piece.
    has_zero: bool,
    buffer: &'a mut [u8],
    error: Option<Error>,
}

impl Read for Contents<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.at == self.len && self.next < self.inode.size {
            let read = self.fs.read_at(self.inode, self.next, self.buffer);
            self.len = read.map_err(|error| {
                let why = io::Error::other(error.to_string());
                self.error = Some(error);
                why
            })?;
            self.next += self.len as u64;
            self.at = 0;
        }
        let piece = &self.buffer[self.at..self.len];
        let len = piece.len().min(to.len());
        to[..len].copy_from_slice(&piece[..len]);
        self.at += len;
        Ok(len)
    }
}
