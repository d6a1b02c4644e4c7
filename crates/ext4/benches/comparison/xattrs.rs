//! Attributes that are set again and again: the xattr-bench of the thread from which the crate
//! `mbcache` comes. P threads each have F files and set one attribute of them to one of V values
//! of 300 bytes, drawn at random; inodes of 256 bytes have no room for it, so that it lies in a
//! block, which files with equal values share.
//!
//! Ours is called in this process, on an image file; the kernel's through `fsetxattr`, with all
//! files open if so many may be (else through `lsetxattr`), on a loop device over such a file.
//! Both have a journal and commit every five seconds. Before the clock starts every file has a
//! value, and all is on the device. Afterwards e2fsck must call both images clean.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use rustix::fs::{XattrFlags, fsetxattr, lsetxattr, syncfs};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tempfile::TempDir;
use uext4::xattr::SetMode;
use uext4::{NewInode, OpenInode, OpenOptions, Volume};
use uext4_blockdev::{Access, FileDevice};
use uext4_testkit::SplitMix64;

use crate::loop_mount::LoopMount;
use crate::ours::{FILE, mke2fs, open};
use crate::table::Table;

/// Sets of all threads together.
const SETS: usize = 128_000;
const VALUE_LEN: usize = 300;
const NAME: &str = "user.test";

/// V, F and P.
#[derive(Clone, Copy, Debug)]
struct Cell {
    values: usize,
    files: usize,
    threads: usize,
}

/// Many values are dear in many files, few in few.
fn cells() -> impl Iterator<Item = Cell> {
    let pairs = [10, 1000]
        .into_iter()
        .flat_map(|v| [10, 1000].map(|f| (v, f)));
    pairs.flat_map(|(values, files)| {
        [1, 64].map(|threads| Cell {
            values,
            files,
            threads,
        })
    })
}

/// Files of a file system whose attribute can be set.
trait Sets: Sync {
    fn set(&self, file: usize, value: &[u8]);
    fn sync(&self);
}

/// What one round gives.
struct Figures {
    /// Sets a second, and the same until all is on the device.
    sets: f64,
    durable: f64,
    /// Files that have one block, on average.
    sharing: f64,
}

/// One round after the other, ours and the kernel's in turn.
///
/// # Errors
/// An image that e2fsck does not call clean.
pub fn run(rounds: usize, wants: impl Fn(&str) -> bool) -> Result<Table, String> {
    let mut table = Table::new(&["ours", "kernel"]);
    for cell in cells() {
        for round in 0..rounds {
            let mut rates = [0.0; 2];
            for (subject, rate) in ["ours", "kernel"].into_iter().zip(&mut rates) {
                if !wants(subject) {
                    continue;
                }
                let image = Image::new(cell)?;
                let figures = match subject {
                    "ours" => image.ours(round),
                    _ => match image.kernel(round) {
                        Ok(figures) => figures,
                        Err(why) => {
                            eprintln!("kernel: skipped, {why}");
                            continue;
                        }
                    },
                };
                let sharing = image.judge()?;
                *rate = figures.0;
                cell.report(
                    &mut table,
                    subject,
                    &Figures {
                        sets: figures.0,
                        durable: figures.1,
                        sharing,
                    },
                );
            }
            if rates.iter().all(|rate| *rate > 0.0) {
                let row = format!("{}, ours : kernel", cell.name());
                table.add(&row, "ours", rates[0] / rates[1]);
            }
        }
    }
    Ok(table)
}

impl Cell {
    fn name(self) -> String {
        format!("V={} F={} P={}", self.values, self.files, self.threads)
    }

    fn report(self, table: &mut Table, subject: &str, figures: &Figures) {
        let name = self.name();
        table.add(&format!("{name}, sets/s"), subject, figures.sets);
        table.add(&format!("{name}, until synced"), subject, figures.durable);
        table.add(&format!("{name}, files : blocks"), subject, figures.sharing);
    }

    /// Sets a second, and the same until all is on the device.
    fn measure(self, subject: &dyn Sets, round: usize) -> (f64, f64) {
        let value = |value: usize| {
            let digits = format!("{value:06}.").into_bytes();
            digits.into_iter().cycle().take(VALUE_LEN).collect()
        };
        let values: Vec<Vec<u8>> = (0..self.values).map(value).collect();
        let work = |turn: usize, sets: usize| {
            std::thread::scope(|scope| {
                for thread in 0..self.threads {
                    let values = &values;
                    scope.spawn(move || {
                        let mut random =
                            SplitMix64::new((round << 32 | turn << 16 | thread) as u64);
                        for set in 0..sets {
                            let file = match turn {
                                0 => set,
                                _ => random.index(self.files),
                            };
                            let value = &values[random.index(self.values)];
                            subject.set(thread * self.files + file, value);
                        }
                    });
                }
            });
        };
        work(0, self.files);
        subject.sync();
        let start = Instant::now();
        let sets = SETS / self.threads;
        work(1, sets);
        let set = start.elapsed().as_secs_f64();
        subject.sync();
        let synced = start.elapsed().as_secs_f64();
        let all = (sets * self.threads) as f64;
        (all / set, all / synced)
    }
}

/// An image file with a directory a thread, and its empty files.
struct Image {
    cell: Cell,
    dir: TempDir,
}

