//! A file system of one file that checks how the cache uses it.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use uext4_blockdev::{Clock, SystemClock, VirtualClock};
use uext4_ondisk::BlockSize;
use uext4_writeback::throttle::Tunables;
use uext4_writeback::{Error, FilePages, Mapping, Options, Paced, PageCache, Writer};

pub const BLOCK: u64 = 1024;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("injected")]
pub struct Injected;

/// What is on the device, and what the file system knows.
pub struct Disk {
    blocks: Mutex<Vec<u8>>,
    size: AtomicU64,
    /// Where a write will have ended that may be written back before the size says so.
    pending_end: AtomicU64,
    /// A run is being written.
    writing: AtomicBool,
    pub reads: Mutex<Vec<Range<u64>>>,
    pub writes: Mutex<Vec<Range<u64>>>,
    pub lost: Mutex<Vec<Range<u64>>>,
    pub fail_reads: AtomicBool,
    /// Reads that touch this range fail.
    pub bad_reads: Mutex<Range<u64>>,
    /// The next read reports where it is when it has its bytes, and then waits.
    held: Mutex<Option<(Sender<u64>, Receiver<()>)>>,
    /// Runs that touch this range fail.
    pub bad: Mutex<Range<u64>>,
    /// How long a run takes.
    pub delay: Mutex<Duration>,
    /// No run ends as long as this is set.
    pub stuck: AtomicBool,
}

impl Disk {
    pub fn new(content: Vec<u8>) -> Arc<Self> {
        Arc::new(Self {
            size: AtomicU64::new(content.len() as u64),
            pending_end: AtomicU64::new(0),
            blocks: Mutex::new(content),
            writing: AtomicBool::new(false),
            reads: Mutex::default(),
            writes: Mutex::default(),
            lost: Mutex::default(),
            fail_reads: AtomicBool::new(false),
            bad_reads: Mutex::new(0..0),
            held: Mutex::default(),
            bad: Mutex::new(0..0),
            delay: Mutex::default(),
            stuck: AtomicBool::new(false),
        })
    }

    /// All the device holds, as long as the file.
    pub fn content(&self) -> Vec<u8> {
        let mut content = self.blocks.lock().unwrap().clone();
        content.resize(self.size.load(SeqCst) as usize, 0);
        content
    }

    pub fn size(&self) -> u64 {
        self.size.load(SeqCst)
    }

    fn begin_write(&self, offset: u64, data: &[u8]) {
        let end = offset + data.len() as u64;
        self.pending_end.fetch_max(end, SeqCst);
    }

    fn zero(&self, range: Range<u64>) {
        let mut blocks = self.blocks.lock().unwrap();
        let len = blocks.len() as u64;
        blocks[range.start.min(len) as usize..range.end.min(len) as usize].fill(0);
    }
}

impl Mapping for Disk {
    type Error = Injected;

    fn read_blocks(&self, offset: u64, buf: &mut [u8]) -> Result<(), Injected> {
        assert!(offset.is_multiple_of(BLOCK) && (buf.len() as u64).is_multiple_of(BLOCK));
        assert!(!buf.is_empty());
        let range = offset..offset + buf.len() as u64;
        let bad = self.bad_reads.lock().unwrap().clone();
        if self.fail_reads.load(SeqCst) || range.start < bad.end && bad.start < range.end {
            buf.fill(0xBD);
            return Err(Injected);
        }
        self.reads.lock().unwrap().push(range);
        let blocks = self.blocks.lock().unwrap();
        let shown = self.size().max(self.pending_end.load(SeqCst));
        let end = blocks.len().min(shown as usize);
        buf.fill(0);
        let start = (offset as usize).min(end);
        let len = (end - start).min(buf.len());
        buf[..len].copy_from_slice(&blocks[start..start + len]);
        drop(blocks);
        let held = self.held.lock().unwrap().take();
        if let Some((has_read, go)) = held {
            has_read.send(offset).unwrap();
            // It ends when the other side lets go.
            _ = go.recv();
        }
        Ok(())
    }

    fn write_run(&self, offset: u64, run: &[&[u8]]) -> Result<(), Injected> {
        assert!(offset.is_multiple_of(BLOCK) && !run.is_empty());
        assert!(!self.writing.swap(true, SeqCst), "two writes at once");
        let delay = *self.delay.lock().unwrap();
        if !delay.is_zero() {
            std::thread::sleep(delay);
        }
        while self.stuck.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut at = offset as usize;
        let end = at + run.iter().map(|slice| slice.len()).sum::<usize>();
        let bad = self.bad.lock().unwrap().clone();
        if offset < bad.end && bad.start < end as u64 {
            self.writing.store(false, SeqCst);
            return Err(Injected);
        }
        let mut blocks = self.blocks.lock().unwrap();
        if blocks.len() < end {
            blocks.resize(end, 0);
        }
        for slice in run {
            assert!((slice.len() as u64).is_multiple_of(BLOCK) && !slice.is_empty());
            blocks[at..at + slice.len()].copy_from_slice(slice);
            at += slice.len();
        }
        self.writes.lock().unwrap().push(offset..end as u64);
        self.writing.store(false, SeqCst);
        Ok(())
    }

    fn lost(&self, range: Range<u64>) {
        self.lost.lock().unwrap().push(range);
    }
}

/// A file as an engine would have it.
pub struct TestFile {
    pub disk: Arc<Disk>,
    pub pages: FilePages<Injected>,
}

