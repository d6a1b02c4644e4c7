//! Tar archives, of every common writer: v7, ustar, pax (POSIX, with the records of GNU tar, star
//! and libarchive), old GNU with long names and sparse files.
//!
//! ```text
//! [x|g: records] [L|K: long name]  header  [sparse map]  contents, padded   … 2 zero blocks
//! ```
//! Only headers are read here; of contents just the place is noted. A member is taken as tar would
//! extract it as root with `--numeric-owner --same-permissions --xattrs --acls`. Left out: archives
//! of several volumes, and what only tar itself knows (labels, lists of deleted files).

mod before;
mod header;
mod input;
mod members;
mod pax;
mod sparse;
#[cfg(test)]
mod tests;

use std::os::unix::ffi::OsStrExt;

use uext4_ondisk::acl::Acl;
use uext4_ondisk::inode::Timestamp;
use uext4_ondisk::xattr::{
    INDEX_POSIX_ACL_ACCESS, INDEX_POSIX_ACL_DEFAULT, INDEX_USER, split_name,
};

use super::layer::strip_overlay;
use super::sink::Sink;
use super::{Context, Listing, Owner, device_refused, owner};
use crate::acl;
use crate::error::{Error, TarDamage};
use crate::ids::HostIds;
use crate::path;
use crate::tree::{Attributes, DataRange, FileData, NewNode, Xattr};
use before::Before;
use header::{BLOCK, Header};
pub use input::Input;
use pax::{Pax, Sparse};

/// Longest run of extended records, in bytes.
const RECORDS_MAX: u64 = 8 << 20;
/// Longest name in a GNU long-name member, in bytes.
const LONG_NAME_MAX: u64 = 64 << 10;
/// Most bytes of zeroes that are an archive without members: archivers fill up their last record.
const EMPTY_MAX: u64 = 1 << 20;
/// `e_name_index` of `trusted.` and `security.`.
const INDEX_TRUSTED: u8 = 4;
const INDEX_SECURITY: u8 = 6;

/// Lists an archive into `listing`, as the source that has begun there. Contents of a stream go to
/// `sink`.
///
/// # Errors
/// [`Error::Tar`] with the offset of what is wrong; the tree's errors; what reading says.
pub fn list(
    input: Input,
    kind: ArchiveKind,
    context: &Context<'_>,
    listing: &mut Listing,
    sink: Sink<'_>,
) -> Result<(), Error> {
    let mut lister = Lister {
        input,
        kind,
        context,
        listing,
        sink,
        block: [0; BLOCK],
        global: Pax::default(),
        repeated: 0,
        ids: HostIds::default(),
    };
    while let Some(member) = lister.next_member()? {
        lister.take(member)?;
        context.counter.check()?;
    }
    lister.input.finish()
}

/// What the names in an archive mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchiveKind {
    /// Files.
    Files,
    /// A layer of a container image: some names say what the layers below have and it has not.
    Layer,
}

struct Lister<'a> {
    input: Input,
    kind: ArchiveKind,
    context: &'a Context<'a>,
    listing: &'a mut Listing,
    sink: Sink<'a>,
    /// The header that was read last.
    block: [u8; BLOCK],
    /// Records that hold for all members to come.
    global: Pax,
    /// Bytes that sets of attributes have taken which begin with those of the global records.
    repeated: u64,
    ids: HostIds,
}

/// A header with everything that was said before it.
struct Member {
    /// Offset of the header in the archive.
    at: u64,
    pax: Pax,
    long_name: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
}

/// What a type flag stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    HardLink,
    Symlink,
    CharDevice,
    BlockDevice,
    Directory,
    Fifo,
}

