//! Random reads, writes, truncates and range operations on a few files, against plain vectors of
//! bytes, with little memory, so that pages come and go.

use std::sync::Arc;
use std::time::Duration;

use uext4::data::{Fallocate, Seek};
use uext4::{Creation, Error, NewInode, OpenInode, SetAttributes, Volume};
use uext4_blockdev::{MemoryDevice, VirtualClock};
use uext4_testkit::SplitMix64;

use super::device::{judge, made, mount_small, steps};
use crate::mke2fs::mke2fs;

/// No file grows past this.
const SIZE_MAX: u64 = 400_000;
/// No operation touches more.
const LEN_MAX: u64 = 70_000;
/// Steps that are reported when something is wrong.
const SHOWN: usize = 60;
const CREATION: Creation = Creation {
    mode: 0o600,
    umask: 0,
    uid: 0,
    gid: 0,
};

/// A file and what must be in it.
struct Twin {
    name: Vec<u8>,
    file: Option<OpenInode>,
    bytes: Vec<u8>,
}

struct Fsx {
    what: String,
    device: Arc<MemoryDevice>,
    clock: Arc<VirtualClock>,
    fs: Option<Volume>,
    twins: Vec<Twin>,
    random: SplitMix64,
    block: u64,
    extents: bool,
    log: Vec<String>,
}

impl Fsx {
    /// On a file system whose root holds `files`, with what must be in them; others are made.
    fn new(what: &str, device: Arc<MemoryDevice>, files: &[(&str, Vec<u8>)], seed: u64) -> Self {
        let clock = Arc::new(VirtualClock::new(1_700_000_000));
        let mut fsx = Self {
            what: format!("{what}, seed {seed}"),
            device,
            clock,
            fs: None,
            twins: Vec::new(),
            random: SplitMix64::new(seed),
            block: 0,
            extents: !what.contains("ext2") && !what.contains("ext3"),
            log: Vec::new(),
        };
        fsx.mount();
        fsx.block = fsx.fs().geometry().block_size.bytes().into();
        let root = fsx.fs().root().unwrap();
        for (name, bytes) in files {
            let file = root.lookup(name.as_bytes());
            let file = file
                .or_else(|_| root.create(name.as_bytes(), NewInode::File, &CREATION))
                .unwrap();
            fsx.twins.push(Twin {
                name: name.as_bytes().to_vec(),
                file: Some(file),
                bytes: bytes.clone(),
            });
        }
        fsx
    }

    fn fs(&self) -> &Volume {
        self.fs.as_ref().unwrap()
    }

