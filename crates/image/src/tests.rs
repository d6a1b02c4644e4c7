//! For tests: a directory with one of everything, and listings as text to compare.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use rustix::fs::{AtFlags, CWD, Mode, Timespec, Timestamps, XattrFlags};
use sha2::{Digest, Sha256};
use uext4_ondisk::acl::{Acl, AclEntry, AclTag};
use uext4_ondisk::inode::FileType;

use crate::error::Error;
use crate::progress::{Counter, Phase};
use crate::source::{Contents, Context, Listing, Source, SourceOptions, list};
use crate::tree::{EntryId, FileData};

/// True if the test may do what only root may.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Lists with default options.
pub fn listed(source: &Source) -> Result<Listing, Error> {
    listed_with(source, &SourceOptions::default())
}

/// Lists.
pub fn listed_with(source: &Source, options: &SourceOptions) -> Result<Listing, Error> {
    list(
        source,
        &Context {
            options,
            spool_dir: &std::env::temp_dir(),
            leave_out: None,
            counter: &Counter::begin(&(), Phase::Listing, None),
        },
    )
}

/// What there is to know of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub kind: FileType,
    pub mode: u16,
    pub owner: (u32, u32),
    /// Access, modification, change; nanoseconds since 1970.
    pub times: [i128; 3],
    pub size: u64,
    pub target: String,
    pub device: Option<(u32, u32)>,
    pub xattrs: Vec<(String, Vec<u8>)>,
    /// Where each piece that is no hole begins and ends.
    pub pieces: Vec<(u64, u64)>,
    /// Of the contents, the same however much of it is holes.
    pub hash: String,
    /// The least name of the same node.
    pub same_as: String,
}

/// All entries of a listing, contents read.
pub fn seen(listing: &Listing) -> BTreeMap<String, Seen> {
    let tree = &listing.tree;
    let mut contents = Contents::new(tree, &listing.store);
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
    let mut names: BTreeMap<_, String> = BTreeMap::new();
    for entry in tree.entries() {
        let path = text(&tree.path(entry));
        let least = names.entry(tree.node_id(entry)).or_insert(path.clone());
        *least = path.min(std::mem::take(least));
    }
    let mut all = BTreeMap::new();
    for entry in tree.entries() {
        let node = tree.node_of(entry);
        let (pieces, hash) = match node.file_type() {
            FileType::Regular => read(&mut contents, listing, entry),
            _ => Default::default(),
        };
        let seen = Seen {
            kind: node.file_type(),
            mode: node.mode(),
            owner: node.owner(),
            times: node.times().map(|t| t.as_nanos()),
            size: node.size(),
            target: text(tree.target(node)),
            device: node.device().map(|n| (n.major, n.minor)),
            xattrs: tree
                .xattrs(node)
                .iter()
                .map(|(n, v)| (text(n), v.clone()))
                .collect(),
            pieces,
            hash,
            same_as: names[&tree.node_id(entry)].clone(),
        };
        all.insert(text(&tree.path(entry)), seen);
    }
    all
}

/// Holes are looked at in pieces of so many bytes.
const CHUNK: u64 = 65536;

fn read(
    contents: &mut Contents<'_>,
    listing: &Listing,
    entry: EntryId,
) -> (Vec<(u64, u64)>, String) {
    let node = listing.tree.node_of(entry);
    let pieces = match listing.tree.data(node) {
        FileData::Whole { .. } => vec![(0, node.size())],
        FileData::Sparse(p) => p.iter().map(|p| (p.offset, p.offset + p.len)).collect(),
    };
    let mut content = contents.open(entry).unwrap();
    let mut hash = Sha256::new();
    let mut chunk = vec![0; CHUNK as usize];
    let mut next = 0;
    for &(from, to) in &pieces {
        let mut at = next.max(from / CHUNK * CHUNK);
        while at < to {
            let len = (node.size() - at).min(CHUNK) as usize;
            content.read_exact_at(at, &mut chunk[..len]).unwrap();
            if chunk[..len].iter().any(|&b| b != 0) {
                hash.update(format!("{at} "));
                hash.update(&chunk[..len]);
            }
            at += CHUNK;
        }
        next = at;
    }
    let hash = hash.finalize().iter().map(|b| format!("{b:02x}")).collect();
    (pieces, hash)
}