impl Lister<'_> {
    fn next_member(&mut self) -> Result<Option<Member>, Error> {
        let mut before = Before::default();
        loop {
            let at = self.input.position();
            if !self.header_block()? {
                return Ok(None);
            }
            let block = self.block;
            let header = match Header::parse(&block) {
                Ok(header) => header,
                Err(_) if at == 0 => return Err(self.not_tar(&block)),
                Err(why) => return Err(self.input.damage(at, why)),
            };
            let (what, limit) = match header.kind() {
                b'x' | b'X' | b'g' => ("extended header", RECORDS_MAX),
                b'L' => ("long name", LONG_NAME_MAX),
                b'K' => ("long link", LONG_NAME_MAX),
                b'V' => {
                    let size = header.size().map_err(|why| self.input.damage(at, why))?;
                    self.input.skip(size, "volume label")?;
                    // What stands before a label is about the label.
                    before = Before::default();
                    continue;
                }
                _ => {
                    let pax = before.pax(&self.global);
                    return Ok(Some(Member {
                        at,
                        pax: pax.map_err(|why| self.input.damage(at, why))?,
                        long_name: before.long_name,
                        long_link: before.long_link,
                    }));
                }
            };
            let body = self.body(&header, what, limit)?;
            let taken = before.take(header.kind(), body, &mut self.global);
            taken.map_err(|why| self.input.damage(at, why))?;
        }
    }

    /// Reads the next header, or returns false at the zero blocks that end an archive.
    fn header_block(&mut self) -> Result<bool, Error> {
        let at = self.input.position();
        match self.input.read(&mut self.block)? {
            BLOCK => {}
            _ if at == 0 => return Err(self.not_tar(&self.block)),
            // As umoci makes layers. If it were cut, the digest would be another one.
            0 if self.input.is_verified() => {
                let path = self.input.path().as_os_str().as_bytes().to_vec();
                let what = "has no end-of-archive marker; by its digest it is whole";
                self.listing.warnings.add(&path, what);
                return Ok(false);
            }
            0 => return Err(self.input.damage(at, TarDamage::NoEnd)),
            len => {
                let (what, missing) = ("header", (BLOCK - len) as u64);
                return Err(self
                    .input
                    .damage(at, TarDamage::Truncated { what, missing }));
            }
        }
        if self.block != [0; BLOCK] {
            return Ok(true);
        }
        if at == 0 {
            self.must_be_empty()?;
            return Ok(false);
        }
        if self.input.peek_block()?.is_some_and(|b| b != [0; BLOCK]) {
            let what = format!("a lone block of zeroes at byte {at} ends the archive");
            self.listing.warnings.add(b"-", what);
        }
        Ok(false)
    }

    /// What begins with zeroes is an archive without members only if there is nothing else, and no
    /// more of them than a record of an archive has.
    fn must_be_empty(&mut self) -> Result<(), Error> {
        let not_tar = |hint| TarDamage::NotTar { hint };
        let mut block = [0; BLOCK];
        while self.input.position() <= EMPTY_MAX {
            match self.input.read(&mut block)? {
                0 => return Ok(()),
                len if block[..len].iter().all(|&byte| byte == 0) => {}
                _ => {
                    return Err(self
                        .input
                        .damage(0, not_tar(" (zeroes, then data: a disk image?)")));
                }
            }
        }
        Err(self
            .input
            .damage(0, not_tar(" (zeroes: an empty disk image?)")))
    }

    fn not_tar(&self, block: &[u8; BLOCK]) -> Error {
        let hint = match block {
            [b'L', b'Z', b'I', b'P', ..] => " (lzip is not supported)",
            [0x04, 0x22, 0x4D, 0x18, ..] => " (lz4 is not supported)",
            [b'P', b'K', ..] => " (a zip file)",
            [b'0', b'7', b'0', b'7', b'0', ..] => " (a cpio archive)",
            [b'!', b'<', b'a', b'r', b'c', b'h', b'>', ..] => " (an ar archive or package)",
            block if *block == [0; BLOCK] => " (empty, or less than a block)",
            _ => "",
        };
        self.input.damage(0, TarDamage::NotTar { hint })
    }

    /// The contents of a member that only describes the next.
    fn body(
        &mut self,
        header: &Header<'_>,
        what: &'static str,
        limit: u64,
    ) -> Result<Vec<u8>, Error> {
        let at = self.input.position();
        let size = header.size().map_err(|why| self.input.damage(at, why))?;
        if size > limit {
            let why = TarDamage::TooLarge { what, size, limit };
            return Err(self.input.damage(at, why));
        }
        let mut body = vec![0; size as usize];
        self.input.read_exact(&mut body, what)?;
        self.input.skip_padding(size)?;
        Ok(body)
    }

    fn take(&mut self, mut member: Member) -> Result<(), Error> {
        let at = member.at;
        let block = self.block;
        let header = Header::parsed_before(&block);
        let path = member.path(&header);
        let kind = self.kind(&header, &path, at)?;
        self.check_depth(&path)?;
        let stored = self.stored_size(&member, &header, kind)?;
        if matches!(kind, Kind::File | Kind::HardLink) && self.is_marker(&path, stored)? {
            return Ok(());
        }
        if self
            .context
            .options
            .excludes
            .matches_below(path::names(&path)?)
        {
            if header.kind() == b'S' && header.has_more_map() {
                sparse::read_extensions(&mut self.input, &mut Vec::new())?;
            }
            return self.input.skip(stored, "contents");
        }
        if kind == Kind::HardLink {
            self.input.skip(stored, "contents")?;
            let target = member.link_path(&header);
            self.link(&path, &target)?;
            self.context.counter.entry();
            return Ok(());
        }
        let attributes = self.attributes(&mut member, &header, kind, &path);
        let attributes = attributes.map_err(|why| self.input.damage(at, why))?;
        // Before the contents are stored: what is too much must not fill a disk first.
        self.count(stored, &attributes.xattrs)?;
        let (target, sparse);
        let node = match kind {
            Kind::File | Kind::HardLink => {
                let (size, map) = self.contents(&member, &header, stored)?;
                sparse = map;
                let data = match &sparse {
                    Contents::Whole(at) => FileData::Whole { at: *at },
                    Contents::Sparse(pieces) => FileData::Sparse(pieces),
                };
                NewNode::File { size, data }
            }
            Kind::Directory => NewNode::Directory,
            Kind::Fifo => NewNode::Fifo,
            Kind::Symlink => {
                target = member.link_path(&header);
                NewNode::Symlink(&target)
            }
            Kind::CharDevice | Kind::BlockDevice => {
                if self.context.options.no_devices {
                    return Err(device_refused(&path));
                }
                let number = header.device();
                let number = number.map_err(|why| self.input.damage(at, why))?;
                match kind {
                    Kind::CharDevice => NewNode::CharDevice(number),
                    _ => NewNode::BlockDevice(number),
                }
            }
        };
        if kind != Kind::File {
            self.input.skip(stored, "contents")?;
        }
        self.insert(&path, node, attributes)?;
        self.context.counter.entry();
        self.context.counter.bytes(stored);
        Ok(())
    }

    fn link(&mut self, path: &[u8], target: &[u8]) -> Result<(), Error> {
        match self.listing.tree.link(path, target) {
            Err(Error::HardLink { path, target, .. })
                if self
                    .context
                    .options
                    .excludes
                    .matches_below(path::names(target.as_os_str().as_bytes())?) =>
            {
                let why = "it is excluded, and the contents of the archive are there";
                Err(Error::HardLink { path, target, why })
            }
            other => other.map(drop),
        }
    }

    fn kind(&mut self, header: &Header<'_>, path: &[u8], at: u64) -> Result<Kind, Error> {
        Ok(match header.kind() {
            // Before POSIX a directory was a file whose name ended in a slash.
            0 | b'0' | b'7' | b'S' if path.ends_with(b"/") => Kind::Directory,
            0 | b'0' | b'7' | b'S' => Kind::File,
            b'1' => Kind::HardLink,
            b'2' => Kind::Symlink,
            b'3' => Kind::CharDevice,
            b'4' => Kind::BlockDevice,
            b'5' | b'D' => Kind::Directory,
            b'6' => Kind::Fifo,
            kind @ b'M' => {
                let why = "archives of several volumes are not supported";
                return Err(self.input.damage(at, TarDamage::Kind { kind, why }));
            }
            kind if path.ends_with(b"/") => {
                let why = "unknown, of a name that ends in a slash";
                return Err(self.input.damage(at, TarDamage::Kind { kind, why }));
            }
            kind => {
                let kind = char::from(kind);
                let what = format!("unknown member type {kind:?}, taken as a file");
                self.listing.warnings.add(path, what);
                Kind::File
            }
        })
    }

    /// Bytes of contents that follow the header. Some writers give sizes to what has none. Refused
    /// is what some readers skip as contents, and others read as headers.
    fn stored_size(
        &mut self,
        member: &Member,
        header: &Header<'_>,
        kind: Kind,
    ) -> Result<u64, Error> {
        let bad = |why| TarDamage::Field { field: "size", why };
        let recorded = member.pax.size;
        let size = header.size();
        let size = size.map_err(|why| self.input.damage(member.at, why))?;
        let size = recorded.unwrap_or(size);
        let stored = match kind {
            Kind::File => Ok(size),
            Kind::Directory if header.kind() == b'D' => Ok(size),
            Kind::Directory
                if header.kind() == b'S'
                    || header.kind() != b'5' && member.pax.sparse != Sparse::default() =>
            {
                Err(bad("of a sparse file whose name ends in a slash"))
            }
            Kind::Directory if header.kind() != b'5' && size > 0 => {
                Err(bad("of a file whose name ends in a slash, not zero"))
            }
            // POSIX lets a hard link repeat the contents, but many writers only repeat the size:
            // then what follows is the next header, or the end.
            Kind::HardLink if size > 0 && !header.is_gnu() => match self.input.peek_block()? {
                Some(next) if next != [0; BLOCK] && Header::parse(&next).is_err() => Ok(size),
                _ if recorded.is_some() => Err(bad("of a hard link, in a record, not zero")),
                _ => Ok(0),
            },
            _ if recorded.is_some_and(|size| size > 0) => {
                Err(bad("of what has no contents, in a record, not zero"))
            }
            _ => Ok(0),
        };
        stored.map_err(|why| self.input.damage(member.at, why))
    }

    /// Goes past the contents of a file, reporting its size and where they are.
    fn contents(
        &mut self,
        member: &Member,
        header: &Header<'_>,
        stored: u64,
    ) -> Result<(u64, Contents), Error> {
        let mut stored = stored;
        let sparse = &member.pax.sparse;
        let (size, map) = if header.kind() == b'S' {
            let mut map = Vec::new();
            let size = header.sparse_size();
            let size = size.map_err(|why| self.input.damage(member.at, why))?;
            let more = header.sparse_map(&mut map);
            let more = more.map_err(|why| self.input.damage(member.at, why))?;
            if more {
                sparse::read_extensions(&mut self.input, &mut map)?;
            }
            (Some(size), map)
        } else if sparse.major == 1 {
            let map = sparse::read_map(&mut self.input, &mut stored)?;
            (sparse.real_size, map)
        } else if let Some(map) = &sparse.map {
            (sparse.real_size, map.clone())
        } else {
            return Ok((stored, self.store_whole(stored)?));
        };
        let at = self.input.place(&self.sink);
        let bad = |why| self.input.damage(member.at, TarDamage::Sparse { why });
        let size = size.ok_or_else(|| bad("the real size is not stated"))?;
        let pieces = sparse::pieces(&map, size, at, stored).map_err(bad)?;
        Ok((size, self.store_pieces(pieces, size, stored)?))
    }

    fn attributes(
        &mut self,
        member: &mut Member,
        header: &Header<'_>,
        kind: Kind,
        path: &[u8],
    ) -> Result<Attributes, TarDamage> {
        let pax = &mut member.pax;
        // A number that a record overrides is still one that can be read: GNU tar fails otherwise.
        let (uid, gid, sec) = (header.uid()?, header.gid()?, header.mtime()?);
        let (uid, gid) = (pax.uid.unwrap_or(uid), pax.gid.unwrap_or(gid));
        let (uname, gname) = header.owner_names();
        let stored = Owner {
            uid,
            gid,
            uname: pax.user.as_deref().unwrap_or(uname),
            gname: pax.group.as_deref().unwrap_or(gname),
        };
        let (uid, gid) = owner(self.context.options, &self.ids, &stored);
        let mtime = pax.mtime.unwrap_or(Timestamp { sec, nsec: 0 });
        let mut mode = match kind {
            // No system lets a link have another one, whatever a writer has put there.
            Kind::Symlink => 0o777,
            _ => header.mode()?,
        };
        Ok(Attributes {
            uid,
            gid,
            atime: pax.atime.unwrap_or(mtime),
            mtime,
            ctime: pax.ctime.unwrap_or(mtime),
            xattrs: self.xattrs(pax, kind, path, &mut mode),
            mode,
        })
    }

    /// The attributes that an image can keep, with ACLs in wire form; the rest is warned of.
    fn xattrs(&mut self, pax: &mut Pax, kind: Kind, path: &[u8], mode: &mut u16) -> Vec<Xattr> {
        for (name, text) in [
            ("system.posix_acl_access", pax.acl_access.take()),
            ("system.posix_acl_default", pax.acl_default.take()),
        ] {
            match text.map(|text| acl::from_text(&text, &self.ids)) {
                None => {}
                // In front, so that an attribute of this name, which says it exactly, wins.
                Some(Ok(acl)) => pax.xattrs.insert(0, (name.into(), acl.to_wire())),
                Some(Err(why)) => self
                    .listing
                    .warnings
                    .add(path, format!("{name} left out: {why}")),
            }
        }
        let mut kept = std::mem::take(&mut pax.xattrs);
        if self.kind == ArchiveKind::Layer {
            strip_overlay(&mut kept);
        }
        kept.retain(|(name, value)| match keep(name, value, kind, mode) {
            Ok(keep) => keep,
            Err(why) => {
                let name = String::from_utf8_lossy(name);
                self.listing
                    .warnings
                    .add(path, format!("{name} left out: {why}"));
                false
            }
        });
        kept
    }
}

