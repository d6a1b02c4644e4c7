//! Archives made by hand, damaged ones, and noise.

mod differing;
mod writers;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use uext4_ondisk::inode::FileType;

use super::*;
use crate::source::{Excludes, Source, SourceOptions};
use crate::tests::{Seen, acl, listed, listed_with, pattern, seen};

/// An archive made by hand.
#[derive(Default, Clone)]
struct Hand(Vec<u8>);

impl Hand {
    fn new() -> Self {
        Self::default()
    }

    fn block(kind: u8, name: &[u8], size: u64, change: impl Fn(&mut [u8])) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        block[..name.len()].copy_from_slice(name);
        block[100..108].copy_from_slice(b"0000644\0");
        block[108..116].copy_from_slice(b"0001750\0");
        block[116..124].copy_from_slice(b"0001751\0");
        block[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
        block[136..148].copy_from_slice(b"00000000144\0");
        block[156] = kind;
        block[257..265].copy_from_slice(b"ustar\x0000");
        change(&mut block);
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|&b| u32::from(b)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        block
    }

    fn member(self, kind: u8, name: &str, data: &[u8]) -> Self {
        self.changed(kind, name, data.len() as u64, data, |_| {})
    }

    fn changed(
        mut self,
        kind: u8,
        name: &str,
        size: u64,
        data: &[u8],
        change: impl Fn(&mut [u8]),
    ) -> Self {
        let block = Self::block(kind, name.as_bytes(), size, change);
        self.0.extend_from_slice(&block);
        self.0.extend_from_slice(data);
        self.0.resize(self.0.len().next_multiple_of(BLOCK), 0);
        self
    }

    fn pax(self, records: &[(&str, &[u8])]) -> Self {
        self.member(b'x', "records", &records_of(records))
    }

    fn end(mut self) -> Self {
        self.0.resize(self.0.len() + 2 * BLOCK, 0);
        self
    }

    fn list(&self) -> Result<Listing, Error> {
        self.list_with(&SourceOptions::default())
    }

    fn list_with(&self, options: &SourceOptions) -> Result<Listing, Error> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, &self.0).unwrap();
        listed_with(&Source::TarFile(file.path().to_path_buf()), options)
    }

    fn seen(&self) -> BTreeMap<String, Seen> {
        seen(&self.list().unwrap())
    }

    fn error(&self) -> String {
        self.list().unwrap_err().to_string()
    }
}

fn records_of(records: &[(&str, &[u8])]) -> Vec<u8> {
    let mut all = Vec::new();
    for (key, value) in records {
        let rest = key.len() + value.len() + 3;
        let len = (rest..).find(|len| len - len.to_string().len() == rest);
        all.extend_from_slice(format!("{} {key}=", len.unwrap()).as_bytes());
        all.extend_from_slice(value);
        all.push(b'\n');
    }
    all
}

#[test]
fn prefix_and_long_names() {
    let with_prefix = |block: &mut [u8]| block[345..350].copy_from_slice(b"a/b/c");
    let gnu = |block: &mut [u8]| {
        block[257..265].copy_from_slice(b"ustar  \0");
        block[345..350].copy_from_slice(b"12345");
    };
    let long = format!("{}/x", "l".repeat(200));
    let hand = Hand::new()
        .changed(b'0', "d", 0, b"", with_prefix)
        .changed(b'0', "gnu", 0, b"", gnu)
        .member(b'L', "././@LongLink", format!("{long}\0").as_bytes())
        .member(b'0', "cut", b"")
        .member(b'K', "././@LongLink", &[b't'; 300])
        .changed(b'2', "link", 0, b"", |block| block[157] = b's')
        .end();
    let seen = hand.seen();
    assert!(seen.contains_key("a/b/c/d") && seen.contains_key("gnu") && seen.contains_key(&long));
    assert_eq!(seen["link"].target, "t".repeat(300));
    assert_eq!(seen["gnu"].owner, (1000, 1001));
}

