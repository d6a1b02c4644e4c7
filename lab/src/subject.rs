//! What an experiment runs on, and the calls that its workload needs.
//!
//! A workload is written once, over [`Files`], and runs on the library in this process
//! ([`Library`]) and on any mounted directory ([`Directory`]), be that our mount or the kernel's
//! file system.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, XattrFlags};
use uext4::data::Fallocate;
use uext4::device::{BlockDevice, SystemClock};
use uext4::xattr::SetMode;
use uext4::{Creation, FileType, FollowLast, NewInode, OpenInode, OpenOptions, Volume};

/// What an experiment is run on, as `--on` spells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The library in this process.
    Library,
    /// A mount of ours that exists.
    Mount(PathBuf),
    /// A directory of any file system.
    Directory(PathBuf),
}

impl FromStr for Subject {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let subject = match word.split_once(':') {
            None if word == "library" => Some(Self::Library),
            Some(("fuse", dir)) if !dir.is_empty() => Some(Self::Mount(dir.into())),
            Some(("dir", dir)) if !dir.is_empty() => Some(Self::Directory(dir.into())),
            _ => None,
        };
        subject
            .ok_or_else(|| format!("{word:?} is no subject; there are: library, fuse:DIR, dir:DIR"))
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Library => out.write_str("library"),
            Self::Mount(dir) => write!(out, "fuse:{}", dir.display()),
            Self::Directory(dir) => write!(out, "dir:{}", dir.display()),
        }
    }
}

/// What stat(2) returns, as far as workloads need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The inode's number.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Units of 512 bytes that are allocated or reserved.
    pub blocks: u64,
    /// Whether it is a directory.
    pub is_dir: bool,
}

/// A tree of files. Paths are relative to its root, with slashes between names. Errors are those of
/// the system calls.
pub trait Files: Send + Sync {
    /// Makes a regular file of mode 0644 that must not exist, and opens it.
    fn create(&self, path: &str) -> io::Result<Box<dyn OpenFile>>;
    /// Opens a regular file for reading and writing.
    fn open(&self, path: &str) -> io::Result<Box<dyn OpenFile>>;
    /// Makes a directory of mode 0755.
    fn make_dir(&self, path: &str) -> io::Result<()>;
    /// Removes a name that is not a directory's.
    fn unlink(&self, path: &str) -> io::Result<()>;
    /// The attributes of an inode.
    fn stat(&self, path: &str) -> io::Result<Status>;
    /// Sets an extended attribute, for example `user.mime_type`.
    fn set_attribute(&self, path: &str, name: &str, value: &[u8]) -> io::Result<()>;
    /// The value of an extended attribute.
    fn attribute(&self, path: &str, name: &str) -> io::Result<Vec<u8>>;
    /// Makes everything durable that was done so far.
    fn sync(&self) -> io::Result<()>;
}

/// An open regular file.
pub trait OpenFile: Send + Sync {
    /// Writes all of `data` at `offset`, and sleeps where the file system throttles the writer.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;
    /// Reads at `offset` and returns how many bytes: fewer than `buffer` has only at the end.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;
    /// Makes data and attributes durable.
    fn fsync(&self) -> io::Result<()>;
    /// Allocates a range; the file grows to hold it.
    fn fallocate(&self, offset: u64, len: u64) -> io::Result<()>;
}

/// A directory of a mounted file system.
#[derive(Clone, Debug)]
pub struct Directory {
    root: PathBuf,
}

impl Directory {
    /// The tree below `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }
}

fn errno(error: rustix::io::Errno) -> io::Error {
    error.into()
}

impl Files for Directory {
    fn create(&self, path: &str) -> io::Result<Box<dyn OpenFile>> {
        let mut options = File::options();
        options.read(true).write(true).create_new(true);
        Ok(Box::new(options.open(self.at(path))?))
    }

    fn open(&self, path: &str) -> io::Result<Box<dyn OpenFile>> {
        let mut options = File::options();
        Ok(Box::new(
            options.read(true).write(true).open(self.at(path))?,
        ))
    }

    fn make_dir(&self, path: &str) -> io::Result<()> {
        fs::DirBuilder::new().mode(0o755).create(self.at(path))
    }

    fn unlink(&self, path: &str) -> io::Result<()> {
        fs::remove_file(self.at(path))
    }

    fn stat(&self, path: &str) -> io::Result<Status> {
        let found = fs::metadata(self.at(path))?;
        Ok(Status {
            ino: found.ino(),
            size: found.len(),
            blocks: found.blocks(),
            is_dir: found.is_dir(),
        })
    }

    fn set_attribute(&self, path: &str, name: &str, value: &[u8]) -> io::Result<()> {
        let set = rustix::fs::setxattr(self.at(path), name, value, XattrFlags::empty());
        set.map_err(errno)
    }

    fn attribute(&self, path: &str, name: &str) -> io::Result<Vec<u8>> {
        // The system calls take no longer values.
        let mut value = vec![0; 1 << 16];
        let len = rustix::fs::getxattr(self.at(path), name, &mut value[..]).map_err(errno)?;
        value.truncate(len);
        Ok(value)
    }

    fn sync(&self) -> io::Result<()> {
        let root = File::open(&self.root)?;
        rustix::fs::syncfs(root).map_err(errno)
    }
}

