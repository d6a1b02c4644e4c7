//! One name made with all that belongs to it, in a file system that is in use: what `put` and
//! `untar` do for each of their entries, in the process that has the file system open.

use std::io;
use std::ops::Range;

use uext4::format::VISIBLE_FLAGS;
use uext4::xattr::SetMode;
use uext4::{
    Creation, Error, FileType, Ino, Invalid, NewInode, OpenInode, Result, SetAttributes, SetTime,
    Timestamp, Volume,
};

use crate::put_mode::{Existing, PutMode};
use crate::refusal::Cause;
use crate::wire::Known;

/// Bytes copied at once.
const PIECE: usize = 1 << 20;

/// What is made.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Its kind.
    pub kind: NewInode<'a>,
    /// Permissions.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the data.
    pub mtime: Timestamp,
    /// Bytes of a regular file.
    pub size: u64,
    /// Where its data are, in bytes, ascending; between them are holes.
    pub data: &'a [Range<u64>],
    /// Extended attributes: names and values.
    pub xattrs: &'a [(&'a [u8], &'a [u8])],
}

/// Reads contents: fills the buffer from this byte of the file on.
pub type Read<'a> = dyn FnMut(u64, &mut [u8]) -> io::Result<()> + 'a;

/// Contents on their way into a file.
pub struct Contents<'a> {
    /// Reads them.
    pub read: &'a mut Read<'a>,
    /// Where they are in between: of one file after the other, so that it is taken once.
    pub buffer: &'a mut Vec<u8>,
}

/// What was made, or was there.
#[derive(Debug)]
pub struct Made {
    /// It.
    pub inode: OpenInode,
    /// It was not there.
    pub is_new: bool,
    /// Attributes that could not be set.
    pub missing: Vec<Error>,
}

impl Made {
    fn new(inode: OpenInode) -> Self {
        Self {
            inode,
            is_new: true,
            missing: Vec::new(),
        }
    }

    fn existing(inode: OpenInode) -> Self {
        Self {
            is_new: false,
            ..Self::new(inode)
        }
    }
}

/// Makes a name in a directory. A directory that is there is used as it is; a new one gets its
/// attributes from [`complete`] when all in it is there.
///
/// # Errors
/// Those of the engine: [`Error::Exists`] for what may not be replaced, [`Error::Content`] for
/// what reading fails with. Nothing is left under the name then.
pub fn put(
    dir: &OpenInode,
    name: &[u8],
    entry: &Entry<'_>,
    mode: PutMode,
    contents: &mut Contents<'_>,
) -> Result<Made> {
    let is_dir = entry.kind.file_type() == FileType::Directory;
    if mode.whole && !is_dir {
        return whole(dir, name, entry, mode, contents);
    }
    match make(dir, name, entry, contents) {
        Err(Error::Exists) => {}
        made => return made,
    }
    let existing = dir.lookup(name)?;
    match (existing.inode().file_type == FileType::Directory, is_dir) {
        (true, true) => Ok(Made::existing(existing)),
        (false, false) => match mode.existing {
            Existing::Refuse => Err(Error::Exists),
            Existing::Replace => whole(dir, name, entry, mode, contents),
            Existing::Remove => {
                dir.unlink(name)?;
                make(dir, name, entry, contents)
            }
        },
        _ => Err(Error::Exists),
    }
}

/// What an inode is known by.
pub fn known(inode: &OpenInode) -> Known {
    Known {
        ino: inode.ino().0,
        generation: inode.inode().generation,
    }
}

/// Opens the inode of a number that a user gives.
///
/// # Errors
/// Those of the engine; [`Error::NotPermitted`] for inodes that are the file system's own.
pub fn open_number(fs: &Volume, ino: Ino) -> Result<OpenInode> {
    match fs.is_hidden(ino) {
        true => Err(Error::NotPermitted {
            what: "the inode is the file system's own",
        }),
        false => fs.open_inode(ino),
    }
}

/// Opens an inode that was made before.
///
/// # Errors
/// Those of the engine; [`Error::NotPermitted`] if its number is another's by now.
pub fn open_known(fs: &Volume, known: Known) -> Result<OpenInode> {
    let gone = Error::NotPermitted {
        what: "the file that it is a hard link to was removed meanwhile",
    };
    match open_number(fs, Ino(known.ino)) {
        Ok(inode) if inode.inode().generation == known.generation => Ok(inode),
        Ok(_) | Err(Error::NotFound) => Err(gone),
        Err(error) if error.is_unused_inode() => Err(gone),
        Err(error) => Err(error),
    }
}

