//! A copy of an image, which gets its name when it is whole: `clone`, `repair --into`.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use tempfile::{Builder, NamedTempFile};
use uext4_blockdev::{Access, BlockDevice, FileDevice};

use crate::device_failure::device_failure;
use crate::failure::{Exit, Failure};

/// Bytes that are copied at a time.
const COPY: usize = 1 << 20;
/// Zeroes of this length become a hole.
const HOLE: usize = 4 << 10;

/// A file that gets its name when it is whole.
enum New {
    /// It has no name: nothing is left of it whatever happens.
    Nameless(File),
    /// Where the file system has no such files. Dropped, it is removed.
    Hidden(NamedTempFile),
}

impl New {
    fn in_directory(directory: &Path, mode: u32) -> io::Result<Self> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        if let Ok(file) = rustix::fs::open(directory, flags, Mode::from_raw_mode(mode)) {
            let new = Self::Nameless(file.into());
            // It is opened once more and named by its number, in /proc.
            if new.path().exists() {
                return Ok(new);
            }
        }
        let mode = Permissions::from_mode(mode);
        let hidden = builder().permissions(mode).tempfile_in(directory);
        hidden.map(Self::Hidden)
    }

    fn file(&self) -> &File {
        match self {
            Self::Nameless(file) => file,
            Self::Hidden(file) => file.as_file(),
        }
    }

    fn path(&self) -> PathBuf {
        match self {
            Self::Nameless(file) => format!("/proc/self/fd/{}", file.as_raw_fd()).into(),
            Self::Hidden(file) => file.path().to_owned(),
        }
    }

    /// Links a file without a name.
    fn link(&self, to: &Path) -> io::Result<()> {
        let follow = AtFlags::SYMLINK_FOLLOW;
        rustix::fs::linkat(CWD, self.path(), CWD, to, follow).map_err(io::Error::from)
    }

    /// Gives it a name that no other file has.
    fn name(self, to: &Path) -> io::Result<()> {
        match self {
            Self::Nameless(_) => self.link(to),
            Self::Hidden(file) => match file.persist_noclobber(to) {
                Ok(_) => Ok(()),
                Err(error) => Err(error.error),
            },
        }
    }

    /// Gives it a name that another file may have, which is then gone.
    fn take_name(self, to: &Path) -> io::Result<()> {
        let hidden = match self {
            // There is no way to link a file over another.
            Self::Nameless(_) => builder().make_in(directory(to), |path| self.link(path))?,
            Self::Hidden(file) => {
                return file.persist(to).map(drop).map_err(|error| error.error);
            }
        };
        let persisted = hidden.into_temp_path().persist(to);
        persisted.map_err(|error| error.error)
    }
}

/// Makes hidden names.
fn builder() -> Builder<'static, 'static> {
    let mut builder = Builder::new();
    builder.prefix(".uext4-copy-");
    builder
}

/// A new file that has no name yet. Dropped, it is gone.
pub struct NewFile {
    file: New,
    to: PathBuf,
}

impl NewFile {
    /// Begins a file that is to get the name `to`, which no other file may have.
    ///
    /// # Errors
    /// That there is one; those of the directory.
    pub fn begin(to: &Path) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::io(to.display(), &error);
        if to.symlink_metadata().is_ok() {
            return Err(failed(io::ErrorKind::AlreadyExists.into()));
        }
        Ok(Self {
            file: New::in_directory(directory(to), 0o666).map_err(failed)?,
            to: to.to_owned(),
        })
    }

    /// Where to write.
    ///
    /// # Errors
    /// Too many open files.
    pub fn writer(&self) -> Result<File, Failure> {
        let file = self.file.file().try_clone();
        file.map_err(|error| Failure::io(self.to.display(), &error))
    }

    /// Gives it its name.
    ///
    /// # Errors
    /// Of the directory; that another file has the name by now.
    pub fn finish(self) -> Result<(), Failure> {
        let named = self.file.name(&self.to);
        named.map_err(|error| Failure::io(self.to.display(), &error))
    }
}

