//! Many names made one after the other, each with all that belongs to it.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};

use serde_bytes::Bytes;
use uext4::{Error, FileType, NewInode, OpenInode, RemoteError, Result, Timestamp};

use crate::client::{Client, Passed};
use crate::entry::{self, Entry, Made, Read};
use crate::node::Node;
use crate::put_mode::PutMode;
use crate::refusal::Cause;
use crate::tree::Tree;
use crate::wire::{Answer, Attribute, Extent, Known, NewEntry, Request, Slot, Source};

/// Bytes of contents that are sent in a request where no descriptor has them.
const INLINE_MAX: u64 = 32 << 10;
/// Bytes copied at once.
const PIECE: usize = 1 << 20;

/// Where the contents of a file are.
pub struct Contents<'a> {
    /// Reads them.
    pub read: &'a mut Read<'a>,
    /// The regular file that they lie in, if there is one.
    pub file: Option<Place<'a>>,
}

/// Contents in a regular file.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The file.
    pub file: BorrowedFd<'a>,
    /// The descriptor stays open until all is put: others may lie in the same file.
    pub is_shared: bool,
    /// Where the contents lie in it.
    pub extents: &'a [Extent],
}

/// What became of a name.
#[derive(Debug)]
pub struct Outcome {
    /// As it was called.
    pub tag: u64,
    /// What was made, or why not.
    pub result: Result<Done>,
}

/// A name that was made, or was there.
#[derive(Debug)]
pub struct Done {
    /// Its inode.
    pub inode: Known,
    /// It was not there.
    pub is_new: bool,
    /// Attributes that could not be set.
    pub missing: Vec<Error>,
}

/// Makes names below a directory. Where another process serves the file system, outcomes come
/// later than calls.
#[derive(Debug)]
pub struct Putter {
    target: Target,
    mode: PutMode,
    outcomes: Vec<Outcome>,
    buffer: Vec<u8>,
}

#[derive(Debug)]
enum Target {
    Local {
        tree: Tree,
        /// The directories from the first to the one where names are made; `None` for one that
        /// could not be made.
        dirs: Vec<Option<Dir>>,
    },
    Remote {
        client: Client,
        /// The caller's directory, which stays open.
        _into: Node,
        dirs: Vec<Slot>,
        /// The names whose outcomes have not come yet.
        tags: VecDeque<u64>,
    },
}

#[derive(Debug)]
struct Dir {
    inode: OpenInode,
    /// It gets its attributes when all in it is there.
    is_new: bool,
}

impl Putter {
    /// For names below `into`, a directory of `tree`.
    ///
    /// # Errors
    /// [`Error::Remote`] if it is of another file system.
    pub fn new(tree: &Tree, into: &Node, mode: PutMode) -> Result<Self> {
        let target = match (tree, into) {
            (Tree::Local(_), Node::Local(inode)) => Target::Local {
                tree: tree.clone(),
                dirs: vec![Some(Dir {
                    inode: inode.clone(),
                    is_new: false,
                })],
            },
            (Tree::Remote(remote), Node::Remote(node)) => Target::Remote {
                client: remote.client().clone(),
                _into: into.clone(),
                dirs: vec![node.slot()],
                tags: VecDeque::new(),
            },
            _ => {
                return Err(Error::Remote {
                    kind: RemoteError::Request,
                    message: "a directory of another file system".to_owned(),
                });
            }
        };
        Ok(Self {
            target,
            mode,
            outcomes: Vec::new(),
            buffer: Vec::new(),
        })
    }

    /// Whether another process makes them, which reads contents from the files that have them.
    pub fn is_remote(&self) -> bool {
        matches!(self.target, Target::Remote { .. })
    }

    /// Makes a name. After that of a directory, names are made in it until [`Putter::leave`].
    ///
    /// # Errors
    /// [`Error::Remote`] where the connection is lost. What else goes wrong is an [`Outcome`].
    pub fn put(
        &mut self,
        tag: u64,
        name: &[u8],
        entry: &Entry<'_>,
        contents: Contents<'_>,
    ) -> Result<()> {
        let is_dir = entry.kind.file_type() == FileType::Directory;
        match &mut self.target {
            Target::Local { dirs, .. } => {
                let parent = dirs.last().and_then(Option::as_ref);
                let Some(parent) = parent else {
                    dirs.extend(is_dir.then_some(None));
                    return Ok(());
                };
                let mut contents = entry::Contents {
                    read: contents.read,
                    buffer: &mut self.buffer,
                };
                let made = entry::put(&parent.inode, name, entry, self.mode, &mut contents);
                if is_dir {
                    dirs.push(made.as_ref().ok().map(|made| Dir {
                        inode: made.inode.clone(),
                        is_new: made.is_new,
                    }));
                }
                self.outcomes.push(outcome(tag, made));
                Ok(())
            }
            Target::Remote { .. } => self.send(tag, name, entry, contents),
        }
    }

