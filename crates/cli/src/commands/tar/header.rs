//! Headers of a pax archive, as POSIX.1-2001 and the manual of GNU tar describe them.
//!
//! ```text
//! [pax header 'x' | its records]  header | data, padded to 512
//! ```
//! The records hold what the old fields of the header cannot.

use std::io::{self, Write};
use std::ops::Range;

use uext4::Inode;
use uext4_image::ustar::{
    BLOCK, CHKSUM, DEVMAJOR, DEVMINOR, GID, LINKNAME, MAGIC, MODE, MTIME, NAME, SIZE, TYPEFLAG, UID,
};
use uext4_ondisk::acl::{Acl, AclTag};
use uext4_ondisk::inode::{FileType, Timestamp};

/// The records of a pax header.
#[derive(Debug, Default)]
pub struct Pax {
    records: Vec<u8>,
}

impl Pax {
    /// `length key=value\n`, where the length counts itself.
    fn add(&mut self, key: &[u8], value: &[u8]) {
        let rest = key.len() + value.len() + 3;
        let mut len = rest + 1;
        while rest + len.to_string().len() != len {
            len = rest + len.to_string().len();
        }
        self.records.extend_from_slice(len.to_string().as_bytes());
        self.records.push(b' ');
        self.records.extend_from_slice(key);
        self.records.push(b'=');
        self.records.extend_from_slice(value);
        self.records.push(b'\n');
    }

    fn time(&mut self, key: &str, time: Timestamp) {
        // A negative time with a fraction counts the fraction towards zero: -1.25 s.
        let nanos = time.as_nanos();
        let (sign, nanos) = if nanos < 0 {
            ("-", -nanos)
        } else {
            ("", nanos)
        };
        let (sec, nsec) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
        let text = match nsec {
            0 => format!("{sign}{sec}"),
            _ => format!("{sign}{sec}.{nsec:09}")
                .trim_end_matches('0')
                .to_owned(),
        };
        self.add(key.as_bytes(), text.as_bytes());
    }

    /// An extended attribute; an ACL also in the text form that `tar --acls` restores.
    pub fn xattr(&mut self, name: &[u8], value: &[u8]) {
        // A key cannot hold its own end; GNU tar writes and reads such names with these escapes.
        let mut key = b"SCHILY.xattr.".to_vec();
        for &byte in name {
            match byte {
                b'=' => key.extend_from_slice(b"%3D"),
                b'%' => key.extend_from_slice(b"%25"),
                _ => key.push(byte),
            }
        }
        self.add(&key, value);
        let acl_key = match name {
            b"system.posix_acl_access" => "SCHILY.acl.access",
            b"system.posix_acl_default" => "SCHILY.acl.default",
            _ => return,
        };
        // One that cannot be parsed still has its record above.
        if let Ok(acl) = Acl::parse_wire(value) {
            self.add(acl_key.as_bytes(), acl_text(&acl).as_bytes());
        }
    }
}

/// `user::rw-,user:1000:r--,group::r--,mask::r--,other::---`
fn acl_text(acl: &Acl) -> String {
    let entries = acl.entries.iter().map(|entry| {
        let kind = match entry.tag {
            AclTag::UserObj | AclTag::User(_) => "user",
            AclTag::GroupObj | AclTag::Group(_) => "group",
            AclTag::Mask => "mask",
            AclTag::Other => "other",
        };
        let id = entry.tag.id().map(|id| id.to_string()).unwrap_or_default();
        let may = |bit: u16, letter: char| if entry.perm & bit != 0 { letter } else { '-' };
        format!("{kind}:{id}:{}{}{}", may(4, 'r'), may(2, 'w'), may(1, 'x'))
    });
    entries.collect::<Vec<_>>().join(",")
}

/// A header under construction.
#[derive(Debug)]
pub struct Header {
    block: [u8; BLOCK],
}

