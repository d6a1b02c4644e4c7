//! Images with fast commits of our own making, so that no other writer's rules must be obeyed.

use uext4::{FileType, Image, Ino};

use crate::left::words;
pub use crate::left::{Left, Record};

const ADD: u16 = 1;
const DEL: u16 = 2;
const CREAT: u16 = 3;
const LINK: u16 = 4;
const UNLINK: u16 = 5;
const INODE: u16 = 6;

pub fn add(ino: Ino, lblk: u32, len: u16, pblk: u64) -> Record {
    let mut value = words(&[ino.0, lblk]);
    value.extend(len.to_le_bytes());
    value.extend(((pblk >> 32) as u16).to_le_bytes());
    value.extend((pblk as u32).to_le_bytes());
    (ADD, value)
}

pub fn del(ino: Ino, lblk: u32, len: u32) -> Record {
    (DEL, words(&[ino.0, lblk, len]))
}

fn dentry(tag: u16, parent: Ino, ino: Ino, name: &[u8]) -> Record {
    (tag, [&words(&[parent.0, ino.0])[..], name].concat())
}

pub fn creat(parent: Ino, ino: Ino, name: &[u8]) -> Record {
    dentry(CREAT, parent, ino, name)
}

pub fn link(parent: Ino, ino: Ino, name: &[u8]) -> Record {
    dentry(LINK, parent, ino, name)
}

pub fn unlink(parent: Ino, ino: Ino, name: &[u8]) -> Record {
    dentry(UNLINK, parent, ino, name)
}

/// An inode as an INODE record has it.
#[derive(Clone)]
pub struct Raw(pub Vec<u8>);

impl Raw {
    /// A new one.
    pub fn new(kind: FileType, size: u32, generation: u32) -> Self {
        let mut raw = Self(vec![0; 160]);
        raw.put16(0, kind.mode_bits() | 0o644);
        raw.put32(4, size);
        raw.put16(26, 1);
        raw.put32(32, 0x8_0000);
        raw.put32(100, generation);
        raw.put16(128, 32);
        raw
    }

    /// As it is in an image.
    pub fn of(fs: &Image, ino: Ino) -> Self {
        Self(fs.inode_bytes(ino).unwrap()[..160].to_vec())
    }

    pub fn put16(&mut self, at: usize, value: u16) {
        self.0[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }

    pub fn put32(&mut self, at: usize, value: u32) {
        self.0[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    pub fn record(&self, ino: Ino) -> Record {
        (INODE, [&words(&[ino.0])[..], &self.0].concat())
    }
}

/// Fast commits that do one of everything.
pub fn one_of_everything(left: &Left) -> Vec<Record> {
    let (root, d, e) = (Ino::ROOT, left.ino("d"), left.ino("e"));
    let f: Vec<Ino> = (0..7).map(|i| left.ino(&format!("d/f{i}"))).collect();
    let (free, new) = (left.free_blocks(20), left.free_inodes().0);
    let new = |i: u32| Ino(new + i);
    let block = left.block_len() as u32;
    let fs = left.fs();
    let mut longer = Raw::of(&fs, f[0]);
    longer.put32(4, 8 * block);
    let mut shorter = Raw::of(&fs, f[1]);
    shorter.put32(4, block + 7);
    let mut linked = Raw::of(&fs, f[2]);
    linked.put16(26, 2);
    let mut twice = Raw::of(&fs, f[3]);
    twice.put16(26, 2);
    let file = Raw::new(FileType::Regular, 2 * block, 71);
    let empty = Raw::new(FileType::Regular, 0, 72);
    let again = Raw::new(FileType::Regular, block, 74);
    let dir = Raw::new(FileType::Directory, block, 73);
    let mut records = vec![
        // Longer, shorter, elsewhere.
        add(f[0], 3, 5, free),
        longer.record(f[0]),
        del(f[1], 2, u32::MAX / 2),
        shorter.record(f[1]),
        del(f[5], 0, 2),
        add(f[5], 1, 1, free + 6),
        // Another name, another directory, over another file, none.
        link(e, f[2], b"linked"),
        linked.record(f[2]),
        link(root, f[3], b"moved"),
        unlink(d, f[3], b"f3"),
        unlink(d, f[4], b"f4"),
        unlink(d, f[6], b"f6"),
        again.record(f[4]),
        add(f[4], 0, 1, free + 16),
        creat(e, f[4], b"its number again"),
        link(d, f[3], b"f4"),
        twice.record(f[3]),
        // New ones: a file, a file in a directory, one without a name, one that is gone again.
        file.record(new(0)),
        add(new(0), 0, 2, free + 8),
        creat(root, new(0), b"new"),
        dir.record(new(1)),
        creat(d, new(1), b"new dir"),
        empty.record(new(2)),
        creat(new(1), new(2), b"inside"),
        // Unwritten: 32,768 more.
        add(new(3), 1, 0x8000 + 3, free + 12),
        file.record(new(3)),
        link(e, new(3), b"was nameless"),
        empty.record(new(4)),
        creat(e, new(4), b"short lived"),
        unlink(e, new(4), b"short lived"),
    ];
    for i in 0..40u8 {
        let ino = new(5 + u32::from(i) % 3);
        if i < 3 {
            let mut many = empty.clone();
            many.put16(26, if i == 0 { 15 } else { 14 });
            records.push(many.record(ino));
            records.push(creat(e, ino, &vec![b'n'; 200 + usize::from(i)]));
        }
        let name = [&[b'x'; 150][..], format!("{i}").as_bytes()].concat();
        records.push(link(new(1), ino, &name));
    }
    records
}
