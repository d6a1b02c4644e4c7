//! Images with fast commits of our own making, so that nobody's rules need be kept.

use std::ops::Range;
use std::sync::Arc;

use uext4::{Creation, FileType, Filesystem, FollowLast, GroupNr, Ino, NewInode};
use uext4_blockdev::{BlockDevice, MemoryDevice};
use uext4_jbd2::{LogRun, recover};
use uext4_ondisk::checksum::crc32c;
use uext4_ondisk::journal::JournalIncompat;
use uext4_ondisk::journal::JournalSuperblock;
use uext4_ondisk::{BlockSize, Pblk};
use zerocopy::FromBytes;

use super::reader;
use crate::power_cut::log::{add_features, places};
use crate::writing::device::{made, mount};

const ADD: u16 = 1;
const DEL: u16 = 2;
const CREAT: u16 = 3;
const LINK: u16 = 4;
const UNLINK: u16 = 5;
const INODE: u16 = 6;
const PAD: u16 = 7;
const TAIL: u16 = 8;
const HEAD: u16 = 9;
const HEADER: usize = 4;
/// What a TAIL has before its padding.
const TAIL_LEN: usize = 8;

/// A record's tag and value.
pub type Record = (u16, Vec<u8>);

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

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
    pub fn of(fs: &Filesystem, ino: Ino) -> Self {
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

/// A file system that was left in the middle of its work, and room for fast commits.
pub struct Left {
    pub image: MemoryDevice,
    /// Sequence that fast commits must carry.
    tid: u32,
    block_len: usize,
    /// The blocks of the area.
    area: Vec<Range<u64>>,
}

/// A user's.
pub const HOW: Creation = Creation {
    mode: 0o755,
    umask: 0,
    uid: 1000,
    gid: 1000,
};

impl Left {
    /// With `work` done on what mke2fs makes, synced but not closed.
    pub fn new(flags: &str, kib: u64, work: impl FnOnce(&Filesystem)) -> Self {
        let device = with_area(flags, kib);
        let fs = mount(Arc::clone(&device) as _);
        work(&fs);
        fs.sync().unwrap();
        let image = device.snapshot();
        drop(fs);
        Self::of(image)
    }

    /// The usual: `/d/f0` to `/d/f6` of three blocks each, `/d/empty`, `/e`.
    pub fn usual(flags: &str) -> Self {
        Self::new(flags, 16_384, |fs| {
            let root = fs.root().unwrap();
            let dir = root.create(b"d", NewInode::Directory, &HOW).unwrap();
            root.create(b"e", NewInode::Directory, &HOW).unwrap();
            dir.create(b"empty", NewInode::File, &HOW).unwrap();
            let len = 3 * fs.geometry().block_size.len();
            for i in 0..7u8 {
                let name = format!("f{i}");
                let file = dir.create(name.as_bytes(), NewInode::File, &HOW).unwrap();
                file.write(0, &vec![b'0' + i; len]).unwrap();
            }
        })
    }

    /// A file with many names, and a log with no more than `spare` blocks behind its end.
    pub fn with_full_log(flags: &str, spare: u32) -> Self {
        let device = with_area(flags, 16_384);
        let (size, runs, blocks) = journal(&device);
        let fs = mount(Arc::clone(&device) as _);
        let root = fs.root().unwrap();
        let file = root.create(b"file", NewInode::File, &HOW).unwrap();
        for i in 0u32.. {
            file.write(0, &i.to_le_bytes()).unwrap();
            file.link(&root, format!("name {i}").as_bytes()).unwrap();
            fs.sync().unwrap();
            let found = recover(&*device, size, blocks, &runs).unwrap();
            let ring = found.superblock.log_end() - found.superblock.s_first.get();
            if ring - found.log_blocks <= spare {
                return Self::of(device.snapshot());
            }
        }
        unreachable!("the log is finite")
    }

    /// An image as it was left.
    fn of(image: MemoryDevice) -> Self {
        let (size, runs, blocks) = journal(&image);
        let recovery = recover(&image, size, blocks, &runs).unwrap();
        let place = |block: &Pblk| {
            let start = block.0 << size.log2();
            start..start + size.len() as u64
        };
        Self {
            tid: recovery.next_sequence,
            block_len: size.len(),
            area: recovery.fast_commit.iter().map(place).collect(),
            image,
        }
    }

    pub fn fs(&self) -> Filesystem {
        reader(&self.image)
    }

    pub fn ino(&self, path: &str) -> Ino {
        let inode = self.fs().resolve(path.as_bytes(), FollowLast::No);
        inode.unwrap().ino
    }

    /// Numbers of blocks that are free, all together.
    pub fn free_blocks(&self, count: u64) -> u64 {
        let fs = self.fs();
        let bitmap = fs.block_bitmap(GroupNr(0)).unwrap();
        let first = u64::from(fs.geometry().first_data_block);
        let is_free = |bit: u64| bitmap[bit as usize / 8] >> (bit % 8) & 1 == 0;
        let bits = bitmap.len() as u64 * 8 - count;
        let start = (0..bits).rfind(|&at| (at..at + count).all(is_free));
        first + start.unwrap()
    }

    /// Numbers of inodes that are free.
    pub fn free_inodes(&self) -> Ino {
        let bitmap = self.fs().inode_bitmap(GroupNr(0)).unwrap();
        let is_free = |bit: u32| bitmap[bit as usize / 8] >> (bit % 8) & 1 == 0;
        Ino(1 + (20..).find(|&bit| (bit..bit + 20).all(is_free)).unwrap())
    }

    /// The image with one fast commit of these records.
    pub fn with(&self, records: &[Record]) -> MemoryDevice {
        let mut blocks: Vec<Vec<u8>> = Vec::new();
        let mut crc = 0;
        let head = (HEAD, words(&[0, self.tid]));
        let mut block = Vec::new();
        for (tag, value) in [head].iter().chain(records) {
            if block.len() + HEADER + value.len() > self.block_len - HEADER {
                crc = pad(&mut block, self.block_len, crc);
                blocks.push(std::mem::take(&mut block));
            }
            put(&mut block, *tag, value);
        }
        if block.len() + HEADER + TAIL_LEN > self.block_len {
            crc = pad(&mut block, self.block_len, crc);
            blocks.push(std::mem::take(&mut block));
        }
        let room = self.block_len - block.len() - HEADER;
        block.extend(TAIL.to_le_bytes());
        block.extend((room as u16).to_le_bytes());
        block.extend(words(&[self.tid]));
        crc = crc32c(crc, &block);
        block.extend(words(&[crc]));
        block.resize(self.block_len, 0);
        blocks.push(block);
        let image = self.image.snapshot();
        assert!(blocks.len() <= self.area.len(), "too many records");
        for (block, place) in blocks.iter().zip(&self.area) {
            image.write_at(place.start, block).unwrap();
        }
        image
    }

    /// The image without the blocks that fast commits are in.
    pub fn without_area(&self, image: &MemoryDevice) -> Vec<u8> {
        let mut bytes = image.to_bytes();
        for place in &self.area {
            bytes[place.start as usize..place.end as usize].fill(0);
        }
        bytes
    }

    /// The journal's superblock, as it is in an image.
    pub fn journal_superblock(image: &MemoryDevice) -> JournalSuperblock {
        let mut bytes = vec![0; size_of::<JournalSuperblock>()];
        image.read_at(places(image)[0].start, &mut bytes).unwrap();
        JournalSuperblock::read_from_bytes(&bytes).unwrap()
    }
}

/// Where the journal lies, in a file system of how many blocks.
fn journal(image: &MemoryDevice) -> (BlockSize, Vec<LogRun>, u64) {
    let geometry = reader(image).geometry().clone();
    let size = geometry.block_size;
    let run = |place: &Range<u64>| LogRun {
        start: Pblk(place.start >> size.log2()),
        len: ((place.end - place.start) >> size.log2()) as u32,
    };
    let runs = places(image).iter().map(run).collect();
    (size, runs, geometry.blocks_count)
}

/// What mke2fs makes, with a fast-commit area that the journal knows of.
fn with_area(flags: &str, kib: u64) -> Arc<MemoryDevice> {
    let features = match flags.split_once(" -O ") {
        Some((rest, features)) => format!("{rest} -O fast_commit,{features}"),
        None => format!("{flags} -O fast_commit"),
    };
    let device = made(&features, kib);
    let more = JournalIncompat::FAST_COMMIT | JournalIncompat::REVOKE | JournalIncompat::BIT64;
    add_features(&device, more);
    device
}

/// Fills a block, and sums it.
fn pad(block: &mut Vec<u8>, len: usize, crc: u32) -> u32 {
    let room = len - HEADER - block.len();
    put(block, PAD, &vec![0; room]);
    crc32c(crc, block)
}

fn put(block: &mut Vec<u8>, tag: u16, value: &[u8]) {
    block.extend(tag.to_le_bytes());
    block.extend((value.len() as u16).to_le_bytes());
    block.extend(value);
}

/// Fast commits that do one of everything.
pub fn one_of_everything(left: &Left) -> Vec<Record> {
    let (root, d, e) = (Ino::ROOT, left.ino("d"), left.ino("e"));
    let f: Vec<Ino> = (0..7).map(|i| left.ino(&format!("d/f{i}"))).collect();
    let (free, new) = (left.free_blocks(20), left.free_inodes().0);
    let new = |i: u32| Ino(new + i);
    let block = left.block_len as u32;
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
