//! Extended headers: records `LENGTH KEY=VALUE\n` that say what a header's fields cannot.
//!
//! Read are the keys of POSIX, of GNU tar (sparse files, SELinux), star (`SCHILY.`) and libarchive;
//! others say nothing that an image could keep and are skipped.

use std::collections::HashSet;

use uext4_ondisk::inode::Timestamp;

use super::header::ID_MAX;
use crate::error::TarDamage;
use crate::tree::Xattr;

/// Most numbers in a sparse map: two for each of a million pieces.
pub const SPARSE_NUMBERS_MAX: usize = 2 << 20;

/// What the records said, as far as they said anything.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pax {
    pub path: Option<Vec<u8>>,
    pub link_path: Option<Vec<u8>>,
    /// Bytes stored in the archive.
    pub size: Option<u64>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub user: Option<Vec<u8>>,
    pub group: Option<Vec<u8>>,
    pub atime: Option<Timestamp>,
    pub mtime: Option<Timestamp>,
    pub ctime: Option<Timestamp>,
    pub xattrs: Vec<Xattr>,
    /// As text, see [`crate::acl`].
    pub acl_access: Option<Vec<u8>>,
    /// As text, see [`crate::acl`].
    pub acl_default: Option<Vec<u8>>,
    pub sparse: Sparse,
}

/// The records GNU tar describes sparse files with; versions 0.0, 0.1 and 1.0 differ.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sparse {
    /// Version 1: the map precedes the contents.
    pub major: u64,
    /// The real name (the header has one made up).
    pub name: Option<Vec<u8>>,
    /// Size with the holes, in bytes.
    pub real_size: Option<u64>,
    /// Offset and length by turns, of versions 0.0 and 0.1.
    pub map: Option<Vec<u64>>,
}

impl Pax {
    /// Takes the records of one extended header; what they say overrides what is there.
    ///
    /// # Errors
    /// [`TarDamage::Pax`] for a record that cannot be read.
    pub fn read(&mut self, mut records: &[u8]) -> Result<(), TarDamage> {
        // Some writers pad with zero bytes.
        while !records.is_empty() && records[0] != 0 {
            let (record, rest) = split(records)?;
            records = rest;
            let equals = record.iter().position(|&b| b == b'=');
            let equals = equals.ok_or_else(|| bad(record, "no \"=\""))?;
            let (key, value) = (&record[..equals], &record[equals + 1..]);
            self.set(key, value).map_err(|why| bad(key, why))?;
        }
        Ok(())
    }

    /// True if it says something that can hold for one member only.
    pub fn is_of_one_member(&self) -> bool {
        let names = self.path.is_some() || self.link_path.is_some();
        names || self.size.is_some() || self.sparse != Sparse::default()
    }

    /// Bytes that a copy of all this takes, roughly.
    pub fn len(&self) -> u64 {
        let names = [
            &self.path,
            &self.link_path,
            &self.user,
            &self.group,
            &self.acl_access,
            &self.acl_default,
            &self.sparse.name,
        ];
        let names: usize = names.into_iter().flatten().map(Vec::len).sum();
        let xattrs = self.xattrs.iter().map(|(name, value)| {
            // Two allocations.
            name.len() + value.len() + size_of::<Xattr>()
        });
        let map = self.sparse.map.as_ref().map_or(0, |map| map.len() * 8);
        (names + xattrs.sum::<usize>() + map) as u64
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), &'static str> {
        match key {
            b"path" => self.path = Some(some_name(value)?),
            b"linkpath" => self.link_path = Some(some_name(value)?),
            b"size" => self.size = Some(number(value)?),
            b"uid" => self.uid = Some(id(value)?),
            b"gid" => self.gid = Some(id(value)?),
            b"uname" => self.user = name(value)?,
            b"gname" => self.group = name(value)?,
            b"atime" => self.atime = Some(time(value)?),
            b"mtime" => self.mtime = Some(time(value)?),
            b"ctime" => self.ctime = Some(time(value)?),
            b"SCHILY.acl.access" => self.acl_access = name(value)?,
            b"SCHILY.acl.default" => self.acl_default = name(value)?,
            b"RHT.security.selinux" => self.add_xattr(b"security.selinux", value.to_vec())?,
            _ => {
                if let Some(xattr) = key.strip_prefix(b"SCHILY.xattr.") {
                    self.add_xattr(&unescaped(xattr), value.to_vec())?;
                } else if let Some(xattr) = key.strip_prefix(b"LIBARCHIVE.xattr.") {
                    let decoded = base64(value).ok_or("not base64")?;
                    self.add_xattr(&percent_decoded(xattr), decoded)?;
                } else if let Some(key) = key.strip_prefix(b"GNU.sparse.") {
                    self.sparse.set(key, value)?;
                }
            }
        }
        Ok(())
    }

    fn add_xattr(&mut self, name: &[u8], value: Vec<u8>) -> Result<(), &'static str> {
        if name.is_empty() || name.len() > 255 || name.contains(&0) {
            return Err("name of the attribute is empty, has a zero byte or over 255 bytes");
        }
        if value.len() > uext4_ondisk::xattr::XATTR_SIZE_MAX {
            return Err("value of the attribute is over 64 KiB");
        }
        self.xattrs.push((name.to_vec(), value));
        Ok(())
    }
}