impl OpenFile for File {
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write_all_at(data, offset)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match FileExt::read_at(self, &mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn fsync(&self) -> io::Result<()> {
        self.sync_all()
    }

    fn fallocate(&self, offset: u64, len: u64) -> io::Result<()> {
        rustix::fs::fallocate(self, FallocateFlags::empty(), offset, len).map_err(errno)
    }
}

/// A file system that this process has opened for writing.
#[derive(Clone, Debug)]
pub struct Library {
    volume: Volume,
}

impl Library {
    /// Opens what lies on a device.
    ///
    /// # Errors
    /// Those of [`Volume::open`].
    pub fn open(device: Arc<dyn BlockDevice>, options: &OpenOptions) -> uext4::Result<Self> {
        let volume = Volume::open(device, Arc::new(SystemClock), options)?;
        Ok(Self { volume })
    }

    /// The file system itself, for what only the library has: statistics, checks, closing.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Writes everything and ends.
    ///
    /// # Errors
    /// Those of [`Volume::close`].
    pub fn close(self) -> uext4::Result<()> {
        self.volume.close()
    }

    /// The directory of a path, and the name in it.
    fn parent<'a>(&self, path: &'a str) -> io::Result<(OpenInode, &'a [u8])> {
        Ok(self.volume.open_parent(path.as_bytes())?)
    }

    fn found(&self, path: &str) -> io::Result<OpenInode> {
        Ok(self.volume.open_path(path.as_bytes(), FollowLast::Yes)?)
    }
}

impl Files for Library {
    fn create(&self, path: &str) -> io::Result<Box<dyn OpenFile>> {
        let (dir, name) = self.parent(path)?;
        Ok(Box::new(dir.create(
            name,
            NewInode::File,
            &Creation::file(),
        )?))
    }

    fn open(&self, path: &str) -> io::Result<Box<dyn OpenFile>> {
        Ok(Box::new(self.found(path)?))
    }

    fn make_dir(&self, path: &str) -> io::Result<()> {
        let (dir, name) = self.parent(path)?;
        dir.create(name, NewInode::Directory, &Creation::default())?;
        Ok(())
    }

    fn unlink(&self, path: &str) -> io::Result<()> {
        let (dir, name) = self.parent(path)?;
        Ok(dir.unlink(name)?)
    }

    fn stat(&self, path: &str) -> io::Result<Status> {
        let found = self.found(path)?;
        let inode = found.inode();
        Ok(Status {
            ino: u64::from(inode.ino.0),
            size: inode.size,
            blocks: inode.blocks + found.delayed_blocks(),
            is_dir: inode.file_type == FileType::Directory,
        })
    }

    fn set_attribute(&self, path: &str, name: &str, value: &[u8]) -> io::Result<()> {
        let found = self.found(path)?;
        Ok(found.set_xattr(name.as_bytes(), Some(value), SetMode::Any)?)
    }

    fn attribute(&self, path: &str, name: &str) -> io::Result<Vec<u8>> {
        Ok(self.found(path)?.xattr(name.as_bytes())?)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(self.volume.sync()?)
    }
}

impl OpenFile for OpenInode {
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut done = 0;
        while done < data.len() {
            match Self::write_at(self, offset + done as u64, &data[done..])? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => done += count,
            }
        }
        Ok(())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(Self::read_at(self, offset, buffer)?)
    }

    fn fsync(&self) -> io::Result<()> {
        Ok(Self::fsync(self)?)
    }

    fn fallocate(&self, offset: u64, len: u64) -> io::Result<()> {
        Ok(Self::fallocate(
            self,
            Fallocate::Allocate { keep_size: false },
            offset,
            len,
        )?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uext4_blockdev::MemoryDevice;

    fn library() -> Library {
        let device = Arc::new(MemoryDevice::new(16 << 20));
        let mut wishes = uext4_mkfs::Options::new([7; 16], [9; 16], 1_700_000_000);
        wishes.assume_zeroed = true;
        let layout = uext4_mkfs::layout(&wishes, 16 << 20).unwrap();
        uext4_mkfs::format(&layout, &*device).unwrap();
        Library::open(device, &OpenOptions::default()).unwrap()
    }

    /// Every call once; returns what can be compared between subjects.
    fn exercise(files: &dyn Files) -> io::Result<String> {
        files.make_dir("dir")?;
        let file = files.create("dir/file")?;
        file.write_at(5000, &[7; 3000])?;
        file.fsync()?;
        file.fallocate(0, 16384)?;
        let mut buffer = [1; 20000];
        let count = file.read_at(4000, &mut buffer)?;
        let exists = files.create("dir/file").map(drop).unwrap_err().kind();
        files.set_attribute("dir/file", "user.a", b"value")?;
        let value = files.attribute("dir/file", "user.a")?;
        let status = files.stat("dir/file")?;
        let missing = files.open("dir/name").map(drop).unwrap_err().kind();
        files.open("dir/file")?;
        files.sync()?;
        files.unlink("dir/file")?;
        let bytes = (count, buffer[0], buffer[1000], buffer[3999], buffer[4000]);
        let size = (status.size, status.blocks >= 32, status.is_dir);
        Ok(format!("{bytes:?} {exists} {value:?} {size:?} {missing}"))
    }

    #[test]
    fn library_and_directory_do_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let outside = exercise(&Directory::new(dir.path())).unwrap();
        assert!(outside.starts_with("(12384, 0, 7, 7, 0)"), "{outside}");
        assert_eq!(exercise(&library()).unwrap(), outside);
    }

    #[test]
    fn subjects_are_spelled_as_they_are_shown() {
        for word in ["library", "fuse:/mnt", "dir:a:b"] {
            assert_eq!(word.parse::<Subject>().unwrap().to_string(), word);
        }
        for word in ["", "Library", "fuse", "fuse:", "dir:", "raid:/mnt"] {
            let refused = word.parse::<Subject>().unwrap_err();
            assert!(refused.contains("fuse:DIR"), "{refused}");
        }
    }
}
