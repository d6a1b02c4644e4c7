//! Where blocks lie, asked at random by P threads: of a file of 10,000 adjacent blocks, and of
//! one of 10,000 extents with a hole behind each. The kernel's on a loop device; image files on
//! tmpfs, all blocks and extents known before.
//!
//! - `read`: 4 KiB, all of it in the page cache, ours and the kernel's. No caller asks for an
//!   extent.
//! - `seek`: whether a block is data (`SEEK_DATA`), which takes the extent and nothing else.
//! - `uncached`: 4 KiB that are not in the page cache: ours with room for 1 MiB of pages, the
//!   kernel's with `O_DIRECT`, whose loop device then hands each read to a thread of its own.

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{OFlags, SeekFrom, seek};
use tempfile::TempDir;
use uext4::data::Seek;
use uext4::{NewInode, OpenInode, OpenOptions, Volume};
use uext4_blockdev::{Access, FileDevice};
use uext4_testkit::SplitMix64;

use crate::loop_mount::LoopMount;
use crate::measure::{Clock, rate};
use crate::ours::{FILE, mke2fs, open_as};
use crate::table::Table;

const OURS: &str = "ours";
const KERNEL: &str = "kernel";
/// Blocks of a file, and how far one is from the next.
const BLOCKS: usize = 10_000;
const SHAPES: [(&str, usize); 2] = [("contiguous", 1), ("10,000 extents", 2)];
const BLOCK: usize = 4096;
/// What is asked, and how often by all threads together.
const ASKED: [(Ask, usize); 3] = [
    (Ask::Read, 200_000),
    (Ask::Seek, 400_000),
    (Ask::Uncached, 20_000),
];
const THREADS: [usize; 2] = [1, 4];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    Read,
    Seek,
    Uncached,
}

impl Ask {
    fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Seek => "seek",
            Self::Uncached => "uncached",
        }
    }
}

/// Files of both shapes, each as often as it has to be open.
trait Files: Sync {
    fn ask(&self, shape: usize, ask: Ask, offset: u64, buf: &mut Aligned);
}

/// As `O_DIRECT` wants it.
#[repr(align(4096))]
struct Aligned([u8; BLOCK]);

/// One round after the other, all subjects in turn.
pub fn run(rounds: usize, wants: impl Fn(&str) -> bool) -> Table {
    let mut subjects: Vec<(&'static str, Box<dyn Files>)> = Vec::new();
    if wants(OURS) {
        subjects.push((OURS, Box::new(Ours::new())));
    }
    if wants(KERNEL) {
        match Kernel::new() {
            Ok(kernel) => subjects.push((KERNEL, Box::new(kernel))),
            Err(why) => eprintln!("{KERNEL}: skipped, {why}"),
        }
    }
    let columns = [OURS, KERNEL];
    let mut table = Table::new(&columns);
    // The first brings in what is to be known, and does not count.
    for round in 0..=rounds {
        for (shape, (name, _)) in SHAPES.into_iter().enumerate() {
            for (ask, times) in ASKED {
                for threads in THREADS {
                    let row = format!("{}/s, {name}, P={threads}", ask.name());
                    for (subject, files) in &subjects {
                        let rate = measure(&**files, (shape, ask), times, (threads, round));
                        if round > 0 {
                            table.add(&row, subject, rate);
                        }
                    }
                }
            }
        }
    }
    table
}

fn measure(
    files: &dyn Files,
    (shape, ask): (usize, Ask),
    times: usize,
    (threads, round): (usize, usize),
) -> f64 {
    let each = times / threads;
    let apart = SHAPES[shape].1;
    if round == 0 {
        let mut buf = Aligned([0; BLOCK]);
        for block in 0..BLOCKS {
            files.ask(shape, ask, (block * apart * BLOCK) as u64, &mut buf);
        }
    }
    rate(Clock::Wall, each * threads, || {
        std::thread::scope(|scope| {
            for thread in 0..threads {
                scope.spawn(move || {
                    let mut random = SplitMix64::new((round * threads + thread) as u64);
                    let mut buf = Aligned([0; BLOCK]);
                    for _ in 0..each {
                        let block = random.index(BLOCKS) * apart;
                        files.ask(shape, ask, (block * BLOCK) as u64, &mut buf);
                        black_box(&mut buf);
                    }
                });
            }
        });
    })
}

/// An image file with a file of each shape.
struct Image(TempDir);

impl Image {
    fn new() -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = dir.path().join("x.img");
        mke2fs(&path);
        let fs = open(&path, 1 << 30);
        let root = fs.root().unwrap();
        for (name, apart) in SHAPES {
            let file = root.create(name.as_bytes(), NewInode::File, &FILE).unwrap();
            for block in 0..BLOCKS {
                let at = (block * apart * BLOCK) as u64;
                assert_eq!(file.write_at(at, &[7; BLOCK]).unwrap(), BLOCK);
            }
            file.fsync().unwrap();
            let mut extents = 0;
            file.fiemap(0..u64::MAX, |_| {
                extents += 1;
                true
            })
            .unwrap();
            // The flusher may have come in between.
            let most = if apart == 1 { 8 } else { BLOCKS };
            assert!((most / 8..=most).contains(&extents), "{name}: {extents}");
        }
        drop(root);
        fs.close().unwrap();
        Self(dir)
    }
}