impl Header {
    /// The header of an empty file whose attributes are all zero.
    pub fn marker(path: &[u8], pax: &mut Pax) -> Self {
        let mut header = Self { block: [0; BLOCK] };
        header.block[MAGIC].copy_from_slice(b"ustar\x0000");
        header.block[TYPEFLAG] = b'0';
        header.text(NAME, path, "path", pax);
        for field in [MODE, UID, GID, SIZE, MTIME, DEVMAJOR, DEVMINOR] {
            header.number(field, 0, None);
        }
        header
    }

    /// The header of an inode: everything but link targets and the size of data.
    pub fn new(inode: &Inode, path: &[u8], pax: &mut Pax) -> Self {
        let mut header = Self::marker(path, pax);
        header.block[TYPEFLAG] = match inode.file_type {
            FileType::Directory => b'5',
            FileType::Symlink => b'2',
            FileType::CharDevice => b'3',
            FileType::BlockDevice => b'4',
            FileType::Fifo => b'6',
            FileType::Regular | FileType::Socket => b'0',
        };
        header.number(MODE, (inode.mode & 0o7777).into(), None);
        header.number(UID, inode.uid.into(), Some(("uid", pax)));
        header.number(GID, inode.gid.into(), Some(("gid", pax)));
        header.times(inode, pax);
        let rdev = inode.rdev.unwrap_or_default();
        header.number(DEVMAJOR, rdev.major.into(), None);
        header.number(DEVMINOR, rdev.minor.into(), None);
        header
    }

    fn times(&mut self, inode: &Inode, pax: &mut Pax) {
        let whole = u64::try_from(inode.mtime.sec).ok();
        let plain = whole.filter(|&sec| inode.mtime.nsec == 0 && sec < 1 << 33);
        self.number(
            MTIME,
            plain.or(whole).map_or(0, |sec| sec.min((1 << 33) - 1)),
            None,
        );
        if plain.is_none() {
            pax.time("mtime", inode.mtime);
        }
        pax.time("atime", inode.atime);
        pax.time("ctime", inode.ctime);
    }

    /// Makes it a hard link to an earlier path.
    pub fn hard_link(&mut self, path: &[u8], pax: &mut Pax) {
        self.block[TYPEFLAG] = b'1';
        self.text(LINKNAME, path, "linkpath", pax);
    }

    /// Sets the target of a symbolic link.
    pub fn symlink(&mut self, target: &[u8], pax: &mut Pax) {
        self.text(LINKNAME, target, "linkpath", pax);
    }

    /// Sets the bytes stored after it.
    pub fn size(&mut self, bytes: u64, pax: &mut Pax) {
        self.number(SIZE, bytes, Some(("size", pax)));
    }

    /// Makes it a file with holes in GNU's format 1.0: the name and size move into the records,
    /// the data begins with a map.
    pub fn sparse(&mut self, path: &[u8], size: u64, pax: &mut Pax) {
        pax.add(b"GNU.sparse.major", b"1");
        pax.add(b"GNU.sparse.minor", b"0");
        pax.add(b"GNU.sparse.name", path);
        pax.add(b"GNU.sparse.realsize", size.to_string().as_bytes());
        // Seen only by programs that do not know the format.
        let mut name = b"./GNUSparseFile.0/".to_vec();
        name.extend(path.rsplit(|&b| b == b'/').next().unwrap_or_default());
        name.truncate(NAME.len());
        self.block[NAME].fill(0);
        self.block[NAME][..name.len()].copy_from_slice(&name);
    }

    /// Bytes where they fit, else the beginning of them, and all in a record.
    fn text(&mut self, field: Range<usize>, text: &[u8], key: &str, pax: &mut Pax) {
        let fits = text.len().min(field.len());
        self.block[field.start..field.start + fits].copy_from_slice(&text[..fits]);
        if fits < text.len() {
            pax.add(key.as_bytes(), text);
        }
    }

