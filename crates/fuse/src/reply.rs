//! Replies → bytes, put straight into the buffer that the transport hands to the kernel.

use std::time::Duration;

use uext4::format::DeviceNumber;
use uext4::{FileType, Inode, InodeFlags, Timestamp};
use zerocopy::{Immutable, IntoBytes};

use crate::abi::flags::{statx, statx_attr};
use crate::abi::{Attr, AttrOut, Dirent, EntryOut, FUSE_ROOT_ID, Statx, StatxOut, SxTime};
use crate::errno::{Errno, Result};

/// Where a reply is put, without its header.
#[derive(Debug)]
pub struct Out<'a> {
    bytes: &'a mut [u8],
    len: usize,
}

impl<'a> Out<'a> {
    /// An empty one that may fill `bytes`.
    pub fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, len: 0 }
    }

    /// Bytes in it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What is in it.
    pub fn filled(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Takes back what was put in.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Adds a structure.
    ///
    /// # Errors
    /// `EIO` where there is no room, which no transport offers so little of.
    pub fn put<T: IntoBytes + Immutable>(&mut self, value: &T) -> Result<()> {
        self.put_bytes(value.as_bytes())
    }

    /// Adds bytes.
    ///
    /// # Errors
    /// As [`Out::put`].
    pub fn put_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        let room = self.bytes.get_mut(self.len..self.len + bytes.len());
        room.ok_or(Errno::EIO)?.copy_from_slice(bytes);
        self.len += bytes.len();
        Ok(())
    }

    /// Space for `max` bytes, or for as many as there is; [`Out::fill`] says how many
    /// were used.
    pub fn room(&mut self, max: usize) -> &mut [u8] {
        let end = self.bytes.len().min(self.len.saturating_add(max));
        &mut self.bytes[self.len..end]
    }

    /// So many bytes of [`Out::room`] are filled.
    pub fn fill(&mut self, len: usize) {
        self.len = self.bytes.len().min(self.len + len);
    }

    /// Adds an entry of a directory, after `before` (empty for READDIR); false if it would need
    /// more than `limit` bytes in all.
    pub fn entry(&mut self, limit: usize, before: &[u8], dirent: Dirent, name: &[u8]) -> bool {
        let plain = before.len() + size_of::<Dirent>() + name.len();
        let padded = plain.next_multiple_of(8);
        if self.len + padded > limit.min(self.bytes.len()) {
            return false;
        }
        let parts = [before, dirent.as_bytes(), name, &[0; 8][..padded - plain]];
        // There is room.
        parts.iter().all(|part| self.put_bytes(part).is_ok())
    }
}

/// How long the kernel may rely on what it was reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Names, those that are not there as well.
    pub entry: Duration,
    /// Attributes.
    pub attr: Duration,
}

impl Default for Validity {
    /// For good: no other thread changes the image.
    fn default() -> Self {
        let for_good = Duration::from_secs(1 << 30);
        Self {
            entry: for_good,
            attr: for_good,
        }
    }
}

impl Validity {
    /// A name.
    pub fn entry(&self, attr: Attr, generation: u32) -> EntryOut {
        let nodeid = node_of(attr.ino);
        EntryOut {
            nodeid,
            // The kernel made the root itself, with this one: it would take any other for another
            // inode.
            generation: match nodeid {
                FUSE_ROOT_ID => 0,
                _ => generation.into(),
            },
            attr,
            ..self.no_entry()
        }
    }

    /// That a name is not there.
    pub fn no_entry(&self) -> EntryOut {
        EntryOut {
            entry_valid: self.entry.as_secs(),
            entry_valid_nsec: self.entry.subsec_nanos(),
            attr_valid: self.attr.as_secs(),
            attr_valid_nsec: self.attr.subsec_nanos(),
            ..EntryOut::default()
        }
    }

    /// Attributes.
    pub fn attr(&self, attr: Attr) -> AttrOut {
        AttrOut {
            attr_valid: self.attr.as_secs(),
            attr_valid_nsec: self.attr.subsec_nanos(),
            dummy: 0,
            attr,
        }
    }

    /// Attributes as statx shows them.
    pub fn statx(&self, inode: &Inode, delayed: u64, block_size: u32) -> StatxOut {
        StatxOut {
            attr_valid: self.attr.as_secs(),
            attr_valid_nsec: self.attr.subsec_nanos(),
            flags: 0,
            spare: [0; 2],
            stat: statx_of(inode, delayed, block_size),
        }
    }
}

/// The node of an inode: its number, but for the root, which the protocol calls 1.
pub fn node_of(ino: u64) -> u64 {
    match ino {
        2 => FUSE_ROOT_ID,
        ino => ino,
    }
}