/// Gives a file that was made before one name more.
///
/// # Errors
/// As [`put`].
pub fn link(inode: &OpenInode, dir: &OpenInode, name: &[u8], mode: PutMode) -> Result<Made> {
    if !mode.whole {
        match inode.link(dir, name) {
            Err(Error::Exists) => {}
            done => return done.map(|()| Made::new(inode.clone())),
        }
        let existing = dir.lookup(name)?;
        if existing.ino() == inode.ino() {
            return Ok(Made::existing(existing));
        }
        if existing.inode().file_type == FileType::Directory {
            return Err(Error::Exists);
        }
        match mode.existing {
            Existing::Refuse => return Err(Error::Exists),
            Existing::Replace => {}
            Existing::Remove => {
                dir.unlink(name)?;
                inode.link(dir, name)?;
                return Ok(Made::new(inode.clone()));
            }
        }
    }
    give_name(inode, dir, name, false)?;
    Ok(Made::new(inode.clone()))
}

/// Makes a file without a name, then gives it one, which another file may have.
fn whole(
    dir: &OpenInode,
    name: &[u8],
    entry: &Entry<'_>,
    mode: PutMode,
    contents: &mut Contents<'_>,
) -> Result<Made> {
    let is_like = mode.like && entry.kind.file_type() == FileType::Regular;
    let old = is_like.then(|| dir.lookup(name)).transpose()?;
    let made = make_unnamed(dir, entry, old.as_ref(), contents)?;
    // Without a name it goes away.
    give_name(&made.inode, dir, name, mode.like)?;
    Ok(made)
}

/// Makes an inode without a name, which may be `like` a file that it replaces: an orphan, which
/// goes away with an interruption.
fn make_unnamed(
    dir: &OpenInode,
    entry: &Entry<'_>,
    like: Option<&OpenInode>,
    contents: &mut Contents<'_>,
) -> Result<Made> {
    let mut made = Made::new(match like {
        Some(old) => dir.create_unnamed_like(old)?,
        None => dir.create_unnamed(entry.kind, &creation(entry))?,
    });
    if entry.kind.file_type() == FileType::Regular {
        write(&made.inode, entry, contents)?;
    }
    match like {
        Some(_) => made.inode.set_attributes(&times(entry))?,
        None => complete(&made.inode, entry, &mut made.missing)?,
    }
    Ok(made)
}

fn creation(entry: &Entry<'_>) -> Creation {
    Creation {
        // Others may open it when its contents and its own ACL are there.
        mode: match entry.kind {
            NewInode::Symlink(_) => entry.mode,
            _ => entry.mode & 0o700,
        },
        umask: 0,
        uid: entry.uid,
        gid: entry.gid,
    }
}

/// Makes an inode under a name.
fn make(
    dir: &OpenInode,
    name: &[u8],
    entry: &Entry<'_>,
    contents: &mut Contents<'_>,
) -> Result<Made> {
    let mut made = Made::new(dir.create(name, entry.kind, &creation(entry))?);
    if entry.kind.file_type() == FileType::Regular
        && let Err(error) = write(&made.inode, entry, contents)
    {
        // What went wrong first counts.
        _ = dir.unlink(name);
        return Err(error);
    }
    if entry.kind.file_type() != FileType::Directory {
        complete(&made.inode, entry, &mut made.missing)?;
    }
    Ok(made)
}

fn write(file: &OpenInode, entry: &Entry<'_>, contents: &mut Contents<'_>) -> Result<()> {
    let Contents { read, buffer } = contents;
    let lens = entry.data.iter().map(|range| range.end - range.start);
    // OK to cast: at most a piece.
    let most = lens.max().unwrap_or(0).min(PIECE as u64) as usize;
    if buffer.len() < most {
        buffer.resize(most, 0);
    }
    for range in entry.data {
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(most as u64) as usize;
            let piece = &mut buffer[..len];
            read(at, piece).map_err(|source| Error::Content { offset: at, source })?;
            write_all(file, at, piece)?;
            at += len as u64;
        }
    }
    if entry.data.last().map_or(0, |last| last.end) < entry.size {
        file.set_attributes(&SetAttributes {
            size: Some(entry.size),
            ..SetAttributes::default()
        })?;
    }
    Ok(())
}