/// A copy that has no name of its own yet. Dropped, it is gone.
pub struct Copy {
    file: New,
    to: PathBuf,
}

impl Copy {
    /// Copies `image`: sharing its blocks where the file system can, else with holes for zeroes;
    /// where a mount writes it, a snapshot of it. Who may not read the image may not read the copy.
    /// `go_on` is asked once for each piece, with where it begins.
    ///
    /// # Errors
    /// Exit 8 if the image cannot be read, or the copy not be written; those of `go_on`.
    pub fn of(
        image: &Path,
        snapshot: Option<&dyn BlockDevice>,
        to: &Path,
        mut go_on: impl FnMut(u64) -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::io(to.display(), &error);
        let source = File::open(image).map_err(|error| Failure::io(image.display(), &error))?;
        let metadata = source.metadata().map_err(failed)?;
        // The mode of a device says who may use the disk, not who may read what is on it; that of a
        // directory of a mount, who may use that.
        let mode = match metadata.is_file() {
            true => metadata.permissions().mode() & 0o777,
            false => 0o600,
        };
        let file = New::in_directory(directory(to), mode | 0o600).map_err(failed)?;
        let copy = Self {
            file,
            to: to.to_owned(),
        };
        if let Some(snapshot) = snapshot {
            copy.copy_data(image, snapshot, &mut go_on)?;
        } else if rustix::fs::ioctl_ficlone(copy.file.file(), &source).is_err() {
            let from = FileDevice::open(image, Access::ReadOnly);
            let from = from.map_err(|error| device_failure(image, &error))?;
            copy.copy_data(image, &from, &mut go_on)?;
        }
        Ok(copy)
    }

    fn copy_data(
        &self,
        image: &Path,
        from: &dyn BlockDevice,
        go_on: &mut dyn FnMut(u64) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let unread = |error| device_failure(image, &error);
        let unwritten = |error| device_failure(&self.to, &error);
        let copy = self.device()?;
        copy.set_len(from.len()).map_err(unwritten)?;
        let mut buf = vec![0; COPY];
        let mut at = 0;
        while let Some(data) = from.next_data(at).map_err(unread)? {
            at = data.start;
            while at < data.end {
                go_on(at)?;
                let len = (data.end - at).min(buf.len() as u64) as usize;
                from.read_at(at, &mut buf[..len]).map_err(unread)?;
                write_data(&copy, at, &buf[..len]).map_err(unwritten)?;
                at += len as u64;
            }
        }
        Ok(())
    }

    /// The copy, to be written.
    ///
    /// # Errors
    /// Exit 8 if it cannot be opened.
    pub fn device(&self) -> Result<FileDevice, Failure> {
        let opened = FileDevice::open(self.file.path(), Access::ReadWrite);
        opened.map_err(|error| device_failure(&self.to, &error))
    }

    /// Makes it durable and gives it its name, which no other file may have by now.
    ///
    /// # Errors
    /// Exit 8; there is no copy then.
    pub fn finish(self) -> Result<(), Failure> {
        self.finish_by(New::name)
    }

    /// Makes it durable and gives it its name, in place of any file that has it.
    ///
    /// # Errors
    /// Exit 8; there is no copy then.
    pub fn replace(self) -> Result<(), Failure> {
        self.finish_by(New::take_name)
    }

    fn finish_by(self, name: fn(New, &Path) -> io::Result<()>) -> Result<(), Failure> {
        let to = self.to;
        let failed = |error: io::Error| Failure::io(to.display(), &error);
        self.file.file().sync_all().map_err(failed)?;
        name(self.file, &to).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => exists_already(&to),
            _ => failed(error),
        })?;
        let directory = File::open(directory(&to)).map_err(failed)?;
        directory.sync_all().map_err(failed)
    }
}