#[test]
fn global_records_hold_until_overridden() {
    let hand = Hand::new()
        .member(
            b'g',
            "global",
            &records_of(&[("uid", b"7"), ("mtime", b"5.25")]),
        )
        .member(b'0', "a", b"")
        .pax(&[("uid", b"8"), ("gid", b"9")])
        .member(b'0', "b", b"")
        .member(b'0', "c", b"")
        .end();
    let seen = hand.seen();
    assert_eq!(seen["a"].owner, (7, 1001));
    assert_eq!(seen["b"].owner, (8, 9));
    assert_eq!(seen["c"].owner, (7, 1001));
    assert_eq!(seen["c"].times, [5_250_000_000; 3]);
}

#[test]
fn attributes_of_global_records_are_repeated_within_a_limit() {
    let large = vec![b'v'; 15_000];
    let global = records_of(&[("SCHILY.xattr.user.g", &large)]);
    let members = |count: usize, own: &dyn Fn(usize) -> String| {
        let mut hand = Hand::new().member(b'g', "global", &global);
        for number in 0..count {
            let own = own(number);
            hand = hand.pax(&[("SCHILY.xattr.user.i", own.as_bytes())]);
            hand = hand.member(b'0', &format!("f{number}"), b"");
        }
        hand.end()
    };
    // Equal sets are one, however many members have it.
    assert!(members(6_000, &|_| "same".to_owned()).list().is_ok());
    let refused = members(6_000, &|number| number.to_string()).list();
    let refused = refused.unwrap_err().to_string();
    assert!(refused.starts_with("f44"), "{refused}");
    assert!(refused.contains("global extended attributes"), "{refused}");
}

#[test]
fn directories_without_an_entry_are_limited() {
    let mut hand = Hand::new();
    for number in 0..70 {
        let path = [format!("{number}/").as_bytes(), &b"a/".repeat(16_000), b"f"].concat();
        hand = hand.pax(&[("path", &path)]).member(b'0', "f", b"");
    }
    let refused = hand.end().list().unwrap_err().to_string();
    assert!(refused.starts_with("65/a/"), "{}", &refused[..20]);
    assert!(refused.contains("1048576 directories have no entry"));
    let path = [&b"a/".repeat(4_000_000)[..], b"f"].concat();
    let hand = Hand::new()
        .pax(&[("path", &path)])
        .member(b'0', "f", b"")
        .end();
    let refused = hand.list().unwrap_err().to_string();
    assert!(
        refused.contains("longer than 65536 bytes"),
        "{}",
        refused.len()
    );
}

#[test]
fn global_records_are_few() {
    let records = records_of(&[("SCHILY.xattr.user.a", &[b'v'; 20_000])]);
    let hand = Hand::new().member(b'g', "global", &records).end();
    assert!(hand.error().contains("bytes (at most 16384)"));
}

#[test]
fn all_kinds() {
    let device = |block: &mut [u8]| {
        block[329..337].copy_from_slice(b"0000010\0");
        block[337..345].copy_from_slice(b"0000377\0");
    };
    let hand = Hand::new()
        .changed(b'3', "c", 77, b"", device)
        .changed(b'4', "b", 0, b"", device)
        .changed(b'5', "d/", 77, b"", |_| {})
        .changed(b'6', "f", 0, b"", |_| {})
        .changed(b'2', "l", 0, b"", |block| block[157] = b'c')
        .member(b'7', "contiguous", b"xyz")
        .member(0, "v7", b"123")
        .member(0, "v7-dir/", b"")
        .member(b'D', "dumped/", b"Yfile\0")
        .member(b'V', "label", b"")
        .member(b'Z', "unknown", b"u")
        .end();
    let listing = hand.list().unwrap();
    assert_eq!(listing.warnings.shown.len(), 1);
    let seen = seen(&listing);
    for (name, kind) in [
        ("c", FileType::CharDevice),
        ("b", FileType::BlockDevice),
        ("d", FileType::Directory),
        ("f", FileType::Fifo),
        ("l", FileType::Symlink),
        ("contiguous", FileType::Regular),
        ("v7", FileType::Regular),
        ("v7-dir", FileType::Directory),
        ("dumped", FileType::Directory),
        ("unknown", FileType::Regular),
    ] {
        assert_eq!(seen[name].kind, kind, "{name}");
    }
    assert_eq!(seen["l"].mode, 0o777);
    assert_eq!((seen["c"].device, seen["v7"].size), (Some((8, 255)), 3));
    assert_eq!(seen.len(), 11);
}

