//! A device that keeps every change in order, and what a power cut may leave of them.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use uext4_blockdev::{BlockDevice, Error, MemoryDevice};
use uext4_testkit::SplitMix64;

/// Bytes that are written whole or not at all.
const SECTOR: usize = 512;
/// The superblock takes two sectors under one checksum. Every caller who mounts an ext4 relies on
/// a device that writes them together.
const SUPERBLOCK: std::ops::Range<u64> = 1024..2048;

/// A change of a device, or the moment that makes those before it durable.
#[derive(Clone, Debug)]
pub enum Event {
    Write { offset: u64, bytes: Arc<[u8]> },
    Discard { offset: u64, len: u64 },
    Flush,
}

/// Records what is done to a device, and which operation did it.
#[derive(Debug)]
pub struct Recorder {
    inner: MemoryDevice,
    /// The operation that runs.
    pub operation: AtomicUsize,
    events: Mutex<Vec<(usize, Event)>>,
}

impl Recorder {
    pub fn new(image: &MemoryDevice) -> Self {
        Self {
            inner: image.snapshot(),
            operation: AtomicUsize::new(0),
            events: Mutex::default(),
        }
    }

    pub fn take_events(&self) -> Vec<(usize, Event)> {
        std::mem::take(&mut self.events.lock().unwrap())
    }

    /// What reads see.
    pub fn image(&self) -> MemoryDevice {
        self.inner.snapshot()
    }

    fn note(&self, event: Event) {
        let operation = self.operation.load(Relaxed);
        self.events.lock().unwrap().push((operation, event));
    }
}

impl BlockDevice for Recorder {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), Error> {
        self.note(Event::Write {
            offset,
            bytes: buf.into(),
        });
        self.inner.write_at(offset, buf)
    }

    fn flush(&self) -> Result<(), Error> {
        self.note(Event::Flush);
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), Error> {
        self.note(Event::Discard { offset, len });
        self.inner.discard(offset, len)
    }
}

/// What is durable, and what was written since the last flush.
pub struct Cuts {
    durable: MemoryDevice,
    pending: Vec<Event>,
}

impl Cuts {
    pub fn new(image: &MemoryDevice) -> Self {
        Self {
            durable: image.snapshot(),
            pending: Vec::new(),
        }
    }

    pub fn push(&mut self, event: &Event) {
        match event {
            Event::Flush => {
                for event in self.pending.drain(..) {
                    apply(&self.durable, &event);
                }
            }
            event => self.pending.push(event.clone()),
        }
    }

    /// Whether anything may be lost now.
    pub fn is_durable(&self) -> bool {
        self.pending.is_empty()
    }

    /// The image if power goes now and nothing is lost.
    pub fn all(&self) -> MemoryDevice {
        let image = self.durable.snapshot();
        self.pending.iter().for_each(|event| apply(&image, event));
        image
    }

    /// The image if power goes now and of what is not durable a part survives: changes as a whole,
    /// or some of their sectors.
    pub fn some(&self, seed: u64) -> MemoryDevice {
        let mut random = SplitMix64::new(seed);
        let image = self.durable.snapshot();
        let keep = [10, 50, 90][random.below(3) as usize];
        let tear = [0, 20, 100][random.below(3) as usize];
        for event in &self.pending {
            if random.below(100) < tear {
                apply_torn(&image, event, &mut random);
            } else if random.below(100) < keep {
                apply(&image, event);
            }
        }
        image
    }
}

fn apply(image: &MemoryDevice, event: &Event) {
    match event {
        Event::Write { offset, bytes } => image.write_at(*offset, bytes).unwrap(),
        Event::Discard { offset, len } => image.discard(*offset, *len).unwrap(),
        Event::Flush => {}
    }
}

fn apply_torn(image: &MemoryDevice, event: &Event, random: &mut SplitMix64) {
    let Event::Write { offset, bytes } = event else {
        return;
    };
    let mut at = *offset;
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let to_border = SECTOR - at as usize % SECTOR;
        let unit = match SUPERBLOCK.contains(&at) {
            true => (SUPERBLOCK.end - at) as usize,
            false => to_border,
        };
        let (sector, behind) = rest.split_at(unit.min(rest.len()));
        if random.below(2) == 0 {
            image.write_at(at, sector).unwrap();
        }
        at += sector.len() as u64;
        rest = behind;
    }
}