    fn mount(&mut self) {
        self.fs = Some(mount_small(
            self.device.clone(),
            &self.clock,
            64 * 4096.max(self.block as usize),
        ));
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound.max(1))
    }

    /// A range that may reach past the end; often it starts or ends with a block or at the end.
    fn range(&mut self, twin: usize) -> (u64, u64) {
        let size = self.twins[twin].bytes.len() as u64;
        let mut offset = match self.below(4) {
            0 => self.below(SIZE_MAX),
            1 => size.saturating_sub(self.below(5000)),
            _ => self.below(size + 1),
        };
        let mut len = match self.below(3) {
            0 => 1 + self.below(100),
            1 => 1 + self.below(9000),
            _ => 1 + self.below(LEN_MAX),
        };
        if self.below(3) == 0 {
            offset = offset / self.block * self.block;
        }
        if self.below(3) == 0 {
            len = len.next_multiple_of(self.block);
        }
        let offset = offset.min(SIZE_MAX - 1);
        (offset, len.min(SIZE_MAX - offset))
    }

    fn data(&mut self, len: u64) -> Vec<u8> {
        let seed = self.random.next_u64() as usize;
        (0..len as usize)
            .map(|i| (i.wrapping_mul(31) + i / 509 + seed) as u8 | 1)
            .collect()
    }

    fn note(&mut self, step: String) {
        if self.log.len() >= SHOWN {
            self.log.remove(0);
        }
        self.log.push(step);
    }

    #[track_caller]
    fn wrong(&self, why: &str) -> ! {
        panic!("{}: {why}, after\n{}", self.what, self.log.join("\n"));
    }

    #[track_caller]
    fn done<T>(&self, result: Result<T, Error>) -> T {
        match result {
            Ok(value) => value,
            Err(error) => self.wrong(&format!("{error:?}")),
        }
    }

    fn file(&self, twin: usize) -> &OpenInode {
        self.twins[twin].file.as_ref().unwrap()
    }

    fn step(&mut self, number: u64) {
        let twin = self.below(self.twins.len() as u64) as usize;
        match self.below(100) {
            0..25 => self.write(number, twin),
            25..30 => self.append(number, twin),
            30..50 => self.read(number, twin),
            50..62 => self.truncate(number, twin),
            62..87 => self.fallocate(number, twin),
            87..92 => self.seek(number, twin),
            92..96 => self.sync(number, twin),
            96..98 => self.tick(number),
            98 => self.replace(number, twin),
            _ if self.below(3) == 0 => self.remount(number),
            _ => self.check_all(),
        }
        let size = self.twins[twin].bytes.len() as u64;
        if self.file(twin).inode().size != size {
            let found = self.file(twin).inode().size;
            self.wrong(&format!("file {twin} has size {found}, not {size}"));
        }
        if let Some(lblk) = self.done(self.file(twin).check_extent_cache()) {
            self.wrong(&format!(
                "block {lblk:?} of file {twin} is known as something else"
            ));
        }
    }

    fn write(&mut self, number: u64, twin: usize) {
        let (offset, len) = self.range(twin);
        let data = self.data(len);
        self.note(format!("{number}: write {twin} {offset} {len}"));
        let taken = self.done(self.file(twin).write_at(offset, &data));
        if taken as u64 != len {
            self.wrong(&format!("{taken} bytes taken"));
        }
        let bytes = &mut self.twins[twin].bytes;
        let (from, to) = (offset as usize, (offset + len) as usize);
        bytes.resize(bytes.len().max(to), 0);
        bytes[from..to].copy_from_slice(&data);
    }

    fn append(&mut self, number: u64, twin: usize) {
        let size = self.twins[twin].bytes.len() as u64;
        let len = self.range(twin).1.min(SIZE_MAX.saturating_sub(size));
        let data = self.data(len);
        self.note(format!("{number}: append {twin} {len}"));
        let (at, taken) = self.done(self.file(twin).append(&data));
        if (at, taken as u64) != (size, len) {
            self.wrong(&format!("{taken} bytes taken at {at}, not at {size}"));
        }
        self.twins[twin].bytes.extend_from_slice(&data);
    }

    fn read(&mut self, number: u64, twin: usize) {
        let (offset, len) = self.range(twin);
        self.note(format!("{number}: read {twin} {offset} {len}"));
        self.compare(twin, offset as usize, len as usize);
    }

    /// Half of it is read through the cache, the other past it, with or without room at its end.
    #[track_caller]
    fn compare(&mut self, twin: usize, offset: usize, len: usize) {
        let room = [0, 0, 5000, 1 << 16][self.below(4) as usize];
        let mut found = vec![0xAA; len + room];
        let is_cached = self.below(2) == 0;
        let (file, at) = (self.file(twin), offset as u64);
        let read = match is_cached {
            true => file.read_at(at, &mut found[..len]),
            false => file.read_uncached(at, len, &mut found),
        };
        let read = self.done(read);
        let bytes = &self.twins[twin].bytes;
        let from = offset.min(bytes.len());
        let expected = &bytes[from..(offset + len).min(bytes.len()).max(from)];
        if read != expected.len() {
            self.wrong(&format!("{read} bytes read of {}", expected.len()));
        }
        if let Some(at) = (0..read).find(|&i| found[i] != expected[i]) {
            let wrong = (at..read).filter(|&i| found[i] != expected[i]).count();
            self.wrong(&format!(
                "file {twin} has {:#x} at {}, not {:#x}; {wrong} bytes are wrong",
                found[at],
                offset + at,
                expected[at],
            ));
        }
    }

    fn check_all(&mut self) {
        for twin in 0..self.twins.len() {
            self.compare(twin, 0, self.twins[twin].bytes.len() + 1);
        }
    }

    fn truncate(&mut self, number: u64, twin: usize) {
        let (offset, len) = self.range(twin);
        let size = if number.is_multiple_of(2) {
            offset
        } else {
            offset + len
        };
        self.note(format!("{number}: truncate {twin} {size}"));
        let attributes = SetAttributes {
            size: Some(size),
            ..SetAttributes::default()
        };
        self.done(self.file(twin).set_attributes(&attributes));
        self.twins[twin].bytes.resize(size as usize, 0);
    }

    fn fallocate(&mut self, number: u64, twin: usize) {
        let (offset, len) = self.range(twin);
        let how = match self.below(7) {
            0 => Fallocate::Allocate { keep_size: false },
            1 => Fallocate::Allocate { keep_size: true },
            2 | 3 => Fallocate::PunchHole,
            4 => Fallocate::ZeroRange {
                keep_size: number.is_multiple_of(2),
            },
            5 => Fallocate::CollapseRange,
            _ => Fallocate::InsertRange,
        };
        let moves = matches!(how, Fallocate::CollapseRange | Fallocate::InsertRange);
        let (offset, len) = match moves {
            true => (
                offset / self.block * self.block,
                len.next_multiple_of(self.block),
            ),
            false => (offset, len),
        };
        let size = self.twins[twin].bytes.len() as u64;
        if how == Fallocate::InsertRange && size + len > SIZE_MAX {
            return;
        }
        self.note(format!("{number}: {how:?} {twin} {offset} {len}"));
        let result = self.file(twin).fallocate(how, offset, len);
        if !self.extents && how != Fallocate::PunchHole {
            if !matches!(result, Err(Error::Unsupported { .. })) {
                self.wrong(&format!("{result:?}"));
            }
            return;
        }
        let refused = match how {
            Fallocate::CollapseRange => offset + len >= size,
            Fallocate::InsertRange => offset >= size,
            _ => false,
        };
        if refused {
            if !matches!(result, Err(Error::Invalid { .. })) {
                self.wrong(&format!("{result:?}"));
            }
            return;
        }
        self.done(result);
        mirror(&mut self.twins[twin].bytes, how, offset, len);
    }

    /// Holes read as zeroes, and what holds data is reported as data.
    fn seek(&mut self, number: u64, twin: usize) {
        let (offset, _) = self.range(twin);
        self.note(format!("{number}: seek {twin} {offset}"));
        let data = self.done(self.file(twin).seek(offset, Seek::Data));
        let hole = self.done(self.file(twin).seek(offset, Seek::Hole));
        let bytes = &self.twins[twin].bytes;
        let (from, size) = (offset as usize, bytes.len());
        if from >= size {
            if (data, hole) != (None, None) {
                self.wrong(&format!("past the end there is {data:?} {hole:?}"));
            }
            return;
        }
        let data_at = data.map_or(size, |at| at as usize);
        if data_at < from || data_at > size || bytes[from..data_at].iter().any(|&b| b != 0) {
            self.wrong(&format!("the next data is at {data:?}"));
        }
        let Some(hole) = hole.map(|at| at as usize) else {
            self.wrong("no hole up to the end");
        };
        if hole < from || hole > size {
            self.wrong(&format!("the next hole is at {hole}"));
        }
        let block = self.block as usize;
        let end = (hole / block * block + block).min(size).max(hole);
        if bytes[hole..end].iter().any(|&b| b != 0) {
            self.wrong(&format!("no hole is at {hole}"));
        }
    }

    fn sync(&mut self, number: u64, twin: usize) {
        let all = self.below(2) == 0;
        self.note(format!("{number}: fsync {twin} {all}"));
        let result = match all {
            true => self.file(twin).fsync(),
            false => self.file(twin).fdatasync(),
        };
        self.done(result);
    }

    fn tick(&mut self, number: u64) {
        self.note(format!("{number}: tick"));
        self.clock.advance(Duration::from_secs(1 + number % 9));
        self.done(self.fs().tick());
    }

    /// The file goes, still in use, and another one takes its name.
    fn replace(&mut self, number: u64, twin: usize) {
        self.note(format!("{number}: replace {twin}"));
        let name = self.twins[twin].name.clone();
        let root = self.done(self.fs().root());
        self.done(root.unlink(&name));
        let offset = self.range(twin).0 as usize;
        self.compare(twin, offset, 10_000);
        let file = self.done(root.create(&name, NewInode::File, &CREATION));
        self.twins[twin].file = Some(file);
        self.twins[twin].bytes.clear();
    }

    fn remount(&mut self, number: u64) {
        self.note(format!("{number}: remount"));
        for twin in &mut self.twins {
            twin.file = None;
        }
        let fs = self.fs.take().unwrap();
        self.done(fs.close());
        drop(fs);
        judge(&self.device, &format!("{}: {}", self.what, number));
        self.mount();
        let root = self.done(self.fs().root());
        for twin in 0..self.twins.len() {
            let file = self.done(root.lookup(&self.twins[twin].name));
            self.twins[twin].file = Some(file);
        }
        self.check_all();
    }

    fn run(mut self, count: u64) {
        for number in 0..count {
            self.step(number);
        }
        self.remount(count);
    }
}