fn open(path: &Path, pages: u64) -> Volume {
    let device = FileDevice::open(path, Access::ReadWrite).unwrap();
    let mut options = OpenOptions::default();
    options.memory_max = 512 << 20;
    options.pages_max = pages;
    open_as(Arc::new(device), &options)
}

/// With room for all pages, and with room for few.
struct Ours {
    files: Vec<[OpenInode; 2]>,
    mounted: [Volume; 2],
    _images: [Image; 2],
}

impl Ours {
    fn new() -> Self {
        let images = [Image::new(), Image::new()];
        let open = |at: usize, pages| open(&images[at].0.path().join("x.img"), pages);
        let mounted = [open(0, 1 << 30), open(1, 1 << 20)];
        let file = |fs: &Volume, name: &str| {
            let root = fs.root().unwrap();
            root.lookup(name.as_bytes()).unwrap()
        };
        let files = SHAPES.map(|(name, _)| [0, 1].map(|at: usize| file(&mounted[at], name)));
        Self {
            files: files.into(),
            mounted,
            _images: images,
        }
    }
}

impl Files for Ours {
    fn ask(&self, shape: usize, ask: Ask, offset: u64, buf: &mut Aligned) {
        let [all, few] = &self.files[shape];
        match ask {
            Ask::Read => assert_eq!(all.read_at(offset, &mut buf.0).unwrap(), BLOCK),
            Ask::Seek => assert_eq!(all.seek(offset, Seek::Data).unwrap(), Some(offset)),
            Ask::Uncached => assert_eq!(few.read_at(offset, &mut buf.0).unwrap(), BLOCK),
        }
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        self.files.clear();
        self.mounted.iter().for_each(|fs| fs.close().unwrap());
    }
}

struct Kernel {
    /// Opened as always, and with `O_DIRECT`.
    files: Vec<[File; 2]>,
    mount: Option<LoopMount>,
    _image: Image,
}

impl Kernel {
    fn new() -> Result<Self, String> {
        let image = Image::new();
        let point = image.0.path().join("m");
        std::fs::create_dir(&point).map_err(|error| error.to_string())?;
        let mount = LoopMount::new(&image.0.path().join("x.img"), &point, ",noinit_itable")?;
        let mut kernel = Self {
            files: Vec::new(),
            mount: Some(mount),
            _image: image,
        };
        for (name, _) in SHAPES {
            let open = |flags: OFlags| {
                let mut options = File::options();
                let options = options.read(true).custom_flags(flags.bits() as i32);
                options
                    .open(point.join(name))
                    .map_err(|error| error.to_string())
            };
            kernel
                .files
                .push([open(OFlags::empty())?, open(OFlags::DIRECT)?]);
        }
        Ok(kernel)
    }
}

impl Files for Kernel {
    fn ask(&self, shape: usize, ask: Ask, offset: u64, buf: &mut Aligned) {
        let [cached, direct] = &self.files[shape];
        match ask {
            Ask::Read => cached.read_exact_at(&mut buf.0, offset).unwrap(),
            Ask::Seek => assert_eq!(seek(cached, SeekFrom::Data(offset)).unwrap(), offset),
            Ask::Uncached => direct.read_exact_at(&mut buf.0, offset).unwrap(),
        }
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.files.clear();
        self.mount = None;
    }
}