/// Whether an attribute becomes one in the image; an access ACL also has its say in the mode.
fn keep(name: &[u8], value: &[u8], kind: Kind, mode: &mut u16) -> Result<bool, &'static str> {
    let index = split_name(name).map(|(index, _)| index);
    match index {
        Some(INDEX_USER) if !matches!(kind, Kind::File | Kind::Directory) => {
            Err("only files and directories can have it")
        }
        Some(INDEX_USER | INDEX_TRUSTED | INDEX_SECURITY) => Ok(true),
        Some(INDEX_POSIX_ACL_ACCESS | INDEX_POSIX_ACL_DEFAULT) => {
            let default = index == Some(INDEX_POSIX_ACL_DEFAULT);
            if kind == Kind::Symlink || default && kind != Kind::Directory {
                return Err("what it is for cannot have it");
            }
            let acl = Acl::parse_wire(value).map_err(|_| "not an ACL")?;
            acl.validate().map_err(|_| "not a valid ACL")?;
            if !default {
                *mode = *mode & !0o777 | acl.mode_bits();
            }
            // What the mode says already is no attribute.
            Ok(default || !acl.is_minimal())
        }
        _ => Err("ext4 has no such attributes"),
    }
}

/// Where the contents of a file are.
enum Contents {
    /// All of them, from this offset of the archive.
    Whole(u64),
    /// In pieces, at offsets of the store.
    Sparse(Vec<DataRange>),
}

impl Member {
    fn path(&mut self, header: &Header<'_>) -> Vec<u8> {
        let pax = &mut self.pax;
        let said = pax.sparse.name.take().or(pax.path.take());
        let said = said.or(self.long_name.take());
        said.unwrap_or_else(|| header.name())
    }

    fn link_path(&mut self, header: &Header<'_>) -> Vec<u8> {
        let said = self.pax.link_path.take().or(self.long_link.take());
        said.unwrap_or_else(|| header.link_name())
    }
}
