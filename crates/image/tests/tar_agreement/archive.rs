//! Archives put together by hand, so that every field can have any value.

use std::ops::Range;

use uext4_image::ustar::{
    BLOCK, CHKSUM, GID, LINKNAME, MAGIC, MODE, MTIME, NAME, PREFIX, SIZE, TYPEFLAG, UID,
};

/// The magic of the three formats.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Format {
    V7,
    Posix,
    Gnu,
}

/// A number as a header can hold it.
#[derive(Clone, Copy)]
pub enum Number {
    /// Octal digits with leading zeroes, and a zero byte after them if the field has a byte left.
    Octal(u64),
    /// Octal digits behind spaces, and a space after them.
    Spaces(u64),
    /// Big-endian two's complement with the top bit of the first byte set.
    Base256(i128),
    /// Any bytes; the rest of the field is zero.
    Raw(&'static [u8]),
}

/// One block that describes a member.
#[derive(Clone)]
pub struct Header(pub [u8; BLOCK]);

impl Header {
    /// Mode 0644, owner 0, time 0; a name too long for the field is cut.
    pub fn new(format: Format, kind: u8, name: &[u8]) -> Self {
        let mut header = Self([0; BLOCK]);
        header.0[TYPEFLAG] = kind;
        match format {
            Format::V7 => {}
            Format::Posix => header.0[MAGIC].copy_from_slice(b"ustar\x0000"),
            Format::Gnu => header.0[MAGIC].copy_from_slice(b"ustar  \0"),
        }
        header.put(NAME, name);
        for (field, value) in [(MODE, 0o644), (UID, 0), (GID, 0), (SIZE, 0), (MTIME, 0)] {
            header.number(field, Number::Octal(value));
        }
        header
    }

    /// Bytes at the beginning of a field.
    pub fn put(&mut self, field: Range<usize>, bytes: &[u8]) {
        let len = bytes.len().min(field.len());
        self.0[field.clone()].fill(0);
        self.0[field][..len].copy_from_slice(&bytes[..len]);
    }

    pub fn number(&mut self, field: Range<usize>, number: Number) {
        let width = field.len() - 1;
        match number {
            Number::Octal(value) => self.put(field, format!("{value:0width$o}").as_bytes()),
            Number::Spaces(value) => {
                self.put(field, format!("{value:>w$o} ", w = width).as_bytes());
            }
            Number::Raw(bytes) => self.put(field, bytes),
            Number::Base256(value) => {
                let byte = |at: usize| (value >> (8 * at)) as u8;
                let mut text: Vec<u8> = (0..field.len()).rev().map(byte).collect();
                text[0] |= 0x80;
                self.put(field, &text);
            }
        }
    }

    pub fn link(&mut self, target: &[u8]) {
        self.put(LINKNAME, target);
    }

    pub fn prefix(&mut self, prefix: &[u8]) {
        self.put(PREFIX, prefix);
    }

    pub fn size(&mut self, size: u64) {
        self.number(SIZE, Number::Octal(size));
    }

    fn summed(mut self) -> [u8; BLOCK] {
        put_sum(&mut self.0);
        self.0
    }
}

/// Makes the checksum of a header right.
pub fn put_sum(block: &mut [u8]) {
    block[CHKSUM].fill(b' ');
    let sum: u32 = block[..BLOCK].iter().map(|&byte| u32::from(byte)).sum();
    block[CHKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

/// The bytes of an archive so far.
#[derive(Clone, Default)]
pub struct Archive(pub Vec<u8>);

impl Archive {
    /// A header, and contents that it need not speak of, padded to a block.
    pub fn member(&mut self, header: Header, contents: &[u8]) {
        self.0.extend_from_slice(&header.summed());
        self.0.extend_from_slice(contents);
        self.0.resize(self.0.len().next_multiple_of(BLOCK), 0);
    }

    /// A member whose header has the size of its contents.
    pub fn sized(&mut self, mut header: Header, contents: &[u8]) {
        header.size(contents.len() as u64);
        self.member(header, contents);
    }

    /// An extended header of `kind` x or g.
    pub fn records(&mut self, kind: u8, records: &[u8]) {
        self.sized(Header::new(Format::Posix, kind, b"records"), records);
    }

    /// A long name (L) or target (K) of GNU tar.
    pub fn long(&mut self, kind: u8, text: &[u8]) {
        let header = Header::new(Format::Gnu, kind, b"././@LongLink");
        self.sized(header, &[text, b"\0"].concat());
    }

    pub fn zeroes(&mut self, blocks: usize) {
        self.0.resize(self.0.len() + blocks * BLOCK, 0);
    }
}

/// A pax record.
pub fn record(key: &str, value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let len = (rest..).find(|len| len - len.to_string().len() == rest);
    let mut record = format!("{} {key}=", len.unwrap()).into_bytes();
    record.extend_from_slice(value);
    record.push(b'\n');
    record
}