    /// Octal digits where they fit, else all sevens, and the number in a record.
    fn number(&mut self, field: Range<usize>, value: u64, record: Option<(&str, &mut Pax)>) {
        let digits = field.len() - 1;
        let max = (1u64 << (3 * digits)) - 1;
        if let Some((key, pax)) = record.filter(|_| value > max) {
            pax.add(key.as_bytes(), value.to_string().as_bytes());
        }
        let text = format!("{:0digits$o}", value.min(max));
        self.block[field.start..field.start + digits].copy_from_slice(text.as_bytes());
    }

    /// Writes the records, if any, and the header.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, pax: &Pax, out: &mut impl Write) -> io::Result<()> {
        if !pax.records.is_empty() {
            let mut extended = Self { block: self.block };
            extended.block[NAME].fill(0);
            extended.block[LINKNAME].fill(0);
            extended.block[..12].copy_from_slice(b"./PaxHeaders");
            extended.block[TYPEFLAG] = b'x';
            extended.number(MODE, 0o644, None);
            extended.number(SIZE, pax.records.len() as u64, None);
            extended.finish(out)?;
            out.write_all(&pax.records)?;
            out.write_all(padding(pax.records.len() as u64))?;
        }
        Self { block: self.block }.finish(out)
    }

    /// The sum of all bytes, its own field taken as spaces.
    fn finish(mut self, out: &mut impl Write) -> io::Result<()> {
        self.block[CHKSUM].fill(b' ');
        let sum: u32 = self.block.iter().map(|&b| u32::from(b)).sum();
        self.block[CHKSUM.start..CHKSUM.start + 7]
            .copy_from_slice(format!("{sum:06o}\0").as_bytes());
        out.write_all(&self.block)
    }
}

/// The map before the data of a file with holes: decimal lines, padded to whole blocks. The last
/// entry is empty and marks the end of the file.
pub fn sparse_map(ranges: &[Range<u64>], size: u64) -> Vec<u8> {
    let ends_in_hole = ranges.last().is_none_or(|last| last.end < size);
    let count = ranges.len() + usize::from(ends_in_hole);
    let mut map = format!("{count}\n").into_bytes();
    for range in ranges {
        map.extend(format!("{}\n{}\n", range.start, range.end - range.start).bytes());
    }
    if ends_in_hole {
        map.extend(format!("{size}\n0\n").bytes());
    }
    map.extend_from_slice(padding(map.len() as u64));
    map
}

/// Zeroes up to the next whole block.
pub fn padding(bytes: u64) -> &'static [u8] {
    const ZEROES: [u8; BLOCK] = [0; BLOCK];
    let over = bytes as usize % BLOCK;
    &ZEROES[..(BLOCK - over) % BLOCK]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_lengths_count_themselves() {
        for len in [
            1, 5, 90, 91, 92, 93, 94, 95, 990, 991, 992, 993, 9_980, 9_990,
        ] {
            let mut pax = Pax::default();
            pax.add(b"k", &vec![b'v'; len]);
            let text = String::from_utf8(pax.records.clone()).unwrap();
            let stated: usize = text.split(' ').next().unwrap().parse().unwrap();
            assert_eq!(stated, pax.records.len());
        }
    }

    #[test]
    fn times_before_1970_and_with_fractions() {
        let text = |sec, nsec| {
            let mut pax = Pax::default();
            pax.time("t", Timestamp { sec, nsec });
            String::from_utf8(pax.records).unwrap()
        };
        assert_eq!(text(-1, 250_000_000), "11 t=-0.75\n");
        assert_eq!(text(5, 0), "6 t=5\n");
        assert_eq!(text(5, 1), "17 t=5.000000001\n");
    }

    #[test]
    fn maps_end_where_the_file_ends() {
        let map = sparse_map(&[512..1024, 4096..8192], 16_384);
        assert!(map.starts_with(b"3\n512\n512\n4096\n4096\n16384\n0\n\0"));
        assert_eq!(map.len(), 512);
        assert!(sparse_map(&[0..1, 3..4], 4).starts_with(b"2\n0\n1\n3\n1\n\0"));
        assert!(sparse_map(&[], 5).starts_with(b"1\n5\n0\n\0"));
    }
}