impl Sparse {
    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), &'static str> {
        match key {
            b"major" => self.major = number(value)?,
            b"name" => self.name = Some(some_name(value)?),
            b"realsize" | b"size" => self.real_size = Some(number(value)?),
            b"map" => {
                let numbers = value.split(|&b| b == b',').filter(|n| !n.is_empty());
                let map = self.map.insert(Vec::new());
                for text in numbers {
                    push_bounded(map, decimal(text)?)?;
                }
            }
            b"offset" | b"numbytes" => {
                let map = self.map.get_or_insert_default();
                if map.len().is_multiple_of(2) != (key == b"offset") {
                    return Err("offsets and lengths do not alternate");
                }
                push_bounded(map, decimal(value)?)?;
            }
            b"numblocks" => drop(self.map.get_or_insert_default()),
            _ => {}
        }
        Ok(())
    }
}

/// Appends to a sparse map, which must not grow without end.
pub fn push_bounded(map: &mut Vec<u64>, value: u64) -> Result<(), &'static str> {
    if map.len() >= SPARSE_NUMBERS_MAX {
        return Err("more than a million pieces");
    }
    map.push(value);
    Ok(())
}

/// True if two records have the same key: in a global header GNU tar goes by the first of them,
/// others by the last.
///
/// # Errors
/// As [`Pax::read`].
pub fn repeats_a_key(mut records: &[u8]) -> Result<bool, TarDamage> {
    let mut keys = HashSet::new();
    while !records.is_empty() && records[0] != 0 {
        let (record, rest) = split(records)?;
        records = rest;
        if !keys.insert(record.split(|&b| b == b'=').next()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The first record without its length and line end, and what follows it.
fn split(records: &[u8]) -> Result<(&[u8], &[u8]), TarDamage> {
    let start = &records[..records.len().min(20)];
    let space = start.iter().position(|&b| b == b' ');
    let space = space.ok_or_else(|| bad(start, "no length"))?;
    let len = decimal(&records[..space]).map_err(|why| bad(start, why))?;
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    let record = records
        .get(space + 1..len)
        .ok_or_else(|| bad(start, "length is wrong"))?;
    match record.split_last() {
        Some((b'\n', record)) => Ok((record, &records[len..])),
        _ => Err(bad(start, "no line end where its length says")),
    }
}

fn bad(key: &[u8], why: &'static str) -> TarDamage {
    let shown = &key[..key.len().min(80)];
    TarDamage::Pax {
        key: String::from_utf8_lossy(shown).into_owned(),
        why,
    }
}

/// An empty value takes back what was said before.
fn name(value: &[u8]) -> Result<Option<Vec<u8>>, &'static str> {
    if value.contains(&0) {
        return Err("a zero byte in a name");
    }
    Ok((!value.is_empty()).then(|| value.to_vec()))
}

/// A name that must be there: POSIX deletes with an empty value what the header says, too, GNU tar
/// takes it as it is, and others go back to the header.
fn some_name(value: &[u8]) -> Result<Vec<u8>, &'static str> {
    name(value)?.ok_or("an empty value")
}

fn number(value: &[u8]) -> Result<u64, &'static str> {
    let number = decimal(value)?;
    match i64::try_from(number) {
        Ok(_) => Ok(number),
        Err(_) => Err("number out of range"),
    }
}

fn id(value: &[u8]) -> Result<u32, &'static str> {
    let number = u32::try_from(number(value)?);
    let number = number.ok().filter(|&number| number <= ID_MAX);
    number.ok_or("number out of range")
}

/// Decimal digits only.
pub fn decimal(text: &[u8]) -> Result<u64, &'static str> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return Err("not a decimal number");
    }
    text.iter()
        .try_fold(0u64, |value, b| {
            value.checked_mul(10)?.checked_add(u64::from(b - b'0'))
        })
        .ok_or("number out of range")
}

