//! Extended attributes: in the inode, in a block, and values in inodes of their own.
//!
//! This file reads them; `change` sets them, after `layout` has chosen a place for each. `block` is
//! the block that inodes share, `ea_inode` the inodes that hold large values, `acl` the lists that
//! the kernel stores in another form than it shows.

pub(crate) mod acl;
pub(crate) mod block;
pub(crate) mod change;
pub(crate) mod ea_inode;
pub(crate) mod layout;

use std::sync::Arc;

use uext4_buffer_cache::Buffer;
use uext4_ondisk::acl::Acl;
use uext4_ondisk::inode::FileType;
use uext4_ondisk::xattr::{
    INDEX_SYSTEM, INDEX_USER, NAME_PREFIXES, XATTR_BLOCK_HEADER_LEN, XATTR_IBODY_HEADER_LEN,
    XattrEntry, XattrPlace, XattrValue, ea_inode_hash, join_name, parse_disjoint_entries,
    parse_entries, split_name, verify_block,
};
use uext4_ondisk::{Damage, Ino, Pblk};

use crate::base::acl_kind::AclKind;
use crate::base::error::{Error, Result};
use crate::base::invalid::Invalid;
use crate::base::owner::{Kind, tag};
use crate::inode::{Inode, InodeBytes, inode_bytes};
use crate::journal::sbi::Sbi;

/// Longest full name the system calls take.
const NAME_MAX: usize = 255;
/// Bytes of all values of one inode, at most. Values may overlap or share an inode, so that a block
/// does not bound them.
const VALUES_MAX: usize = 32 << 20;

/// Whether the attribute must be there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetMode {
    /// It may be or not; removing what is not there is no error.
    Any,
    /// It must not (XATTR_CREATE).
    Create,
    /// It must (XATTR_REPLACE, and what removexattr does).
    Replace,
}

/// An attribute as user space sees it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Xattr {
    /// The full name, for example `user.mime_type`.
    pub name: Vec<u8>,
    /// The value; ACLs in the form of the system calls.
    pub value: Vec<u8>,
}

/// The name of an attribute as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct XattrName<'a> {
    /// The index of its prefix, `e_name_index`.
    pub(crate) index: u8,
    /// What follows the prefix.
    pub(crate) suffix: &'a [u8],
}

impl XattrName<'_> {
    /// The name of an ACL: its prefix is all of it.
    pub(crate) fn of_acl(kind: AclKind) -> Self {
        Self {
            index: kind.index(),
            suffix: b"",
        }
    }

    /// Whether an entry has this name.
    pub(crate) fn is_of(&self, entry: &XattrEntry<'_>) -> bool {
        entry.index == self.index && entry.name == self.suffix
    }
}

/// The reader of the attributes of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// Holds the inode's lock: it keeps what it leads to, and others may come to share that.
    Holder,
    /// Has a copy of the inode, perhaps an old one: what it leads to may be freed.
    Onlooker,
}

/// All attributes user space may see, sorted by name.
pub(crate) fn list(sbi: &Sbi, inode: &Inode, reader: Reader) -> Result<Vec<Xattr>> {
    let mut found = Vec::new();
    let mut room = VALUES_MAX;
    for_each(sbi, inode, reader, |at, entry| {
        if let Some(xattr) = shown(sbi, inode, reader, at, entry)? {
            room = room
                .checked_sub(xattr.value.len())
                .ok_or(Error::Corrupt(Damage::Xattr {
                    at,
                    offset: 0,
                    why: "values of more than 32 MiB",
                }))?;
            found.push(xattr);
        }
        Ok(())
    })?;
    found.sort_unstable();
    Ok(found)
}

/// The bytes that hold the attributes of an inode, as they were.
#[derive(Debug)]
pub(crate) struct Sources {
    ino: Ino,
    /// The inode's own bytes, and where its entries begin.
    body: Option<(InodeBytes, usize)>,
    /// The block of attributes.
    pub(crate) block: Option<(Pblk, Arc<[u8]>)>,
}

impl Sources {
    /// Reads them.
    pub(crate) fn read(sbi: &Sbi, inode: &Inode) -> Result<Self> {
        Self::in_body(sbi, inode)?.with_block(sbi, inode)
    }

    /// Reads the inode's own bytes alone.
    fn in_body(sbi: &Sbi, inode: &Inode) -> Result<Self> {
        let body = |at: u16| Ok::<_, Error>((inode_bytes(sbi, inode.ino)?, usize::from(at)));
        Ok(Self {
            ino: inode.ino,
            body: inode.xattr_offset.map(body).transpose()?,
            block: None,
        })
    }

