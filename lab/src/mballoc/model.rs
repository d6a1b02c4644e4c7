//! The lab's volume as a tree of files, so that a workload runs on it as on any other.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::experiment::Failure;
use crate::mballoc::file::FileNr;
use crate::mballoc::volume::Volume;
use crate::subject::{Files, OpenFile, Status};

/// A volume and the names in it.
#[derive(Debug)]
pub struct Model {
    volume: Arc<Mutex<Volume>>,
    names: Mutex<BTreeMap<String, Node>>,
}

/// What a name stands for.
#[derive(Clone, Copy, Debug)]
enum Node {
    /// A directory, and the part of the disk that it is placed in.
    Directory(usize),
    File(FileNr),
}

/// An open file of the volume.
#[derive(Debug)]
struct Handle {
    volume: Arc<Mutex<Volume>>,
    nr: FileNr,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn answer(done: Result<bool, Failure>) -> io::Result<()> {
    match done {
        Ok(true) => Ok(()),
        Ok(false) => Err(io::ErrorKind::StorageFull.into()),
        Err(failure) => Err(io::Error::other(failure.to_string())),
    }
}

impl Model {
    /// Of an empty volume.
    pub fn new(volume: Volume) -> Self {
        Self {
            volume: Arc::new(Mutex::new(volume)),
            names: Mutex::default(),
        }
    }

    /// The volume, while nothing else uses it.
    pub fn volume(&self) -> MutexGuard<'_, Volume> {
        lock(&self.volume)
    }

    fn node(&self, path: &str) -> io::Result<Node> {
        let found = lock(&self.names).get(path).copied();
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// The part that the directory of a path is placed in; `None`: the root.
    fn parent(&self, path: &str) -> io::Result<Option<usize>> {
        match path.rsplit_once('/').map(|(parent, _)| self.node(parent)) {
            None => Ok(None),
            Some(Ok(Node::Directory(part))) => Ok(Some(part)),
            Some(Ok(Node::File(_))) => Err(io::ErrorKind::NotADirectory.into()),
            Some(Err(error)) => Err(error),
        }
    }

    fn name(&self, path: &str, node: Node) {
        lock(&self.names).insert(path.to_owned(), node);
    }

    fn handle(&self, nr: FileNr) -> Box<dyn OpenFile> {
        Box::new(Handle {
            volume: Arc::clone(&self.volume),
            nr,
        })
    }
}

fn unsupported<T>() -> io::Result<T> {
    Err(io::ErrorKind::Unsupported.into())
}

impl Files for Model {
    fn create(&self, path: &str) -> io::Result<Box<dyn OpenFile>> {
        // The root is in the first part.
        let part = self.parent(path)?.unwrap_or(0);
        let nr = self.volume().create(part);
        self.name(path, Node::File(nr));
        Ok(self.handle(nr))
    }

    fn open(&self, path: &str) -> io::Result<Box<dyn OpenFile>> {
        let Node::File(nr) = self.node(path)? else {
            return Err(io::ErrorKind::IsADirectory.into());
        };
        self.volume().open(nr);
        Ok(self.handle(nr))
    }

    fn make_dir(&self, path: &str) -> io::Result<()> {
        let parent = self.parent(path)?;
        let made = self.volume().make_directory(parent, 1);
        let part = made.map_err(|failure| io::Error::other(failure.to_string()))?;
        self.name(path, Node::Directory(part));
        Ok(())
    }

    fn unlink(&self, path: &str) -> io::Result<()> {
        if let Node::File(nr) = self.node(path)? {
            self.volume().unlink(nr);
        }
        lock(&self.names).remove(path);
        Ok(())
    }

    fn stat(&self, path: &str) -> io::Result<Status> {
        let node = self.node(path)?;
        let (volume, nr) = (
            self.volume(),
            match node {
                Node::File(nr) => nr,
                Node::Directory(_) => 0,
            },
        );
        Ok(Status {
            ino: nr,
            size: volume.size(nr),
            blocks: volume.blocks(nr) * volume.setup.block_bytes / 512,
            is_dir: matches!(node, Node::Directory(_)),
        })
    }

    fn set_attribute(&self, _: &str, _: &str, _: &[u8]) -> io::Result<()> {
        unsupported()
    }

    fn attribute(&self, _: &str, _: &str) -> io::Result<Vec<u8>> {
        unsupported()
    }

    fn sync(&self) -> io::Result<()> {
        answer(self.volume().sync().map(|()| true))
    }
}

impl OpenFile for Handle {
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        answer(lock(&self.volume).write(self.nr, offset, data.len() as u64))
    }

    fn read_at(&self, _: u64, _: &mut [u8]) -> io::Result<usize> {
        unsupported()
    }

    fn fsync(&self) -> io::Result<()> {
        unsupported()
    }

    fn fallocate(&self, offset: u64, len: u64) -> io::Result<()> {
        answer(lock(&self.volume).fallocate(self.nr, offset, len))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        lock(&self.volume).close(self.nr);
    }
}