#[test]
fn hard_links_with_and_without_contents() {
    let to_a = |block: &mut [u8]| block[157] = b'a';
    let hand = Hand::new()
        .member(b'0', "a", &pattern(700))
        .changed(b'1', "size-only", 700, b"", to_a)
        .changed(b'1', "with-data", 700, &pattern(700), to_a)
        .changed(b'1', "size-at-end", 700, b"", to_a)
        .end();
    let seen = hand.seen();
    assert_eq!(seen.len(), 5);
    assert!(seen.values().skip(1).all(|one| one.same_as == "a"));
    let dangling = Hand::new().changed(b'1', "x", 0, b"", to_a).end();
    assert!(
        dangling
            .error()
            .contains("x: hard link to a: no such entry")
    );
}

#[test]
fn attributes_and_access_lists() {
    let text = b"user::rw-,user:77:r-x,group::r--,mask::rwx,other::---";
    let minimal = b"user::rwx,group::r-x,other::--x";
    let hand = Hand::new()
        .pax(&[
            ("SCHILY.acl.access", text),
            ("SCHILY.xattr.user.a", b"1"),
            ("SCHILY.xattr.system.data", b"inline"),
            ("SCHILY.xattr.com.apple.quarantine", b"x"),
            ("SCHILY.acl.default", b"default on a file,"),
        ])
        .member(b'0', "file", b"")
        .pax(&[("SCHILY.acl.access", minimal), ("SCHILY.acl.default", text)])
        .member(b'5', "dir", b"")
        .pax(&[
            ("SCHILY.xattr.system.posix_acl_access", &acl(5, 1)),
            ("SCHILY.acl.access", text),
        ])
        .member(b'0', "both", b"")
        .pax(&[("SCHILY.xattr.system.posix_acl_access", b"nonsense")])
        .member(b'0', "nonsense", b"")
        .pax(&[
            ("SCHILY.xattr.user.a", b"1"),
            ("SCHILY.xattr.security.b", b"2"),
        ])
        .member(b'6', "fifo", b"")
        .end();
    let listing = hand.list().unwrap();
    assert_eq!(listing.warnings.shown.len(), 5, "{:?}", listing.warnings);
    let seen = seen(&listing);
    let access = "system.posix_acl_access".to_owned();
    let file = &seen["file"];
    assert_eq!(file.xattrs[0], (access.clone(), acl(77, 5)));
    assert_eq!(file.xattrs[1], ("user.a".into(), b"1".to_vec()));
    assert_eq!((file.xattrs.len(), file.mode), (2, 0o670));
    assert_eq!(seen["dir"].mode, 0o751);
    assert_eq!(seen["dir"].xattrs.len(), 1);
    assert_eq!(seen["dir"].xattrs[0].0, "system.posix_acl_default");
    assert_eq!(seen["both"].xattrs, [(access, acl(5, 1))]);
    assert!(seen["nonsense"].xattrs.is_empty());
    assert_eq!(seen["fifo"].xattrs, [("security.b".into(), b"2".to_vec())]);
}

#[test]
fn owners_from_options_and_names() {
    let named = |block: &mut [u8]| {
        block[265..269].copy_from_slice(b"root");
        block[297..304].copy_from_slice(b"no-such");
    };
    let hand = Hand::new().changed(b'0', "a", 0, b"", named).end();
    let owner = |options: SourceOptions| seen(&hand.list_with(&options).unwrap())["a"].owner;
    let default = SourceOptions::default;
    assert_eq!(owner(default()), (1000, 1001));
    let owner_names = true;
    assert_eq!(
        owner(SourceOptions {
            owner_names,
            ..default()
        }),
        (0, 1001)
    );
    let gid = Some(5);
    assert_eq!(
        owner(SourceOptions {
            gid,
            owner_names,
            ..default()
        }),
        (0, 5)
    );
}