    /// Reads the block as well.
    fn with_block(self, sbi: &Sbi, inode: &Inode) -> Result<Self> {
        let block = |at| Ok::<_, Error>((at, read_block(sbi, at)?));
        Ok(Self {
            block: inode.xattr_block.map(block).transpose()?,
            ..self
        })
    }

    /// What lies behind the header of the entries in the inode.
    fn body_region(&self) -> Option<&[u8]> {
        let (bytes, at) = self.body.as_ref()?;
        Some(bytes.get(at + XATTR_IBODY_HEADER_LEN..).unwrap_or_default())
    }

    /// The entries in the inode.
    pub(crate) fn body_entries(&self) -> Result<Vec<XattrEntry<'_>>> {
        let parsed = |region| parse_entries(region, 0, self.body_place());
        Ok(self.body_region().map_or(Ok(Vec::new()), parsed)?)
    }

    /// The entries in the inode, to be changed: damage that keeps them from being written again is
    /// found before anything is changed.
    pub(crate) fn body_to_change(&self) -> Result<Vec<XattrEntry<'_>>> {
        let parsed = |region| parse_disjoint_entries(region, 0, self.body_place());
        Ok(self.body_region().map_or(Ok(Vec::new()), parsed)?)
    }

    /// The entries in the block, to be changed, as [`Sources::body_to_change`].
    pub(crate) fn block_to_change(&self) -> Result<Vec<XattrEntry<'_>>> {
        let parsed = |(at, data)| {
            parse_disjoint_entries(data, XATTR_BLOCK_HEADER_LEN, XattrPlace::Block(at))
        };
        Ok(self.block().map_or(Ok(Vec::new()), parsed)?)
    }

    /// The block, and its bytes.
    pub(crate) fn block(&self) -> Option<(Pblk, &[u8])> {
        let (at, data) = self.block.as_ref()?;
        Some((*at, data))
    }

    /// The entries in the block.
    pub(crate) fn block_entries(&self) -> Result<Vec<XattrEntry<'_>>> {
        let Some((at, data)) = &self.block else {
            return Ok(Vec::new());
        };
        let place = XattrPlace::Block(*at);
        Ok(parse_entries(data, XATTR_BLOCK_HEADER_LEN, place)?)
    }

    /// Lets others share the block, whose entries are sound.
    pub(crate) fn seen(&self, sbi: &Sbi, reader: Reader) -> Result<()> {
        match (reader, sbi.rw(), self.block()) {
            (Reader::Holder, Some(rw), Some((at, data))) => rw.xattrs.seen_block(at, data),
            _ => Ok(()),
        }
    }

    /// How errors call the inode.
    pub(crate) fn body_place(&self) -> XattrPlace {
        XattrPlace::Inode(self.ino)
    }

    /// How errors call the block, if there is one.
    fn block_place(&self) -> XattrPlace {
        match &self.block {
            Some((at, _)) => XattrPlace::Block(*at),
            None => self.body_place(),
        }
    }
}