/// Seconds since 1970 with an optional sign and fraction; digits past nanoseconds are dropped, down
/// (the time is never later than what is written).
fn time(value: &[u8]) -> Result<Timestamp, &'static str> {
    if value.windows(2).any(|pair| pair == b"e-") {
        return float_time(value);
    }
    let (negative, digits) = match value.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, value),
    };
    let point = digits.iter().position(|&b| b == b'.');
    let (whole, fraction) = digits.split_at(point.unwrap_or(digits.len()));
    let fraction = fraction.get(1..).unwrap_or_default();
    let sec = i64::try_from(decimal(whole)?).map_err(|_| "number out of range")?;
    if !fraction.iter().all(u8::is_ascii_digit) {
        return Err("not a decimal fraction");
    }
    let digit = |i: usize| u32::from(fraction.get(i).map_or(0, |b| b - b'0'));
    let nsec = (0..9).fold(0, |value, i| value * 10 + digit(i));
    let beyond = fraction.iter().skip(9).any(|&b| b != b'0');
    Ok(match (negative, nsec + u32::from(negative && beyond)) {
        (false, nsec) => Timestamp { sec, nsec },
        (true, 0) => Timestamp { sec: -sec, nsec: 0 },
        (true, nsec) => Timestamp {
            sec: -sec - 1,
            nsec: 1_000_000_000 - nsec,
        },
    })
}

/// Python writes times near 1970 as `1e-09`; no writer has a positive exponent.
fn float_time(value: &[u8]) -> Result<Timestamp, &'static str> {
    let value = std::str::from_utf8(value).ok().and_then(|v| v.parse().ok());
    let value: f64 = value.ok_or("not a number")?;
    let whole = value.floor();
    let sec = whole as i64;
    let nsec = ((value - whole) * 1e9) as u32;
    match value.is_finite() && nsec < 1_000_000_000 {
        true => Ok(Timestamp { sec, nsec }),
        false => Err("number out of range"),
    }
}

/// GNU tar writes `=`, which would end the key, and `%` in names of attributes as `%3D` and `%25`.
fn unescaped(name: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&first, after)) = rest.split_first() {
        let (byte, len) = match rest {
            [b'%', b'3', b'D', ..] => (b'=', 3),
            [b'%', b'2', b'5', ..] => (b'%', 3),
            _ => (first, 1),
        };
        plain.push(byte);
        rest = &after[len - 1..];
    }
    plain
}

/// libarchive writes names with `%XX` for what is not plain.
fn percent_decoded(name: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&byte, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|h| std::str::from_utf8(h).ok());
        let code = hex.and_then(|h| u8::from_str_radix(h, 16).ok());
        match (byte, code) {
            (b'%', Some(code)) => {
                decoded.push(code);
                rest = &after[2..];
            }
            _ => {
                decoded.push(byte);
                rest = after;
            }
        }
    }
    decoded
}