impl TestFile {
    pub fn new(cache: &PageCache<Injected>, content: Vec<u8>) -> Self {
        let disk = Disk::new(content);
        let weak = Arc::downgrade(&disk);
        Self {
            disk,
            pages: cache.file(weak),
        }
    }

    pub fn write(&self, offset: u64, data: &[u8]) -> Result<usize, Error<Injected>> {
        self.disk.begin_write(offset, data);
        let len = self.pages.write(offset, data, self.disk.size())?;
        if len > 0 {
            self.disk.size.fetch_max(offset + len as u64, SeqCst);
        }
        Ok(len)
    }

    pub fn write_by(
        &self,
        writer: &mut Writer,
        offset: u64,
        data: &[u8],
    ) -> Result<usize, Error<Injected>> {
        self.disk.begin_write(offset, data);
        let len = self
            .pages
            .write_by(writer, offset, data, self.disk.size())?;
        self.disk.size.fetch_max(offset + len as u64, SeqCst);
        Ok(len)
    }

    pub fn write_paced(
        &self,
        writer: &mut Writer,
        offset: u64,
        data: &[u8],
    ) -> Result<Paced, Error<Injected>> {
        self.disk.begin_write(offset, data);
        let size = self.disk.size();
        let paced = self.pages.write_paced(writer, offset, data, size)?;
        if paced.taken > 0 {
            let end = offset + paced.taken as u64;
            self.disk.size.fetch_max(end, SeqCst);
        }
        Ok(paced)
    }

    pub fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>, Error<Injected>> {
        let mut buf = vec![0xEE; len];
        let len = self.pages.read(offset, &mut buf, self.disk.size())?;
        buf.truncate(len);
        Ok(buf)
    }

    /// Reads past the cache, into a buffer that has `room` bytes beyond what is wanted.
    pub fn read_uncached(
        &self,
        offset: u64,
        len: usize,
        room: usize,
    ) -> Result<Vec<u8>, Error<Injected>> {
        let mut buf = vec![0xEE; len + room];
        let end = self.disk.size().min(offset + len as u64);
        let read = self.pages.read_uncached(offset, &mut buf, end)?;
        buf.truncate(read);
        Ok(buf)
    }

    /// The same, and does something else when the device has given the first bytes, which are
    /// reported where they are, before they are used; after the reading if it gives none.
    pub fn read_uncached_with(
        &self,
        offset: u64,
        len: usize,
        meanwhile: impl FnOnce(Option<u64>),
    ) -> Result<Vec<u8>, Error<Injected>> {
        let (has_read, reads) = channel();
        let (ends, go) = channel();
        *self.disk.held.lock().unwrap() = Some((has_read, go));
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let read = self.read_uncached(offset, len, BLOCK as usize);
                self.disk.held.lock().unwrap().take();
                read
            });
            meanwhile(reads.recv().ok());
            drop(ends);
            reader.join().unwrap()
        })
    }

    pub fn flush(&self) -> Result<(), Error<Injected>> {
        self.pages.flush(0..u64::MAX)
    }

    pub fn truncate(&self, size: u64) {
        self.disk.size.store(size, SeqCst);
        self.disk.pending_end.store(0, SeqCst);
        self.pages.truncate(size);
        self.disk.zero(size..u64::MAX);
    }

    pub fn punch(&self, range: Range<u64>) -> Result<(), Error<Injected>> {
        self.pages.discard(range.clone())?;
        let start = range.start.next_multiple_of(BLOCK);
        let end = range.end / BLOCK * BLOCK;
        if start < end {
            self.disk.zero(start..end);
        }
        Ok(())
    }
}

pub fn tunables(text: &str) -> Tunables {
    text.parse().unwrap()
}

/// For flushers that wake often and find everything old enough.
pub fn eager(memory_max: u64) -> Options {
    let mut options = options(memory_max);
    options.tunables.dirty_writeback_centisecs = 1;
    options.tunables.dirty_expire_centisecs = 0;
    options
}

pub fn options(memory_max: u64) -> Options {
    let block_size = BlockSize::from_bytes(BLOCK as u32).unwrap();
    Options {
        tunables: tunables("dirty_ratio=50,dirty_background_ratio=10"),
        ..Options::with_memory(block_size, memory_max)
    }
}

/// A cache without flushers on a clock that stands still.
pub fn cache(memory_max: u64) -> (PageCache<Injected>, Arc<VirtualClock>) {
    let clock = Arc::new(VirtualClock::new(0));
    let for_cache: Arc<dyn Clock> = clock.clone();
    (
        PageCache::new(options(memory_max), for_cache).unwrap(),
        clock,
    )
}

/// A cache on the machine's clock with flushers that wake often.
pub fn live_cache(memory_max: u64, flushers: usize) -> PageCache<Injected> {
    let cache = PageCache::new(eager(memory_max), Arc::new(SystemClock)).unwrap();
    cache.start_flushers(flushers).unwrap();
    cache
}

/// Bytes that differ from block to block and within.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64)
        .map(|i| ((i + seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8 | 1)
        .collect()
}

/// The range of a list of one.
pub fn only(ranges: &Mutex<Vec<Range<u64>>>) -> Range<u64> {
    let ranges = ranges.lock().unwrap();
    assert_eq!(ranges.len(), 1, "{ranges:?}");
    ranges[0].clone()
}