    /// Queues the request for a name.
    fn send(
        &mut self,
        tag: u64,
        name: &[u8],
        entry: &Entry<'_>,
        contents: Contents<'_>,
    ) -> Result<()> {
        let Target::Remote {
            client, dirs, tags, ..
        } = &mut self.target
        else {
            return Ok(());
        };
        let is_dir = entry.kind.file_type() == FileType::Directory;
        let Some(&dir) = dirs.last() else {
            return Ok(());
        };
        let to = is_dir.then(|| client.new_slot());
        dirs.extend(to);
        let new = new_entry(dir, name, entry, self.mode);
        let sent = match Sent::new(entry, contents) {
            Ok(sent) => sent,
            Err(source) => {
                let result = Err(Error::Content { offset: 0, source });
                self.outcomes.push(Outcome { tag, result });
                return Ok(());
            }
        };
        tags.push_back(tag);
        let queued = client.queue(sent.passed(), |number| {
            Request::Put(NewEntry {
                to,
                source: sent.source(number),
                data: sent.extents(),
                xattrs: attributes(entry),
                ..new
            })
        });
        match queued {
            // It was not sent.
            Err(
                error @ Error::Remote {
                    kind: RemoteError::Limit,
                    ..
                },
            ) => {
                tags.pop_back();
                let result = Err(error);
                self.outcomes.push(Outcome { tag, result });
            }
            queued => queued?,
        }
        self.take()
    }

    /// Gives a file that was made before one name more.
    ///
    /// # Errors
    /// [`Error::Remote`] where the connection is lost.
    pub fn link(&mut self, tag: u64, name: &[u8], known: Known) -> Result<()> {
        match &mut self.target {
            Target::Local { tree, dirs } => {
                let Some(parent) = dirs.last().and_then(Option::as_ref) else {
                    return Ok(());
                };
                let Tree::Local(fs) = tree else {
                    return Ok(());
                };
                let inode = entry::open_known(fs, known);
                let made =
                    inode.and_then(|inode| entry::link(&inode, &parent.inode, name, self.mode));
                self.outcomes.push(outcome(tag, made));
                Ok(())
            }
            Target::Remote {
                client, dirs, tags, ..
            } => {
                let Some(&dir) = dirs.last() else {
                    return Ok(());
                };
                tags.push_back(tag);
                let new = NewEntry {
                    link: Some(known),
                    ..new_entry(dir, name, &NO_ENTRY, self.mode)
                };
                client.queue(Passed::Nothing, |_| Request::Put(new))?;
                self.take()
            }
        }
    }

    /// Everything in the last directory is there: it gets its attributes, if it is new.
    ///
    /// # Errors
    /// [`Error::Remote`] where the connection is lost.
    pub fn leave(&mut self, tag: u64, entry: &Entry<'_>) -> Result<()> {
        match &mut self.target {
            Target::Local { dirs, .. } => {
                let Some(Dir {
                    inode,
                    is_new: true,
                }) = dirs.pop().flatten()
                else {
                    return Ok(());
                };
                let mut missing = Vec::new();
                let completed = entry::complete(&inode, entry, &mut missing);
                let made = completed.map(|()| Made {
                    inode,
                    is_new: false,
                    missing,
                });
                self.outcomes.push(outcome(tag, made));
                Ok(())
            }
            Target::Remote {
                client, dirs, tags, ..
            } => {
                let Some(slot) = dirs.pop().filter(|_| !dirs.is_empty()) else {
                    return Ok(());
                };
                tags.push_back(tag);
                let new = NewEntry {
                    xattrs: attributes(entry),
                    ..new_entry(slot, b"", entry, self.mode)
                };
                client.queue(Passed::Nothing, |_| Request::Complete(new))?;
                client.free_slot(slot);
                self.take()
            }
        }
    }

    /// Waits for all outcomes.
    ///
    /// # Errors
    /// [`Error::Remote`] where the connection is lost.
    pub fn settle(&mut self) -> Result<()> {
        if let Target::Remote { client, .. } = &self.target {
            client.drain()?;
            self.take()?;
        }
        Ok(())
    }

    /// What has become of names since the last call, in order. Names in a directory that could not
    /// be made have no outcome.
    pub fn outcomes(&mut self) -> std::vec::Drain<'_, Outcome> {
        self.outcomes.drain(..)
    }

    /// Takes what has been answered.
    fn take(&mut self) -> Result<()> {
        let Target::Remote { client, tags, .. } = &mut self.target else {
            return Ok(());
        };
        for answer in client.take_answers() {
            let Some(tag) = tags.pop_front() else {
                break;
            };
            let result = match answer {
                Answer::Put {
                    inode,
                    is_new,
                    missing,
                } => Ok(Done {
                    inode,
                    is_new,
                    missing: missing.into_iter().map(Error::from).collect(),
                }),
                Answer::Refused(refusal)
                    if matches!(refusal.cause, Cause::NoDirectory | Cause::NotTried) =>
                {
                    continue;
                }
                Answer::Refused(refusal) => Err(refusal.into()),
                // A directory that was there is complete.
                _ => continue,
            };
            self.outcomes.push(Outcome { tag, result });
        }
        Ok(())
    }
}