/// Base64 without line ends; padding may be there or not.
fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let text = text.trim_ascii_end();
    let end = text.iter().position(|&b| b == b'=').unwrap_or(text.len());
    let mut decoded = Vec::with_capacity(end / 4 * 3 + 2);
    for group in text[..end].chunks(4) {
        if group.len() == 1 {
            return None;
        }
        let mut bits = 0u32;
        for i in 0..4 {
            let value = match group.get(i) {
                None => 0,
                Some(b @ b'A'..=b'Z') => b - b'A',
                Some(b @ b'a'..=b'z') => b - b'a' + 26,
                Some(b @ b'0'..=b'9') => b - b'0' + 52,
                Some(b'+') => 62,
                Some(b'/') => 63,
                Some(_) => return None,
            };
            bits = bits << 6 | u32::from(value);
        }
        let bytes = [(bits >> 16) as u8, (bits >> 8) as u8, bits as u8];
        decoded.extend_from_slice(&bytes[..group.len() - 1]);
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(key: &str, value: &[u8]) -> Vec<u8> {
        let body = key.len() + value.len() + 3;
        let mut len = body + 1;
        while len != body + len.to_string().len() {
            len = body + len.to_string().len();
        }
        let mut record = format!("{len} {key}=").into_bytes();
        record.extend_from_slice(value);
        record.push(b'\n');
        record
    }

    fn read(key: &str, value: &[u8]) -> Result<Pax, TarDamage> {
        let mut pax = Pax::default();
        pax.read(&record(key, value)).map(|()| pax)
    }

    #[test]
    fn times_with_fractions_before_and_after_1970() {
        for (text, sec, nsec) in [
            ("0", 0, 0),
            ("1350244992.023960108", 1_350_244_992, 23_960_108),
            ("5.1", 5, 100_000_000),
            ("5.", 5, 0),
            ("5.1234567899", 5, 123_456_789),
            ("-1.5", -2, 500_000_000),
            ("-2", -2, 0),
            ("-0.0000000001", -1, 999_999_999),
            ("-0.9999999999", -1, 0),
            ("1e-09", 0, 1),
            ("-2.5e-1", -1, 750_000_000),
        ] {
            let got = read("mtime", text.as_bytes()).unwrap().mtime;
            assert_eq!(got, Some(Timestamp { sec, nsec }), "{text}");
        }
        for text in [
            "x",
            "1.x",
            "-",
            ".5",
            "99999999999999999999",
            "1ee5",
            "1e3",
            "1e+3",
            "xe-3",
            "",
        ] {
            assert!(read("mtime", text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn values_may_have_any_bytes() {
        let value: Vec<u8> = (0..=255).collect();
        let pax = read("SCHILY.xattr.user.all", &value).unwrap();
        assert_eq!(pax.xattrs, [(b"user.all".to_vec(), value)]);
        assert_eq!(read("path", b"a=b\nc").unwrap().path.unwrap(), b"a=b\nc");
        assert!(read("path", b"a\0").is_err());
    }

    #[test]
    fn names_of_attributes_as_gnu_tar_escapes_them() {
        for (written, name) in [
            ("user.a%3Db", &b"user.a=b"[..]),
            ("user.%25%253D%", b"user.%%3D%"),
            ("user.%41", b"user.%41"),
        ] {
            let pax = read(&format!("SCHILY.xattr.{written}"), b"v").unwrap();
            assert_eq!(pax.xattrs, [(name.to_vec(), b"v".to_vec())]);
        }
    }

    #[test]
    fn attributes_of_libarchive() {
        for (text, want) in [
            ("", &b""[..]),
            ("YQ", b"a"),
            ("YWI=", b"ab"),
            ("YWJj", b"abc"),
            ("AP+/", b"\0\xFF\xBF"),
        ] {
            let pax = read("LIBARCHIVE.xattr.user.a%3db%", text.as_bytes()).unwrap();
            assert_eq!(pax.xattrs, [(b"user.a=b%".to_vec(), want.to_vec())]);
        }
        assert!(read("LIBARCHIVE.xattr.user.a", b"YWJjZ").is_err());
        assert!(read("LIBARCHIVE.xattr.user.a", b"Y*Jj").is_err());
    }

    #[test]
    fn later_records_override() {
        let mut pax = Pax::default();
        pax.read(&[record("uid", b"5"), record("uname", b"x")].concat())
            .unwrap();
        pax.read(&[record("uid", b"4294967294"), record("uname", b"")].concat())
            .unwrap();
        assert_eq!((pax.uid, pax.user), (Some(u32::MAX - 1), None));
        assert!(read("uid", b"4294967295").is_err());
        assert!(read("size", b"9223372036854775808").is_err());
    }

    #[test]
    fn empty_values_are_refused_where_readers_differ() {
        for key in [
            "path",
            "linkpath",
            "size",
            "uid",
            "gid",
            "mtime",
            "GNU.sparse.size",
        ] {
            assert!(read(key, b"").is_err(), "{key}");
        }
    }

    #[test]
    fn sparse_maps_of_both_old_versions() {
        let mut pax = Pax::default();
        for (key, value) in [("size", "10"), ("numblocks", "2")] {
            pax.read(&record(&format!("GNU.sparse.{key}"), value.as_bytes()))
                .unwrap();
        }
        for number in ["0", "1", "8", "2"].chunks(2) {
            pax.read(&record("GNU.sparse.offset", number[0].as_bytes()))
                .unwrap();
            pax.read(&record("GNU.sparse.numbytes", number[1].as_bytes()))
                .unwrap();
        }
        let other = read("GNU.sparse.map", b"0,1,8,2").unwrap();
        assert_eq!(pax.sparse.map, Some(vec![0, 1, 8, 2]));
        assert_eq!(other.sparse.map, pax.sparse.map);
        assert_eq!(pax.sparse.real_size, Some(10));
        assert!(read("GNU.sparse.numbytes", b"1").is_err());
        assert!(read("GNU.sparse.map", b"0,x").is_err());
    }

    #[test]
    fn records_that_cannot_be() {
        for text in [
            "5",
            "9999999999999999999999 a=b\n",
            "3 a",
            "1 a=b\n",
            "0 a=b\n",
            "100 a=b\n",
            "6 a=bc\n",
            "x a=b\n",
            "5 ab\n",
        ] {
            assert!(Pax::default().read(text.as_bytes()).is_err(), "{text:?}");
        }
        assert!(Pax::default().read(b"6 a=b\n\0\0\0").is_ok());
    }
}