/// What a range operation that succeeds does to the bytes.
fn mirror(bytes: &mut Vec<u8>, how: Fallocate, offset: u64, len: u64) {
    let (from, to) = (offset as usize, (offset + len) as usize);
    let size = bytes.len();
    match how {
        Fallocate::Allocate { keep_size } => {
            if !keep_size {
                bytes.resize(size.max(to), 0);
            }
        }
        Fallocate::PunchHole => bytes[from.min(size)..to.min(size)].fill(0),
        Fallocate::ZeroRange { keep_size } => {
            if !keep_size {
                bytes.resize(size.max(to), 0);
            }
            let size = bytes.len();
            bytes[from.min(size)..to.min(size)].fill(0);
        }
        Fallocate::CollapseRange => drop(bytes.drain(from..to)),
        Fallocate::InsertRange => {
            let zeroes = std::iter::repeat_n(0, to - from);
            drop(bytes.splice(from..from, zeroes));
        }
    }
}

fn run(flags: &str, seed: u64) {
    let files = ["one", "two", "three"].map(|name| (name, Vec::new()));
    let device = made(flags, 16_384);
    Fsx::new(flags, device, &files, seed).run(steps(3_500, 180_000));
}

#[test]
fn blocks_of_4k() {
    run("-t ext4 -b 4096", 1);
}

#[test]
fn blocks_of_1k() {
    run("-t ext4 -b 1024", 2);
}

#[test]
fn block_numbers_of_ext3() {
    run("-t ext3 -b 1024", 3);
}

#[test]
fn block_numbers_without_a_journal() {
    run("-t ext2 -b 4096", 4);
}

#[test]
fn extents_without_a_journal() {
    run("-t ext4 -b 1024 -O ^has_journal", 5);
}

#[test]
fn files_stored_in_inodes() {
    let flags = "-t ext4 -I 256 -O inline_data";
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    std::fs::create_dir(&source).unwrap();
    let files = [("a", 0), ("b", 1), ("c", 60), ("d", 61), ("e", 150)].map(|(name, len)| {
        let bytes: Vec<u8> = (0..len).map(|i| i as u8 | 1).collect();
        std::fs::write(source.join(name), &bytes).unwrap();
        (name, bytes)
    });
    for seed in 0..steps(30, 1000) {
        let image = dir.path().join("x.img");
        let flags: Vec<&str> = flags.split_whitespace().collect();
        mke2fs(&image, &flags, Some(&source), "8192k");
        let device = uext4_testkit::loaded(&image);
        Fsx::new("inline_data", device, &files, seed).run(60);
    }
}