const NO_ENTRY: Entry<'static> = Entry {
    kind: NewInode::File,
    mode: 0,
    uid: 0,
    gid: 0,
    atime: Timestamp { sec: 0, nsec: 0 },
    mtime: Timestamp { sec: 0, nsec: 0 },
    size: 0,
    data: &[],
    xattrs: &[],
};

fn outcome(tag: u64, made: Result<Made>) -> Outcome {
    let result = made.map(|made| Done {
        inode: entry::known(&made.inode),
        is_new: made.is_new,
        missing: made.missing,
    });
    Outcome { tag, result }
}

/// The request for an entry without contents and extended attributes.
fn new_entry<'a>(dir: Slot, name: &'a [u8], entry: &Entry<'a>, mode: PutMode) -> NewEntry<'a> {
    NewEntry {
        dir,
        name: Bytes::new(name),
        kind: entry.kind.into(),
        link: None,
        mode: entry.mode,
        uid: entry.uid,
        gid: entry.gid,
        atime: entry.atime.into(),
        mtime: entry.mtime.into(),
        size: entry.size,
        xattrs: Vec::new(),
        source: Source::Inline(Bytes::new(&[])),
        data: Vec::new(),
        how: mode,
        to: None,
    }
}

fn attributes<'a>(entry: &Entry<'a>) -> Vec<Attribute<'a>> {
    let all = entry.xattrs.iter().map(|(name, value)| Attribute {
        name: Bytes::new(name),
        value: Bytes::new(value),
    });
    all.collect()
}

/// Contents where the other process can read them.
enum Sent<'a> {
    /// In a file that passes with the request.
    Passed(Place<'a>),
    /// In a file of ours that does.
    Copied(File, Vec<Extent>),
    /// In the request.
    Inline(Vec<u8>, Vec<Extent>),
}

impl<'a> Sent<'a> {
    fn new(entry: &Entry<'_>, contents: Contents<'a>) -> io::Result<Self> {
        let len: u64 = entry.data.iter().map(|range| range.end - range.start).sum();
        if let Some(place) = contents.file.filter(|_| len > 0) {
            return Ok(Self::Passed(place));
        }
        if len <= INLINE_MAX {
            let mut bytes = Vec::new();
            let extents = copy(entry, contents.read, &mut bytes)?;
            return Ok(Self::Inline(bytes, extents));
        }
        let mut file = tempfile::tempfile()?;
        let extents = copy(entry, contents.read, &mut file)?;
        Ok(Self::Copied(file, extents))
    }

    fn passed(&self) -> Passed<'_> {
        match self {
            Self::Passed(place) if place.is_shared => Passed::Shared(place.file),
            Self::Passed(place) => Passed::Own(place.file),
            Self::Copied(file, _) => Passed::Own(file.as_fd()),
            Self::Inline(..) => Passed::Nothing,
        }
    }

    /// What the request says of them, with the number of the descriptor in its frame.
    fn source(&self, number: u32) -> Source<'_> {
        match self {
            Self::Passed(_) | Self::Copied(..) => Source::Descriptor(number),
            Self::Inline(bytes, _) => Source::Inline(Bytes::new(bytes)),
        }
    }

    fn extents(&self) -> Vec<Extent> {
        match self {
            Self::Passed(place) => place.extents.to_vec(),
            Self::Copied(_, extents) | Self::Inline(_, extents) => extents.clone(),
        }
    }
}

/// Copies contents to the file that the other process reads.
fn copy(entry: &Entry<'_>, read: &mut Read<'_>, into: &mut dyn Write) -> io::Result<Vec<Extent>> {
    let mut extents = Vec::with_capacity(entry.data.len());
    let mut piece = vec![0; PIECE.min(usize::try_from(entry.size).unwrap_or(PIECE))];
    let mut at = 0;
    for range in entry.data {
        let len = range.end.saturating_sub(range.start);
        extents.push(Extent {
            offset: range.start,
            len,
            at,
        });
        at += len;
        let mut offset = range.start;
        while offset < range.end {
            let len = (range.end - offset).min(piece.len() as u64) as usize;
            read(offset, &mut piece[..len])?;
            into.write_all(&piece[..len])?;
            offset += len as u64;
        }
    }
    Ok(extents)
}