/// What stat shows of an inode, with `delayed` units of 512 bytes that wait to be allocated.
pub fn attr_of(inode: &Inode, delayed: u64, block_size: u32) -> Attr {
    Attr {
        ino: inode.ino.0.into(),
        size: inode.size,
        blocks: inode.blocks + delayed,
        atime: inode.atime.sec.cast_unsigned(),
        mtime: inode.mtime.sec.cast_unsigned(),
        ctime: inode.ctime.sec.cast_unsigned(),
        atimensec: inode.atime.nsec,
        mtimensec: inode.mtime.nsec,
        ctimensec: inode.ctime.nsec,
        mode: inode.mode.into(),
        nlink: inode.links.into(),
        uid: inode.uid,
        gid: inode.gid,
        rdev: inode.rdev.map_or(0, encode_device),
        blksize: block_size,
        flags: 0,
    }
}

fn statx_of(inode: &Inode, delayed: u64, block_size: u32) -> Statx {
    let time = |time: Timestamp| SxTime {
        tv_sec: time.sec,
        tv_nsec: time.nsec,
        reserved: 0,
    };
    let rdev = inode.rdev.unwrap_or(DeviceNumber { major: 0, minor: 0 });
    let known = [
        (InodeFlags::COMPR, statx_attr::COMPRESSED),
        (InodeFlags::IMMUTABLE, statx_attr::IMMUTABLE),
        (InodeFlags::APPEND, statx_attr::APPEND),
        (InodeFlags::NODUMP, statx_attr::NODUMP),
        (InodeFlags::ENCRYPT, statx_attr::ENCRYPTED),
        (InodeFlags::VERITY, statx_attr::VERITY),
    ];
    let has = known.iter().filter(|(flag, _)| inode.has(*flag));
    Statx {
        mask: statx::BASIC_STATS | inode.crtime.map_or(0, |_| statx::BTIME),
        blksize: block_size,
        attributes: has.fold(0, |all, (_, attribute)| all | attribute),
        nlink: inode.links.into(),
        uid: inode.uid,
        gid: inode.gid,
        mode: inode.mode,
        ino: inode.ino.0.into(),
        size: inode.size,
        blocks: inode.blocks + delayed,
        attributes_mask: known.iter().fold(0, |all, (_, attribute)| all | attribute),
        atime: time(inode.atime),
        btime: inode.crtime.map(time).unwrap_or_default(),
        ctime: time(inode.ctime),
        mtime: time(inode.mtime),
        rdev_major: rdev.major,
        rdev_minor: rdev.minor,
        ..Statx::default()
    }
}

/// A device number as Linux passes it: 12 bits of major, 20 of minor.
fn encode_device(device: DeviceNumber) -> u32 {
    device.minor & 0xFF | device.major << 8 | (device.minor & !0xFF) << 12
}

/// The other way.
pub fn decode_device(rdev: u32) -> DeviceNumber {
    DeviceNumber {
        major: rdev >> 8 & 0xFFF,
        minor: rdev & 0xFF | rdev >> 12 & 0xF_FF00,
    }
}

/// `d_type` of a type; 0 where it is not known.
pub fn dirent_type(file_type: Option<FileType>) -> u32 {
    file_type.map_or(0, |file_type| u32::from(file_type.mode_bits() >> 12))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_come_back() {
        for (major, minor) in [(0, 0), (8, 1), (259, 300), (4095, 0xF_FFFF), (1, 3)] {
            let device = DeviceNumber { major, minor };
            assert_eq!(decode_device(encode_device(device)), device);
        }
        assert_eq!(encode_device(DeviceNumber { major: 8, minor: 1 }), 0x801);
    }

    #[test]
    fn entries_are_padded_and_stop_at_the_limit() {
        let mut bytes = [0xFF; 100];
        let mut out = Out::new(&mut bytes);
        let dirent = Dirent {
            ino: 12,
            off: 1,
            namelen: 3,
            type_: 8,
        };
        assert!(out.entry(64, &[], dirent, b"abc"));
        assert_eq!(out.len(), 32);
        assert_eq!(&out.filled()[24..], b"abc\0\0\0\0\0");
        assert!(out.entry(64, &[], dirent, b"12345678"));
        assert!(!out.entry(64, &[], dirent, b"a"));
        assert_eq!(out.len(), 64);
        assert!(out.put_bytes(&[0; 37]).is_err());
        out.room(1000).fill(7);
        out.fill(1000);
        assert_eq!(out.len(), 100);
    }

    #[test]
    fn the_root_is_node_one() {
        assert_eq!(node_of(2), 1);
        assert_eq!(node_of(11), 11);
        let no = Validity::default().no_entry();
        assert_eq!((no.nodeid, no.entry_valid), (0, 1 << 30));
        let entry = |ino| {
            let attr = Attr {
                ino,
                ..Attr::default()
            };
            Validity::default().entry(attr, 7).generation
        };
        assert_eq!((entry(2), entry(12)), (0, 7));
    }

    #[test]
    fn types_are_those_of_the_directory() {
        assert_eq!(dirent_type(Some(FileType::Directory)), 4);
        assert_eq!(dirent_type(Some(FileType::Regular)), 8);
        assert_eq!(dirent_type(Some(FileType::Symlink)), 10);
        assert_eq!(dirent_type(None), 0);
    }
}