impl Image {
    fn new(cell: Cell) -> Result<Self, String> {
        let dir = tempfile::tempdir_in("/dev/shm").map_err(|error| error.to_string())?;
        let image = Self { cell, dir };
        mke2fs(&image.path());
        let fs = image.open();
        let root = fs.root().unwrap();
        for thread in 0..cell.threads {
            let name = thread.to_string();
            let dir = root.create(name.as_bytes(), NewInode::Directory, &FILE);
            for file in 0..cell.files {
                let name = file.to_string();
                let made = dir
                    .as_ref()
                    .unwrap()
                    .create(name.as_bytes(), NewInode::File, &FILE);
                drop(made.unwrap());
            }
        }
        drop(root);
        fs.close().unwrap();
        Ok(image)
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("x.img")
    }

    fn open(&self) -> Volume {
        open(Arc::new(device(&self.path(), Access::ReadWrite)))
    }

    fn ours(&self, round: usize) -> (f64, f64) {
        let fs = self.open();
        let root = fs.root().unwrap();
        let mut files = Vec::new();
        for thread in 0..self.cell.threads {
            let dir = root.lookup(thread.to_string().as_bytes()).unwrap();
            let file = |file: usize| dir.lookup(file.to_string().as_bytes()).unwrap();
            files.extend((0..self.cell.files).map(file));
        }
        let ours = Ours { fs, files };
        let figures = self.cell.measure(&ours, round);
        drop((ours.files, root));
        ours.fs.close().unwrap();
        figures
    }

    fn kernel(&self, round: usize) -> Result<(f64, f64), String> {
        let point = self.dir.path().join("m");
        std::fs::create_dir(&point).map_err(|error| error.to_string())?;
        // The tables of inodes are not filled in the background meanwhile.
        let mount = LoopMount::new(&self.path(), &point, ",noinit_itable")?;
        let may_open = may_open(self.cell.threads * self.cell.files);
        let mut files = Vec::new();
        for thread in 0..self.cell.threads {
            for file in 0..self.cell.files {
                let path = point.join(thread.to_string()).join(file.to_string());
                files.push(if may_open {
                    Called::Open(File::open(path).map_err(|error| error.to_string())?)
                } else {
                    Called::Path(path)
                });
            }
        }
        let root = File::open(&point).map_err(|error| error.to_string())?;
        let kernel = Kernel { root, files };
        let figures = self.cell.measure(&kernel, round);
        drop(kernel);
        drop(mount);
        Ok(figures)
    }

    /// Files that have one block, on average.
    ///
    /// # Errors
    /// What e2fsck says, a file without a block.
    fn judge(&self) -> Result<f64, String> {
        let reported = Command::new("e2fsck").arg("-fn").arg(self.path()).output();
        let reported = reported.map_err(|error| format!("e2fsck: {error}"))?;
        if !reported.status.success() {
            return Err(format!(
                "e2fsck: {}",
                String::from_utf8_lossy(&reported.stdout)
            ));
        }
        let device = Arc::new(device(&self.path(), Access::ReadOnly));
        let fs = uext4::Image::open(device, &OpenOptions::default()).unwrap();
        let root = fs.resolve(b"/", uext4::FollowLast::Yes).unwrap();
        let (mut blocks, mut files) = (BTreeSet::new(), 0);
        for thread in 0..self.cell.threads {
            let dir = fs.lookup(&root, thread.to_string().as_bytes()).unwrap();
            let dir = fs.inode(dir).unwrap();
            for file in 0..self.cell.files {
                let ino = fs.lookup(&dir, file.to_string().as_bytes()).unwrap();
                let block = fs.inode(ino).unwrap().xattr_block;
                blocks.insert(block.ok_or("a file without a block of attributes")?);
                files += 1;
            }
        }
        Ok(f64::from(files) / blocks.len() as f64)
    }
}

fn device(path: &Path, access: Access) -> FileDevice {
    FileDevice::open(path, access).unwrap()
}

/// Whether so many files may be open, and a few more; lets them if it can.
fn may_open(files: usize) -> bool {
    let want = Some(files as u64 + 256);
    let now = getrlimit(Resource::Nofile);
    let limit = Rlimit {
        current: want,
        maximum: now.maximum,
    };
    let has = |limit: Option<u64>| limit.is_none() || limit >= want;
    has(now.current) || has(now.maximum) && setrlimit(Resource::Nofile, limit).is_ok()
}

struct Ours {
    fs: Volume,
    files: Vec<OpenInode>,
}

impl Sets for Ours {
    fn set(&self, file: usize, value: &[u8]) {
        let file = &self.files[file];
        file.set_xattr(NAME.as_bytes(), Some(value), SetMode::Any)
            .unwrap();
    }

    fn sync(&self) {
        self.fs.sync().unwrap();
    }
}

/// How a file is called.
enum Called {
    Open(File),
    /// Where no more may be open.
    Path(PathBuf),
}

struct Kernel {
    root: File,
    files: Vec<Called>,
}

impl Sets for Kernel {
    fn set(&self, file: usize, value: &[u8]) {
        let flags = XattrFlags::empty();
        let set = match &self.files[file] {
            Called::Open(file) => fsetxattr(file, NAME, value, flags),
            Called::Path(path) => lsetxattr(path, NAME, value, flags),
        };
        set.unwrap();
    }

    fn sync(&self) {
        syncfs(&self.root).unwrap();
    }
}