#[test]
fn excluded_members_are_passed_over() {
    let options = SourceOptions {
        excludes: Excludes::new(["*.o", "/a/b"]).unwrap(),
        ..SourceOptions::default()
    };
    let hand = Hand::new()
        .member(b'0', "x.o", &pattern(1000))
        .member(b'0', "./a/b/c", b"1")
        .member(b'0', "a/c", b"2")
        .end();
    let seen = seen(&hand.list_with(&options).unwrap());
    assert_eq!(seen.keys().collect::<Vec<_>>(), [".", "a", "a/c"]);
    let linked = Hand::new()
        .member(b'0', "x.o", b"1")
        .changed(b'1', "y", 0, b"", |block| {
            block[157..160].copy_from_slice(b"x.o")
        })
        .end();
    let error = linked.list_with(&options).unwrap_err().to_string();
    assert!(
        error.contains("y: hard link to x.o: it is excluded"),
        "{error}"
    );
}

#[test]
fn ends_of_archives() {
    let whole = Hand::new().member(b'0', "a", b"x").end();
    let mut garbage = whole.clone();
    garbage.0.extend_from_slice(b"garbage after the end");
    assert_eq!(garbage.seen().len(), 2);
    let mut one_zero = whole.clone();
    one_zero.0.truncate(3 * BLOCK);
    assert_eq!(one_zero.seen().len(), 2);
    let mut lone = one_zero.clone();
    lone.0
        .extend_from_slice(&Hand::new().member(b'0', "b", b"").0);
    let listing = lone.list().unwrap();
    assert_eq!((listing.tree.len(), listing.warnings.shown.len()), (2, 1));
    assert_eq!(Hand::new().end().seen().len(), 1);
    assert!(Hand::new().error().contains("not a tar archive (empty"));
    for (bytes, hint) in [
        (&b"BZh91"[..], "bzip2"),
        (b"PK\x03\x04", "zip"),
        (&[9; 600], "not a tar"),
    ] {
        let mut text = bytes.to_vec();
        text.resize(1000, 1);
        assert!(Hand(text).error().contains(hint));
    }
}

#[test]
fn damaged_archives_name_place_and_reason() {
    let size = |text: &'static [u8]| move |block: &mut [u8]| block[124..136].copy_from_slice(text);
    let mut broken = Hand::new()
        .member(b'0', "a", b"")
        .member(b'0', "b", b"")
        .end();
    broken.0[BLOCK + 3] = 1;
    let huge = Hand::new().changed(
        b'0',
        "a",
        0,
        b"",
        size(b"\x80\0\0\0\x7F\xFF\xFF\xFF\xFF\xFF\xFF\xFF"),
    );
    let map = |text: &[u8]| {
        let mut text = text.to_vec();
        text.resize(BLOCK, 0);
        Hand::new()
            .pax(&[("GNU.sparse.major", b"1"), ("GNU.sparse.realsize", b"10")])
            .member(b'0', "s", &text)
            .end()
    };
    for (hand, part) in [
        (broken, "byte 512: header checksum"),
        (
            Hand::new().member(b'0', "a", b"x"),
            "byte 1024: archive is cut short: no end",
        ),
        (huge, "too many bytes of contents: more than 17592186044416"),
        (
            Hand::new()
                .member(b'0', "a", b"")
                .changed(b'0', "a", 0, b"", size(b"99999999999\0")),
            "byte 512: size in the header",
        ),
        (
            Hand::new().changed(b'L', "a", 0, b"", size(b"77777777777\0")),
            "long name of 8589934591 bytes (at most 65536)",
        ),
        (
            Hand::new().changed(b'x', "a", 0, b"", size(b"77777777777\0")),
            "extended header of",
        ),
        (
            Hand::new().member(b'x', "a", b"9 a=b\n"),
            "byte 0: pax record",
        ),
        (
            Hand::new().member(b'0', "a/../../b", b""),
            "\"..\" in the path",
        ),
        (Hand::new().member(b'M', "a", b""), "several volumes"),
        (
            Hand::new().member(b'2', "a", b""),
            "a: the link's target is empty",
        ),
        (map(b"99999999\n"), "more than a million"),
        (map(b"x\n"), "not a decimal"),
        (map(b"1\n0\n"), "not a decimal"),
        (map(&[b'1'; 500]), "out of range"),
        (map(&b"999\n".repeat(BLOCK / 4)), "longer than the member"),
    ] {
        let error = hand.error();
        assert!(error.contains(part), "{error:?} does not say {part:?}");
    }
}