/// Writes what is not zero.
fn write_data(copy: &FileDevice, at: u64, bytes: &[u8]) -> Result<(), uext4_blockdev::Error> {
    let mut pieces = bytes.chunks(HOLE).map(is_zero).enumerate().peekable();
    while let Some((first, hole)) = pieces.next() {
        let mut end = first + 1;
        while let Some((piece, _)) = pieces.next_if(|(_, next)| *next == hole) {
            end = piece + 1;
        }
        if !hole {
            let from = first * HOLE;
            let data = &bytes[from..bytes.len().min(end * HOLE)];
            copy.write_at(at + from as u64, data)?;
        }
    }
    Ok(())
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}

/// The directory that a new file is made in.
fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Makes sure that a file can be made there.
///
/// # Errors
/// Exit 8 if there is one.
pub fn must_not_exist(path: &Path) -> Result<(), Failure> {
    match fs::symlink_metadata(path) {
        Ok(_) => Err(exists_already(path)),
        Err(_) => Ok(()),
    }
}

fn exists_already(path: &Path) -> Failure {
    let path = path.display();
    Failure::new(
        Exit::CouldNot,
        format_args!("{path}: exists already; give the name of a new file"),
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    /// An image of 3 MiB with a page of data at its start and its end, and zeroes that are stored
    /// between them.
    fn image(dir: &Path) -> (PathBuf, Vec<u8>) {
        let mut bytes = vec![0; 3 << 20];
        bytes[..HOLE].fill(1);
        bytes[(3 << 20) - 10..].fill(2);
        let image = dir.join("image");
        fs::write(&image, &bytes).unwrap();
        (image, bytes)
    }

    #[test]
    fn zeroes_become_holes_and_the_mode_is_that_of_the_image() {
        let dir = tempfile::tempdir().unwrap();
        let (image, bytes) = image(dir.path());
        fs::set_permissions(&image, Permissions::from_mode(0o600)).unwrap();
        let to = dir.path().join("to");
        Copy::of(&image, None, &to, |_| Ok(()))
            .unwrap()
            .finish()
            .unwrap();
        assert!(fs::read(&to).unwrap() == bytes);
        let found = fs::metadata(&to).unwrap();
        assert_eq!(found.mode() & 0o777, 0o600);
        assert!(found.blocks() * 512 <= 64 << 10, "{}", found.blocks());
    }

    #[test]
    fn a_file_that_appeared_meanwhile_stays_and_the_copy_goes() {
        let dir = tempfile::tempdir().unwrap();
        let (image, _) = image(dir.path());
        let to = dir.path().join("to");
        let copy = Copy::of(&image, None, &to, |_| Ok(())).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        fs::write(&to, "mine").unwrap();
        assert!(matches!(copy.finish(), Err(Failure::Message { what, .. })
            if what.contains("exists already")));
        assert_eq!(fs::read(&to).unwrap(), b"mine");
        let called_off = Copy::of(&image, None, &dir.path().join("no"), |_| {
            Err(exists_already(&to))
        });
        assert!(called_off.is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        let hidden = Builder::new().tempfile_in(dir.path()).unwrap();
        assert!(New::Hidden(hidden).name(&to).is_err());
        assert_eq!(fs::read(&to).unwrap(), b"mine");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_file_of_the_name_is_replaced_if_that_is_wanted() {
        let dir = tempfile::tempdir().unwrap();
        let (image, bytes) = image(dir.path());
        let to = dir.path().join("to");
        let hidden = Builder::new().tempfile_in(dir.path()).unwrap();
        fs::write(hidden.path(), "hidden").unwrap();
        New::Hidden(hidden).take_name(&to).unwrap();
        assert_eq!(fs::read(&to).unwrap(), b"hidden");
        let copy = Copy::of(&image, None, &to, |_| Ok(())).unwrap();
        assert_eq!(fs::read(&to).unwrap(), b"hidden");
        copy.replace().unwrap();
        assert!(fs::read(&to).unwrap() == bytes);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}
