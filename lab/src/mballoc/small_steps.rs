//! The steps of the thread's script for any tree of files: our library, the kernel, the lab's
//! volume.
//!
//! What is read in the thread is not read here: it changes no layout. Whenever so many bytes were
//! written, everything is synced, also while files are open: so the flusher of each subject
//! writes at the same points, and what is preallocated for open files matters.

use std::io;

use uext4_testkit::SplitMix64;

use crate::mballoc::tree::Tree;
use crate::subject::{Files, OpenFile};

const MIB: u64 = 1 << 20;
/// Everything is synced when so many bytes were written.
const SYNC_EVERY: u64 = 64 * MIB;
/// Bytes of a write of a file that is longer.
const WRITE_MAX: usize = 1 << 20;
/// Bytes of a record of the archive.
const TAR_RECORD: u64 = 10 << 10;
/// Copies of the tree, GiB of the thread's device, those fallocated, and files they are
/// fallocated in.
const COPIES: usize = 5;
const THREAD_GIB: u64 = 85;
const FALLOCATED_GIB: u64 = 70;
const FALLOCATE_FILES: u64 = 10;

/// How much is done.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Bytes of the device.
    pub device: u64,
    /// MiB of the file of one dd.
    pub single: u64,
    /// MiB of each file of ten dd at once.
    pub each: u64,
    /// Operations of the mix.
    pub operations: usize,
}

/// The steps on one subject.
pub struct Steps<'a> {
    files: &'a dyn Files,
    tree: &'a Tree,
    sizes: Sizes,
    seed: u64,
    unsynced: u64,
    contents: Vec<u8>,
}

