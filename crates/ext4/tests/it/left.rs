//! Images that were left in the middle of their work, and fast commits put into them by hand.

use std::ops::Range;
use std::sync::Arc;

use uext4::format::GroupNr;
use uext4::{Creation, FollowLast, Image, Ino, NewInode, OpenOptions, Volume};
use uext4_blockdev::{BlockDevice, MemoryDevice};
use uext4_jbd2::{LogRun, recover};
use uext4_ondisk::checksum::crc32c;
use uext4_ondisk::journal::{JournalIncompat, JournalSuperblock};
use uext4_ondisk::{BlockSize, Pblk};
use zerocopy::FromBytes;

use crate::log_place::{add_features, places};
use crate::made::{made, mount};

const PAD: u16 = 7;
const TAIL: u16 = 8;
const HEAD: u16 = 9;
const HEADER: usize = 4;
/// What a TAIL has before its padding.
const TAIL_LEN: usize = 8;

/// A record's tag and value.
pub type Record = (u16, Vec<u8>);

pub fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
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
    pub fn new(flags: &str, kib: u64, work: impl FnOnce(&Volume)) -> Self {
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
                file.write_at(0, &vec![b'0' + i; len]).unwrap();
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
            file.write_at(0, &i.to_le_bytes()).unwrap();
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

    /// Bytes of a block.
    pub fn block_len(&self) -> usize {
        self.block_len
    }

    pub fn fs(&self) -> Image {
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

pub fn reader(image: &MemoryDevice) -> Image {
    let device: Arc<dyn BlockDevice> = Arc::new(image.snapshot());
    Image::open(device, &OpenOptions::default()).unwrap()
}