/// Sets the time of modification, and of access to one second later.
pub fn set_time(path: &Path, tv_sec: i64, tv_nsec: i64) {
    let times = Timestamps {
        last_access: Timespec {
            tv_sec: tv_sec + 1,
            tv_nsec,
        },
        last_modification: Timespec { tv_sec, tv_nsec },
    };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// An ACL with a named user, in wire form.
pub fn acl(user: u32, perm: u16) -> Vec<u8> {
    let entry = |tag, perm| AclEntry { tag, perm };
    let entries = vec![
        entry(AclTag::UserObj, 6),
        entry(AclTag::User(user), perm),
        entry(AclTag::GroupObj, 4),
        entry(AclTag::Mask, 7),
        entry(AclTag::Other, 0),
    ];
    Acl { entries }.to_wire()
}

fn set_xattr(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::lsetxattr(path, name, value, XattrFlags::empty()).unwrap();
}

/// Makes one of everything below `dir`; what only root can make, only for root.
pub fn populate(dir: &Path) {
    let at = |name: &str| dir.join(name);
    fs::create_dir_all(at("sub/deep/er")).unwrap();
    fs::create_dir(at("empty-dir")).unwrap();
    fs::write(at("empty"), "").unwrap();
    fs::write(at("hello"), "hello, world\n").unwrap();
    fs::write(at("sub/block"), [7; 4096]).unwrap();
    fs::write(at("sub/deep/big"), pattern(300_001)).unwrap();
    fs::write(at(&"n".repeat(255)), "long name").unwrap();
    let long = format!("sub/{}/{}", "d".repeat(120), "e".repeat(130));
    fs::create_dir_all(at(&long)).unwrap();
    fs::write(at(&long).join("f".repeat(100)), "long path").unwrap();
    fs::write(at("zoë-日本"), "utf-8").unwrap();
    fs::write(dir.join(OsStr::from_bytes(b"bytes-\xFF\xFE\n")), "bytes").unwrap();
    symlink("hello", at("link")).unwrap();
    symlink("x/".repeat(100), at("long-link")).unwrap();
    fs::hard_link(at("hello"), at("sub/hello-again")).unwrap();
    fs::hard_link(at("hello"), at("zz-hello")).unwrap();
    let sparse = File::create(at("sparse")).unwrap();
    sparse.write_all_at(&pattern(5000), 1 << 20).unwrap();
    sparse.write_all_at(&pattern(4096), 3 << 20).unwrap();
    sparse.set_len(50 << 20).unwrap();
    File::create(at("all-hole"))
        .unwrap()
        .set_len(1 << 33)
        .unwrap();
    let fifo = Mode::from_raw_mode(0o640);
    rustix::fs::mknodat(CWD, at("fifo"), rustix::fs::FileType::Fifo, fifo, 0).unwrap();
    set_xattr(&at("hello"), "user.small", b"value");
    set_xattr(&at("hello"), "user.binary", &[0, 1, b'\n', b'=', 255]);
    set_xattr(&at("sub"), "user.dir", &pattern(700));
    set_xattr(&at("sub/block"), "system.posix_acl_access", &acl(1234, 5));
    set_xattr(&at("sub"), "system.posix_acl_default", &acl(0, 7));
    for (name, mode) in [("empty", 0o000), ("hello", 0o4755), ("sub/deep", 0o1777)] {
        fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    if is_root() {
        set_xattr(&at("link"), "trusted.of-a-link", b"t");
        set_xattr(&at("hello"), "security.capability", &CAPABILITY);
        let chown = |name, uid| std::os::unix::fs::lchown(at(name), Some(uid), Some(uid + 1));
        chown("sub/deep/big", 100_000).unwrap();
        chown("link", 4_000_000_000).unwrap();
        let device = |name, kind, major, minor| {
            let number = rustix::fs::makedev(major, minor);
            rustix::fs::mknodat(CWD, at(name), kind, fifo, number).unwrap();
        };
        device("char", rustix::fs::FileType::CharacterDevice, 5, 1);
        device("block", rustix::fs::FileType::BlockDevice, 259, 300_000);
        fs::write(at("owned-0000"), "secret").unwrap();
        chown("owned-0000", 70_000).unwrap();
        fs::set_permissions(at("owned-0000"), fs::Permissions::from_mode(0)).unwrap();
    }
    set_time(&at("sub/block"), -315_619_200, 0);
    set_time(&at("hello"), 2_208_988_800, 123_456_789);
    set_time(&at("link"), 1_000_000_000, 987_654_321);
    set_time(&at("empty"), 4_500_000_000, 5);
    set_time(&at("sub/deep"), 0, 1);
}

/// cap_net_raw+ep, as `setcap` writes it.
const CAPABILITY: [u8; 20] = [
    1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];

/// Bytes that repeat only after long.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i % 251) as u8 ^ (i / 251) as u8)
        .collect()
}

/// Runs a command in `dir`; what it prints is shown only if it fails.
pub fn run(dir: &Path, command: &[&str]) {
    let output = Command::new(command[0])
        .args(&command[1..])
        .current_dir(dir)
        .output();
    let output = output.unwrap_or_else(|e| panic!("{}: {e}", command[0]));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
}