/// A step.
pub type Step = fn(&mut Steps<'_>) -> io::Result<Made>;

/// All of them in their order.
pub const STEPS: &[(&str, Step)] = &[
    ("fallocate", |steps| steps.fallocate()),
    ("copy", |steps| steps.copy()),
    ("tar", |steps| steps.tar()),
    ("untar", |steps| steps.untar()),
    ("single_dd", |steps| steps.single_dd()),
    ("multiple_dd", |steps| steps.multiple_dd()),
    ("fsstress", |steps| steps.mix()),
];

/// The files of a step.
#[derive(Debug, Default)]
pub struct Made {
    /// Paths of those that are measured.
    pub paths: Vec<String>,
    /// Whether they are removed then.
    pub is_removed: bool,
}

/// An open file that is written at its end.
struct Writer {
    file: Box<dyn OpenFile>,
    end: u64,
}

impl<'a> Steps<'a> {
    /// On an empty tree of files.
    pub fn new(files: &'a dyn Files, tree: &'a Tree, sizes: Sizes, seed: u64) -> Self {
        Self {
            files,
            tree,
            sizes,
            seed,
            unsynced: 0,
            // Not zeroes, which a file system may leave out.
            contents: vec![b'x'; WRITE_MAX],
        }
    }

    /// Writes bytes, and syncs when it is time to.
    fn write(&mut self, file: &dyn OpenFile, offset: u64, len: u64) -> io::Result<()> {
        let mut done = 0;
        while done < len {
            let part = (len - done).min(WRITE_MAX as u64);
            file.write_at(offset + done, &self.contents[..part as usize])?;
            done += part;
            self.unsynced += part;
            if self.unsynced >= SYNC_EVERY {
                self.sync()?;
            }
        }
        Ok(())
    }

    /// Syncs now.
    pub fn sync(&mut self) -> io::Result<()> {
        self.unsynced = 0;
        self.files.sync()
    }

    fn append(&mut self, writer: &mut Writer, len: u64) -> io::Result<()> {
        self.write(&*writer.file, writer.end, len)?;
        writer.end += len;
        Ok(())
    }

    /// 70 parts of 85 in ten files.
    fn fallocate(&mut self) -> io::Result<Made> {
        self.files.make_dir("fallocate")?;
        let each = self.sizes.device / THREAD_GIB * FALLOCATED_GIB / FALLOCATE_FILES;
        let mut made = Made::default();
        for number in 0..FALLOCATE_FILES {
            let path = format!("fallocate/{number}");
            self.files.create(&path)?.fallocate(0, each)?;
            made.paths.push(path);
        }
        made.is_removed = true;
        Ok(made)
    }

    fn copy(&mut self) -> io::Result<Made> {
        self.copies("copy")
    }

    fn untar(&mut self) -> io::Result<Made> {
        self.copies("untar")
    }

    fn copies(&mut self, name: &str) -> io::Result<Made> {
        let mut made = Made::default();
        for copy in 0..COPIES {
            self.copy_tree(&format!("{name}{copy}"), &mut made)?;
        }
        Ok(made)
    }

    fn copy_tree(&mut self, root: &str, made: &mut Made) -> io::Result<()> {
        let tree = self.tree;
        let mut paths: Vec<String> = Vec::with_capacity(tree.directories.len());
        for (index, directory) in tree.directories.iter().enumerate() {
            let path = match index {
                0 => root.to_owned(),
                _ => format!("{}/d{index}", paths[directory.parent]),
            };
            self.files.make_dir(&path)?;
            for (number, &size) in directory.files.iter().enumerate() {
                let path = format!("{path}/f{number}");
                let file = self.files.create(&path)?;
                self.write(&*file, 0, size)?;
                if size > 0 {
                    made.paths.push(path);
                }
            }
            paths.push(path);
        }
        Ok(())
    }

    /// One archive of all copies.
    fn tar(&mut self) -> io::Result<Made> {
        let sizes = self.tree.directories.iter().flat_map(|d| &d.files);
        let bytes = sizes.sum::<u64>() * COPIES as u64;
        let mut archive = Writer {
            file: self.files.create("archive")?,
            end: 0,
        };
        while archive.end < bytes {
            self.append(&mut archive, TAR_RECORD)?;
        }
        Ok(Made {
            paths: vec!["archive".to_owned()],
            is_removed: false,
        })
    }

    fn single_dd(&mut self) -> io::Result<Made> {
        self.dd("single", 1, self.sizes.single)
    }

    fn multiple_dd(&mut self) -> io::Result<Made> {
        self.dd("multiple", 10, self.sizes.each)
    }

    /// Files of `each` MiB at once; whose turn it is to write a MiB is random.
    fn dd(&mut self, name: &str, files: u64, each: u64) -> io::Result<Made> {
        let mut random = SplitMix64::new(self.seed ^ 0x6464);
        self.files.make_dir(name)?;
        let paths: Vec<_> = (0..files).map(|nr| format!("{name}/{nr}")).collect();
        let open = |path: &String| {
            let file = self.files.create(path)?;
            Ok(Writer { file, end: 0 })
        };
        let mut writers: Vec<Writer> = paths.iter().map(open).collect::<io::Result<_>>()?;
        while !writers.is_empty() {
            let turn = random.below(writers.len() as u64) as usize;
            self.append(&mut writers[turn], MIB)?;
            if writers[turn].end == each * MIB {
                writers.swap_remove(turn);
            }
        }
        Ok(Made {
            paths,
            is_removed: true,
        })
    }

    /// Writes, appends, allocations and removals of four tasks, each in its own directory.
    fn mix(&mut self) -> io::Result<Made> {
        const TASKS: usize = 4;
        const FILES_MAX: usize = 64;
        const SIZE_MAX: u64 = 4 * MIB;
        let mut random = SplitMix64::new(self.seed ^ 0x6673_7374);
        let mut tasks: Vec<Vec<(String, Writer)>> = (0..TASKS).map(|_| Vec::new()).collect();
        for task in 0..TASKS {
            self.files.make_dir(&format!("task{task}"))?;
        }
        for operation in 0..self.sizes.operations {
            let task = random.below(TASKS as u64) as usize;
            let files = &mut tasks[task];
            let kind = random.below(10);
            if files.is_empty() || kind < 2 && files.len() < FILES_MAX {
                let path = format!("task{task}/{operation}");
                let file = self.files.create(&path)?;
                files.push((path, Writer { file, end: 0 }));
                continue;
            }
            let which = random.below(files.len() as u64) as usize;
            let (offset, len) = (random.below(SIZE_MAX), 1 + random.below(128 << 10));
            let (path, writer) = &mut files[which];
            match kind {
                0..4 => {
                    self.write(&*writer.file, offset, len)?;
                    writer.end = writer.end.max(offset + len);
                }
                4..8 if writer.end < SIZE_MAX => self.append(writer, len)?,
                8 => {
                    writer.file.fallocate(offset, len * 4)?;
                    writer.end = writer.end.max(offset + len * 4);
                }
                _ => {
                    self.files.unlink(path)?;
                    files.swap_remove(which);
                }
            }
        }
        let left = tasks.into_iter().flatten().map(|(path, _)| path);
        Ok(Made {
            paths: left.collect(),
            is_removed: false,
        })
    }
}
