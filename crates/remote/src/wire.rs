//! The messages: what a client asks for, and what it is answered.
//!
//! ```text
//! frame     length u32 | number of descriptors u32 | messages, one after the other
//! message   a Request to the server, an Answer to the client, in postcard's form of serde's data
//! ```
//! A frame is a batch: its requests are done in order, and each has its answer, in the same order,
//! in one frame. Descriptors pass with the frame's first byte; requests name them by their number
//! in the frame. The two ends are of one version of the program, which the first line of a
//! connection says: there is no negotiation.
//!
//! The numbers of open files ([`Slot`]) are chosen by the client, so that a batch can use what it
//! has just made. All integers are checked where they are used, by the engine; here lengths are
//! bounded by the frame's.

use serde::{Deserialize, Serialize};
use serde_bytes::{ByteBuf, Bytes};
use uext4::data::Fallocate;
use uext4::quota::{QuotaKind, QuotaLimits};
use uext4::xattr::SetMode;
use uext4::{
    Creation, FileType, InodeFlags, NewInode, RenameMode, SetAttributes, SetTime, Timestamp,
};
use uext4_ondisk::inode::DeviceNumber;

use crate::put_mode::PutMode;
use crate::refusal::Refusal;

/// An open file of a connection.
pub type Slot = u32;

/// Bytes that one request reads at most.
pub const READ_MAX: u32 = 1 << 20;

/// A time: seconds since 1970, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Time {
    sec: i64,
    nsec: u32,
}

/// What is made.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Kind<'a> {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link, with its target.
    Symlink(#[serde(borrow)] &'a Bytes),
    /// A character device.
    CharDevice(u32, u32),
    /// A block device.
    BlockDevice(u32, u32),
    /// A fifo.
    Fifo,
    /// A socket.
    Socket,
}

/// Owner and permissions of what is made.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct How {
    mode: u16,
    umask: u16,
    uid: u32,
    gid: u32,
}

/// What a rename does with a file that has the new name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rename {
    /// The existing file loses the name.
    Replace,
    /// The rename fails if the name exists.
    NoReplace,
    /// The two names are exchanged.
    Exchange,
}

/// The attributes to change.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Change {
    mode: Option<u16>,
    uid: Option<u32>,
    gid: Option<u32>,
    size: Option<u64>,
    /// The outer is whether it is set, the inner to which time, or the current one.
    times: [Option<Option<Time>>; 3],
    flags: Option<u32>,
    projid: Option<u32>,
    generation: Option<u32>,
}

/// How a range of a file is changed.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Range {
    /// Blocks are allocated; the size may stay.
    Allocate(bool),
    /// Blocks are freed.
    PunchHole,
    /// Blocks are allocated and read as zeroes; the size may stay.
    ZeroRange(bool),
    /// What follows moves down.
    Collapse,
    /// What follows moves up.
    Insert,
}

/// Whose use of space is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Whose {
    /// A user's.
    User,
    /// A group's.
    Group,
    /// A project's.
    Project,
}

/// Limits: names as in [`QuotaLimits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    space_hard: u64,
    space_soft: u64,
    inodes_hard: u64,
    inodes_soft: u64,
}

/// The size that the file system gets, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Growth {
    /// So many.
    To(u64),
    /// So many more than it has.
    By(u64),
    /// All that its device has.
    Device,
}

/// The sizes that a file system had and has, in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grown {
    /// Before.
    pub before: u64,
    /// After.
    pub after: u64,
    /// Bytes of a block.
    pub block_size: u32,
}

/// A part of a new file, and where its contents lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// Byte of the file.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// Byte of what contains it.
    pub at: u64,
}

/// What contains the data of a new file.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Source<'a> {
    /// A descriptor of the frame.
    Descriptor(u32),
    /// The message itself.
    Inline(#[serde(borrow)] &'a Bytes),
}

/// An extended attribute.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Attribute<'a> {
    /// Its full name.
    #[serde(borrow)]
    pub name: &'a Bytes,
    /// Its value.
    #[serde(borrow)]
    pub value: &'a Bytes,
}