#[test]
fn an_archive_cut_anywhere_is_an_error() {
    let whole = Hand::new()
        .pax(&[("path", b"a/long/path"), ("SCHILY.xattr.user.a", b"1")])
        .member(b'0', "a", &pattern(1300))
        .member(b'L', "././@LongLink", b"some/name\0")
        .member(b'0', "b", b"x")
        .end();
    let ends = whole.0.len() - BLOCK;
    for len in (0..ends)
        .step_by(7)
        .chain(whole.0.len() - 2 * BLOCK - 3..ends)
    {
        let cut = Hand(whole.0[..len].to_vec());
        assert!(cut.list().is_err(), "cut after {len} bytes");
    }
    assert!(whole.list().is_ok());
}

#[test]
fn a_pipe_is_as_good_as_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let hand = Hand::new().member(b'0', "a", &pattern(3_000_000)).end();
    let (to, bytes) = (fifo.clone(), hand.0.clone());
    let writer = std::thread::spawn(move || std::fs::write(to, bytes));
    let got = seen(&listed(&Source::TarFile(fifo)).unwrap());
    writer.join().unwrap().unwrap();
    assert_eq!(got, hand.seen());
}

fn some_archive() -> Vec<u8> {
    let to_a = |block: &mut [u8]| block[157] = b'a';
    Hand::new()
        .pax(&[
            ("path", b"a"),
            ("SCHILY.xattr.user.a", b"1"),
            ("mtime", b"1.5"),
        ])
        .member(b'0', "x", &pattern(600))
        .changed(b'1', "b", 0, b"", to_a)
        .pax(&[("GNU.sparse.major", b"1"), ("GNU.sparse.realsize", b"8292")])
        .member(b'0', "s", &{
            let mut data = b"2\n0\n512\n8192\n100\n".to_vec();
            data.resize(512 + 612, 0);
            data
        })
        .changed(b'S', "old", 5, b"12345", |block| {
            block[386..398].copy_from_slice(b"00000000100\0");
            block[398..410].copy_from_slice(b"00000000005\0");
            block[483..495].copy_from_slice(b"00000000105\0");
        })
        .member(b'L', "l", b"long/name\0")
        .member(b'5', "d", b"")
        .end()
        .0
}

#[test]
fn sparse_members_by_hand() {
    let seen = Hand(some_archive()).seen();
    assert_eq!(seen["s"].pieces, [(0, 512), (8192, 8292)]);
    assert_eq!(
        (seen["old"].pieces.as_slice(), seen["old"].size),
        (&[(64, 69)][..], 69)
    );
}

fn survives(bytes: Vec<u8>) {
    if let Ok(listing) = Hand(bytes).list() {
        for entry in listing.tree.entries() {
            listing.tree.path(entry);
        }
    }
}

proptest! {
    #[test]
    fn noise_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..3000)) {
        survives(bytes);
    }

    #[test]
    fn changed_archives_never_panic(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        fix in any::<bool>(),
    ) {
        let mut bytes = some_archive();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
            let block = at / BLOCK * BLOCK..at / BLOCK * BLOCK + BLOCK;
            if fix && bytes[block.clone()][257..262] == *b"ustar" {
                let block = &mut bytes[block];
                block[148..156].fill(b' ');
                let sum: u32 = block.iter().map(|&b| u32::from(b)).sum();
                block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
            }
        }
        survives(bytes);
    }

    #[test]
    fn records_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Pax::default().read(&bytes);
    }
}

#[test]
fn missing_archives_are_named() {
    let error = listed(&Source::TarFile(PathBuf::from("/no/such.tar"))).unwrap_err();
    assert!(error.to_string().contains("/no/such.tar: cannot open"));
    assert_eq!(Source::from_argument(Path::new("-")), Source::Stdin);
}