/// Calls `f` with every entry, those in the inode first.
fn for_each(
    sbi: &Sbi,
    inode: &Inode,
    reader: Reader,
    mut f: impl FnMut(XattrPlace, &XattrEntry<'_>) -> Result<()>,
) -> Result<()> {
    let sources = Sources::read(sbi, inode)?;
    for entry in sources.body_entries()? {
        f(sources.body_place(), &entry)?;
    }
    let in_block = sources.block_entries()?;
    sources.seen(sbi, reader)?;
    for entry in in_block {
        f(sources.block_place(), &entry)?;
    }
    Ok(())
}

/// The stored value of an attribute, if there is one.
pub(crate) fn find_value(
    sbi: &Sbi,
    inode: &Inode,
    reader: Reader,
    name: XattrName<'_>,
) -> Result<Option<Vec<u8>>> {
    let is_it = |entry: &XattrEntry<'_>| name.is_of(entry);
    // The block is not read for what is in the inode.
    let sources = Sources::in_body(sbi, inode)?;
    if let Some(entry) = sources.body_entries()?.into_iter().find(is_it) {
        return value(sbi, inode, reader, sources.body_place(), &entry).map(Some);
    }
    let sources = sources.with_block(sbi, inode)?;
    let found = sources.block_entries()?.into_iter().find(is_it);
    sources.seen(sbi, reader)?;
    found
        .map(|entry| value(sbi, inode, reader, sources.block_place(), &entry))
        .transpose()
}

/// Reads an attribute block.
pub(crate) fn read_block(sbi: &Sbi, block: Pblk) -> Result<Arc<[u8]>> {
    Ok(bread(sbi, block)?.data())
}

/// Reads an attribute block, and pins it.
pub(crate) fn bread(sbi: &Sbi, block: Pblk) -> Result<Buffer> {
    let seed = sbi.geometry().csum_seed;
    sbi.bread("xattr block", block, tag(Kind::Xattr), |bytes| {
        verify_block(bytes, block, seed).map(|_| ())
    })
}

/// The attribute in the form user space gets, if it gets it at all.
fn shown(
    sbi: &Sbi,
    inode: &Inode,
    reader: Reader,
    place: XattrPlace,
    entry: &XattrEntry<'_>,
) -> Result<Option<Xattr>> {
    if entry.index == INDEX_SYSTEM {
        return Ok(None);
    }
    let Some(name) = join_name(entry.index, entry.name) else {
        return Ok(None);
    };
    let value = value(sbi, inode, reader, place, entry)?;
    Ok(shown_value(entry.index, value)?.map(|value| Xattr { name, value }))
}

/// A stored value in the form user space gets: an ACL without entries is none.
fn shown_value(index: u8, stored: Vec<u8>) -> Result<Option<Vec<u8>>> {
    if AclKind::of_index(index).is_none() {
        return Ok(Some(stored));
    }
    let acl = Acl::parse_disk(&stored)?;
    Ok((!acl.entries.is_empty()).then(|| acl.to_wire()))
}

/// The value of an attribute by its full name, as getxattr has it.
pub(crate) fn get(sbi: &Sbi, inode: &Inode, reader: Reader, name: &[u8]) -> Result<Vec<u8>> {
    let name = parse_name(name)?;
    if name.index == INDEX_USER && !takes_user(inode.file_type) {
        return Err(Error::NoAttribute);
    }
    let stored = find_value(sbi, inode, reader, name)?.ok_or(Error::NoAttribute)?;
    shown_value(name.index, stored)?.ok_or(Error::NoAttribute)
}

/// Whether inodes of this type have attributes in `user.`.
pub(crate) fn takes_user(file_type: FileType) -> bool {
    matches!(file_type, FileType::Regular | FileType::Directory)
}

/// Refuses what readers call damage: a name with a zero byte in it.
pub(crate) fn check_no_zero(name: &[u8]) -> Result<()> {
    let what = "the name of the extended attribute";
    match name.iter().position(|byte| *byte == 0) {
        Some(at) => Err(Invalid::Byte { what, byte: 0, at }.into()),
        None => Ok(()),
    }
}

/// Splits a full name.
pub(crate) fn parse_name(name: &[u8]) -> Result<XattrName<'_>> {
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(Error::AttributeName { len: name.len() });
    }
    check_no_zero(name)?;
    let split = split_name(name).map(|(index, suffix)| XattrName { index, suffix });
    split.ok_or_else(|| {
        let is_prefix = |(_, prefix): &(u8, &str)| prefix.as_bytes() == name;
        match NAME_PREFIXES.iter().any(is_prefix) {
            true => Invalid::XattrPrefix.into(),
            false => Error::Unsupported {
                what: format!("extended attribute {}", String::from_utf8_lossy(name)),
            },
        }
    })
}

fn value(
    sbi: &Sbi,
    inode: &Inode,
    reader: Reader,
    place: XattrPlace,
    entry: &XattrEntry<'_>,
) -> Result<Vec<u8>> {
    match entry.value {
        XattrValue::Here(value) => Ok(value.to_vec()),
        XattrValue::Inode { ino, size } => ea_inode_value(sbi, inode, reader, place, ino, size),
    }
}

/// Reads a value that has an inode of its own.
fn ea_inode_value(
    sbi: &Sbi,
    owner: &Inode,
    reader: Reader,
    at: XattrPlace,
    ino: Ino,
    size: u32,
) -> Result<Vec<u8>> {
    let bad = |why| Error::Corrupt(Damage::Xattr { at, offset: 0, why });
    let inode = ea_inode::get(sbi, ino)?;
    if inode.size != u64::from(size) {
        return Err(bad("value's size differs from its inode's"));
    }
    let value = ea_inode::read(sbi, &inode)?;
    // Older writers stored the owner there in place of a hash.
    let lustre = inode.mtime.sec as u32 == owner.ino.0 && inode.generation == owner.generation;
    let hash = ea_inode_hash(sbi.superblock().seed(), &value);
    if hash != ea_inode::hash(&inode) && !lustre {
        return Err(bad("value does not match its hash"));
    }
    // No thread counts the users of an older writer's.
    if reader == Reader::Holder && !lustre {
        ea_inode::seen(sbi, &inode)?;
    }
    Ok(value)
}