/// An inode as it was: its number may be that of another by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// Its number.
    pub ino: u32,
    /// Its generation.
    pub generation: u32,
}

/// A name to be made with all that belongs to it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NewEntry<'a> {
    /// Its directory.
    pub dir: Slot,
    /// Its name there.
    #[serde(borrow)]
    pub name: &'a Bytes,
    /// What it is.
    #[serde(borrow)]
    pub kind: Kind<'a>,
    /// The file that was made before, and gets the name as one more.
    pub link: Option<Known>,
    /// Permissions.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last access.
    pub atime: Time,
    /// Last change of the data.
    pub mtime: Time,
    /// Bytes of a regular file.
    pub size: u64,
    /// Extended attributes.
    #[serde(borrow)]
    pub xattrs: Vec<Attribute<'a>>,
    /// What contains the data.
    #[serde(borrow)]
    pub source: Source<'a>,
    /// Where the data lie; what is between them reads as zeroes.
    pub data: Vec<Extent>,
    /// How it is made.
    pub how: PutMode,
    /// It is opened so; a directory gets its attributes with [`Request::Complete`].
    pub to: Option<Slot>,
}

/// What a client asks for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request<'a> {
    /// The inode of a path.
    Open(#[serde(borrow)] &'a Bytes, bool, Slot),
    /// The inode of a number.
    OpenNumber(u32, Slot),
    /// The directory of a path's last name.
    OpenParent(#[serde(borrow)] &'a Bytes, Slot),
    /// The inode of a name in a directory.
    Lookup(Slot, #[serde(borrow)] &'a Bytes, Slot),
    /// Makes a path.
    Create(#[serde(borrow)] &'a Bytes, Kind<'a>, How, Slot),
    /// Makes a directory and those on the way.
    CreateAll(#[serde(borrow)] &'a Bytes, How, Slot),
    /// Makes an inode in a directory, without a name.
    CreateUnnamed(Slot, #[serde(borrow)] Kind<'a>, How, Slot),
    /// The same for a regular file like another, which it is to replace.
    CreateUnnamedLike(Slot, Slot, Slot),
    /// Gives an open file the name of another in a directory.
    LinkOpen(Slot, Slot, #[serde(borrow)] &'a Bytes),
    /// The same with all its data durable before, and perhaps that other file's attributes.
    GiveName(Slot, Slot, #[serde(borrow)] &'a Bytes, bool),
    /// Gives the file of a path another path.
    Link(#[serde(borrow)] &'a Bytes, &'a Bytes),
    /// Removes a path, with all that is in it.
    Remove(#[serde(borrow)] &'a Bytes, bool),
    /// Moves a path to another.
    Rename(#[serde(borrow)] &'a Bytes, &'a Bytes, Rename),
    /// Makes a name with all that belongs to it.
    Put(#[serde(borrow)] NewEntry<'a>),
    /// Gives a directory that [`Request::Put`] has made its attributes, and closes it.
    Complete(#[serde(borrow)] NewEntry<'a>),
    /// The fields of an inode.
    View(Slot),
    /// Names of a directory after a cookie.
    List(Slot, u64),
    /// Bytes of a file.
    Read(Slot, u64, u32),
    /// Writes bytes.
    Write(Slot, u64, #[serde(borrow)] &'a Bytes),
    /// The target of a symbolic link.
    ReadLink(Slot),
    /// Changes attributes.
    Set(Slot, Change),
    /// All extended attributes.
    Xattrs(Slot),
    /// The value of one.
    Xattr(Slot, #[serde(borrow)] &'a Bytes),
    /// Sets one, or removes it.
    SetXattr(
        Slot,
        #[serde(borrow)] &'a Bytes,
        #[serde(borrow)] Option<&'a Bytes>,
        bool,
    ),
    /// Allocates or frees a range.
    Fallocate(Slot, Range, u64, u64),
    /// Has a file share its block of extended attributes with others.
    ShareXattrs(Slot),
    /// Sets the limits of a user, group or project.
    SetQuota(Whose, u32, Limits),
    /// Makes a file durable.
    Fsync(Slot),
    /// Makes everything durable.
    Sync,
    /// Begins a snapshot of the image, whose store is a descriptor of the frame; the image passes
    /// with the answer. It ends with the connection, or the next one.
    Snapshot(u32),
    /// Lets go of a file.
    Close(Slot),
    /// Makes the file system larger.
    Grow(Growth),
}

/// The fields of an inode that are shown; names as in [`uext4::Inode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// Its number.
    pub ino: u32,
    /// Type and permissions.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Hard links.
    pub links: u16,
    /// `i_flags`.
    pub flags: u32,
    /// Project.
    pub projid: u32,
    /// Generation.
    pub generation: u32,
}

/// A name of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// Its bytes.
    pub name: ByteBuf,
    /// The inode's number.
    pub ino: u32,
    /// The cookie to continue after it.
    pub next: u64,
}

/// What a request gives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// It is done.
    Done,
    /// An inode.
    View(View),
    /// Names.
    Names(Vec<Listed>),
    /// Bytes: contents, the target of a link, the value of an attribute.
    Bytes(ByteBuf),
    /// Attributes: names and values.
    Xattrs(Vec<(ByteBuf, ByteBuf)>),
    /// Bytes that were written.
    Written(u64),
    /// Whether a file has another block of extended attributes now.
    Shared(bool),
    /// A snapshot has begun.
    Snapshot {
        /// Bytes of the image.
        len: u64,
        /// Where in it the file system begins, if that was asked for.
        offset: Option<u64>,
        /// In which partition it is, if that was asked for.
        partition: Option<u32>,
    },
    /// The file system is at least as large as was asked for.
    Grown(Grown),
    /// A name was made, or was there; and what of it could not be done.
    Put {
        /// The inode.
        inode: Known,
        /// It was not there.
        is_new: bool,
        /// Attributes that could not be set.
        missing: Vec<Refusal>,
    },
    /// It could not be done.
    Refused(Refusal),
}

impl From<Timestamp> for Time {
    fn from(Timestamp { sec, nsec }: Timestamp) -> Self {
        Self { sec, nsec }
    }
}

impl From<Time> for Timestamp {
    fn from(Time { sec, nsec }: Time) -> Self {
        // Every number of nanoseconds that is none is the last one.
        let nsec = nsec.min(999_999_999);
        Self { sec, nsec }
    }
}

impl<'a> From<NewInode<'a>> for Kind<'a> {
    fn from(kind: NewInode<'a>) -> Self {
        match kind {
            NewInode::File => Self::File,
            NewInode::Directory => Self::Directory,
            NewInode::Symlink(target) => Self::Symlink(Bytes::new(target)),
            NewInode::CharDevice(DeviceNumber { major, minor }) => Self::CharDevice(major, minor),
            NewInode::BlockDevice(DeviceNumber { major, minor }) => Self::BlockDevice(major, minor),
            NewInode::Fifo => Self::Fifo,
            NewInode::Socket => Self::Socket,
        }
    }
}

impl<'a> From<Kind<'a>> for NewInode<'a> {
    fn from(kind: Kind<'a>) -> Self {
        match kind {
            Kind::File => Self::File,
            Kind::Directory => Self::Directory,
            Kind::Symlink(target) => Self::Symlink(target),
            Kind::CharDevice(major, minor) => Self::CharDevice(DeviceNumber { major, minor }),
            Kind::BlockDevice(major, minor) => Self::BlockDevice(DeviceNumber { major, minor }),
            Kind::Fifo => Self::Fifo,
            Kind::Socket => Self::Socket,
        }
    }
}

impl From<&Creation> for How {
    fn from(how: &Creation) -> Self {
        Self {
            mode: how.mode,
            umask: how.umask,
            uid: how.uid,
            gid: how.gid,
        }
    }
}

impl From<How> for Creation {
    fn from(how: How) -> Self {
        Self {
            mode: how.mode,
            umask: how.umask,
            uid: how.uid,
            gid: how.gid,
        }
    }
}

impl From<Rename> for RenameMode {
    fn from(mode: Rename) -> Self {
        match mode {
            Rename::Replace => Self::Replace,
            Rename::NoReplace => Self::NoReplace,
            Rename::Exchange => Self::Exchange,
        }
    }
}

impl From<&SetAttributes> for Change {
    fn from(set: &SetAttributes) -> Self {
        let time = |time: Option<SetTime>| {
            time.map(|time| match time {
                SetTime::Now => None,
                SetTime::To(time) => Some(time.into()),
            })
        };
        Self {
            mode: set.mode,
            uid: set.uid,
            gid: set.gid,
            size: set.size,
            times: [time(set.atime), time(set.mtime), time(set.ctime)],
            flags: set.flags.map(|flags| flags.bits()),
            projid: set.projid,
            generation: set.generation,
        }
    }
}

impl From<Change> for SetAttributes {
    fn from(change: Change) -> Self {
        let time = |time: Option<Option<Time>>| {
            time.map(|time| time.map_or(SetTime::Now, |time| SetTime::To(time.into())))
        };
        let [atime, mtime, ctime] = change.times.map(time);
        Self {
            mode: change.mode,
            uid: change.uid,
            gid: change.gid,
            size: change.size,
            atime,
            mtime,
            ctime,
            flags: change.flags.map(InodeFlags::from_bits_retain),
            projid: change.projid,
            generation: change.generation,
            notes_writes: false,
        }
    }
}

impl From<Fallocate> for Range {
    fn from(how: Fallocate) -> Self {
        match how {
            Fallocate::Allocate { keep_size } => Self::Allocate(keep_size),
            Fallocate::PunchHole => Self::PunchHole,
            Fallocate::ZeroRange { keep_size } => Self::ZeroRange(keep_size),
            Fallocate::CollapseRange => Self::Collapse,
            Fallocate::InsertRange => Self::Insert,
        }
    }
}

impl From<Range> for Fallocate {
    fn from(range: Range) -> Self {
        match range {
            Range::Allocate(keep_size) => Self::Allocate { keep_size },
            Range::PunchHole => Self::PunchHole,
            Range::ZeroRange(keep_size) => Self::ZeroRange { keep_size },
            Range::Collapse => Self::CollapseRange,
            Range::Insert => Self::InsertRange,
        }
    }
}

impl From<QuotaKind> for Whose {
    fn from(kind: QuotaKind) -> Self {
        match kind {
            QuotaKind::User => Self::User,
            QuotaKind::Group => Self::Group,
            QuotaKind::Project => Self::Project,
        }
    }
}

impl From<Whose> for QuotaKind {
    fn from(whose: Whose) -> Self {
        match whose {
            Whose::User => Self::User,
            Whose::Group => Self::Group,
            Whose::Project => Self::Project,
        }
    }
}

impl From<QuotaLimits> for Limits {
    fn from(limits: QuotaLimits) -> Self {
        Self {
            space_hard: limits.space_hard,
            space_soft: limits.space_soft,
            inodes_hard: limits.inodes_hard,
            inodes_soft: limits.inodes_soft,
        }
    }
}

impl From<Limits> for QuotaLimits {
    fn from(limits: Limits) -> Self {
        Self {
            space_hard: limits.space_hard,
            space_soft: limits.space_soft,
            inodes_hard: limits.inodes_hard,
            inodes_soft: limits.inodes_soft,
        }
    }
}

impl From<&uext4::Inode> for View {
    fn from(inode: &uext4::Inode) -> Self {
        Self {
            ino: inode.ino.0,
            mode: inode.mode,
            uid: inode.uid,
            gid: inode.gid,
            size: inode.size,
            links: inode.links,
            flags: inode.flags.bits(),
            projid: inode.projid,
            generation: inode.generation,
        }
    }
}

impl View {
    /// The type; that of a regular file for one that there is not.
    pub fn file_type(&self) -> FileType {
        FileType::from_mode(self.mode).unwrap_or(FileType::Regular)
    }

    /// The flags.
    pub fn flags(&self) -> InodeFlags {
        InodeFlags::from_bits_retain(self.flags)
    }
}

/// The mode of setting an attribute; that it must be new is not asked for.
pub fn set_mode(must_exist: bool) -> SetMode {
    match must_exist {
        true => SetMode::Replace,
        false => SetMode::Any,
    }
}