/// Writes all of `data` at `at`.
///
/// # Errors
/// As [`OpenInode::write_at`].
pub fn write_all(file: &OpenInode, mut at: u64, mut data: &[u8]) -> Result<()> {
    while !data.is_empty() {
        let taken = file.write_at(at, data)?;
        at += taken as u64;
        data = data.get(taken..).unwrap_or_default();
    }
    Ok(())
}

fn times(entry: &Entry<'_>) -> SetAttributes {
    SetAttributes {
        atime: Some(SetTime::To(entry.atime)),
        mtime: Some(SetTime::To(entry.mtime)),
        ..SetAttributes::default()
    }
}

/// Gives a new inode what its entry has, and nothing its directory gave it beyond that.
///
/// # Errors
/// Those of the engine that are not about one extended attribute, which `missing` gets.
pub fn complete(inode: &OpenInode, entry: &Entry<'_>, missing: &mut Vec<Error>) -> Result<()> {
    for xattr in inode.xattrs()? {
        if xattr.name.starts_with(b"system.posix_acl_") {
            inode.set_xattr(&xattr.name, None, SetMode::Any)?;
        }
    }
    inode.set_attributes(&SetAttributes {
        // A link has no mode of its own.
        mode: (entry.kind.file_type() != FileType::Symlink).then_some(entry.mode),
        uid: Some(entry.uid),
        gid: Some(entry.gid),
        ..times(entry)
    })?;
    for (name, value) in entry.xattrs {
        match inode.set_xattr(name, Some(value), SetMode::Any) {
            Err(error) if is_of_one_entry(&error) => missing.push(error),
            done => done?,
        }
    }
    Ok(())
}

/// Gives a file, with all its data in place, a name, which another that has it loses; with `like`
/// after it got that one's attributes.
///
/// # Errors
/// Those of the engine.
pub fn give_name(file: &OpenInode, dir: &OpenInode, name: &[u8], like: bool) -> Result<()> {
    if like {
        make_like(file, &dir.lookup(name)?)?;
    }
    if file.inode().file_type == FileType::Regular {
        file.fdatasync()?;
    }
    match file.link_over(dir, name) {
        Err(Error::NotFound) => file.link(dir, name),
        replaced => replaced,
    }
}

/// Gives a file the attributes of another, and none besides these. Times stay.
fn make_like(file: &OpenInode, old: &OpenInode) -> Result<()> {
    let inode = old.inode();
    if [inode.file_type, file.inode().file_type] != [FileType::Regular; 2] {
        return Err(Invalid::NotRegularFile.into());
    }
    let xattrs = old.xattrs()?;
    for xattr in file.xattrs()? {
        if xattrs.iter().all(|kept| kept.name != xattr.name) {
            file.set_xattr(&xattr.name, None, SetMode::Any)?;
        }
    }
    file.set_attributes(&SetAttributes {
        mode: Some(inode.mode & 0o7777),
        uid: Some(inode.uid),
        gid: Some(inode.gid),
        projid: (inode.projid != file.inode().projid).then_some(inode.projid),
        ..SetAttributes::default()
    })?;
    for xattr in &xattrs {
        file.set_xattr(&xattr.name, Some(&xattr.value), SetMode::Any)?;
    }
    // The last: some of them keep all others from being changed.
    file.set_attributes(&SetAttributes {
        flags: Some(inode.flags.intersection(VISIBLE_FLAGS)),
        ..SetAttributes::default()
    })
}

/// Whether others may still be made after this error.
pub fn is_of_one_entry(error: &Error) -> bool {
    match Cause::from(error) {
        Cause::Damage | Cause::FileSystem | Cause::NoSpace => false,
        Cause::ReadOnly | Cause::NotTried => false,
        Cause::NotFound | Cause::NotDirectory | Cause::IsDirectory | Cause::NotEmpty => false,
        Cause::NoAttribute | Cause::DeviceTooSmall | Cause::Unsound => false,
        Cause::Exists | Cause::NameTooLong | Cause::Request | Cause::Limit => true,
        Cause::Content | Cause::NoDirectory => true,
    }
}
