//! The steps: fallocate, copy, tar, untar, one dd, ten dd, and a mix of everything.

use crate::experiment::{Failure, Scale, Setting};
use crate::mballoc::file::FileNr;
use crate::mballoc::tree::Tree;
use crate::mballoc::volume::Volume;
use uext4_testkit::SplitMix64;

/// A step and its name.
pub type Step = fn(&mut Session<'_>) -> Result<Done, Failure>;

/// All of them in their order.
pub const STEPS: &[(&str, Step)] = &[
    ("fallocate", fallocate),
    ("copy", copy),
    ("tar", tar),
    ("untar", untar),
    ("single_dd", single_dd),
    ("multiple_dd", multiple_dd),
    ("fsstress", fsstress),
];

/// What the steps work on, and what one leaves for another.
#[derive(Debug)]
pub struct Session<'a> {
    /// The file system.
    pub volume: Volume,
    tree: &'a Tree,
    setting: &'a Setting,
    /// Files of the copies, in the tree's order.
    copies: Vec<FileNr>,
    archive: Option<FileNr>,
}

impl<'a> Session<'a> {
    /// On a volume with nothing done yet.
    pub fn new(volume: Volume, tree: &'a Tree, setting: &'a Setting) -> Self {
        Self {
            volume,
            tree,
            setting,
            copies: Vec::new(),
            archive: None,
        }
    }
}

/// What a step did.
#[derive(Debug, Default)]
pub struct Done {
    /// Files that are to be measured.
    pub made: Vec<FileNr>,
    /// Those of them that are removed when they were.
    pub removed_after: Vec<FileNr>,
    /// Writes there was no space for.
    pub left_out: u64,
}

const MIB: u64 = 1 << 20;
/// Bytes of a record of the archive, and of the header before each file in it.
const TAR_RECORD: u64 = 10 << 10;
const TAR_HEADER: u64 = 512;
/// Copies of the tree, which are what the thread's machine copied, archived and unpacked at once.
const COPIES: usize = 5;
/// GiB of the thread's device, and of those that were fallocated on it.
const THREAD_GIB: u64 = 85;
const FALLOCATED_GIB: u64 = 70;
/// They are fallocated in that many files.
const FALLOCATE_FILES: u64 = 10;

/// 70 GiB of 85 in ten files, which are removed.
fn fallocate(session: &mut Session<'_>) -> Result<Done, Failure> {
    let volume = &mut session.volume;
    let part = volume.make_directory(None, FALLOCATE_FILES)?;
    let each = volume.device() / THREAD_GIB * FALLOCATED_GIB / FALLOCATE_FILES;
    let mut done = Done::default();
    for _ in 0..FALLOCATE_FILES {
        let nr = volume.create(part);
        done.left_out += u64::from(!volume.fallocate(nr, 0, each)?);
        volume.close(nr);
        done.made.push(nr);
    }
    done.removed_after = done.made.clone();
    Ok(done)
}

/// Five copies of the tree, one after the other.
fn copy(session: &mut Session<'_>) -> Result<Done, Failure> {
    let mut done = Done::default();
    for _ in 0..COPIES {
        copy_tree(session, &mut done)?;
    }
    session.copies = done.made.clone();
    Ok(done)
}

/// The copies are read and one archive of them written.
fn tar(session: &mut Session<'_>) -> Result<Done, Failure> {
    let volume = &mut session.volume;
    let mut done = Done::default();
    let part = volume.make_directory(None, 1)?;
    let archive = volume.create(part);
    let sizes = session.tree.directories.iter().flat_map(|d| &d.files);
    let (mut end, mut written) = (0, 0);
    for (size, &source) in sizes.cycle().zip(&session.copies) {
        volume.read(source);
        end += TAR_HEADER + size.next_multiple_of(TAR_HEADER);
        while written + TAR_RECORD <= end {
            done.left_out += u64::from(!volume.write(archive, written, TAR_RECORD)?);
            written += TAR_RECORD;
        }
    }
    done.left_out += u64::from(!volume.write(archive, written, TAR_RECORD)?);
    volume.close(archive);
    done.made.push(archive);
    session.archive = Some(archive);
    Ok(done)
}

/// The archive is read, and what is in it written.
fn untar(session: &mut Session<'_>) -> Result<Done, Failure> {
    let mut done = Done::default();
    if let Some(archive) = session.archive {
        session.volume.read(archive);
    }
    for _ in 0..COPIES {
        copy_tree(session, &mut done)?;
    }
    Ok(done)
}

/// Makes the tree's files, each written as a whole and closed.
fn copy_tree(session: &mut Session<'_>, done: &mut Done) -> Result<(), Failure> {
    let (volume, tree) = (&mut session.volume, session.tree);
    let mut parts: Vec<usize> = Vec::with_capacity(tree.directories.len());
    for (index, directory) in tree.directories.iter().enumerate() {
        let parent = (index > 0).then(|| parts[directory.parent]);
        let part = volume.make_directory(parent, directory.files.len() as u64)?;
        parts.push(part);
        for &size in &directory.files {
            let nr = volume.create(part);
            if size > 0 {
                done.left_out += u64::from(!volume.write(nr, 0, size)?);
            }
            volume.close(nr);
            done.made.push(nr);
        }
    }
    Ok(())
}

/// One file of 1 GiB, 1 MiB at a time.
fn single_dd(session: &mut Session<'_>) -> Result<Done, Failure> {
    dd(&mut session.volume, 1, 1024, 0)
}

/// Ten files of 256 MiB, half of that when quick; whose turn it is to write a MiB is random.
fn multiple_dd(session: &mut Session<'_>) -> Result<Done, Failure> {
    let each = match session.setting.scale {
        Scale::Quick => 128,
        Scale::Full => 256,
    };
    dd(&mut session.volume, 10, each, session.setting.seed)
}

/// `files` files of `each` MiB at once.
///
/// # Errors
/// As for [`Volume::write`].
pub fn dd(volume: &mut Volume, files: usize, each: u64, seed: u64) -> Result<Done, Failure> {
    let mut random = SplitMix64::new(seed ^ 0x6464);
    let mut done = Done::default();
    let part = volume.make_directory(None, files as u64)?;
    done.made.extend((0..files).map(|_| volume.create(part)));
    let mut writing: Vec<(FileNr, u64)> = done.made.iter().map(|&nr| (nr, 0)).collect();
    while !writing.is_empty() {
        let turn = random.below(writing.len() as u64) as usize;
        let (nr, at) = writing[turn];
        done.left_out += u64::from(!volume.write(nr, at * MIB, MIB)?);
        writing[turn].1 += 1;
        if at + 1 == each {
            volume.close(nr);
            writing.swap_remove(turn);
        }
    }
    done.removed_after = done.made.clone();
    Ok(done)
}

/// Ten thousand operations of four tasks, each on files of its own directory.
fn fsstress(session: &mut Session<'_>) -> Result<Done, Failure> {
    const TASKS: usize = 4;
    const OPERATIONS: usize = 10_000;
    const FILES_MAX: usize = 64;
    const SIZE_MAX: u64 = 4 * MIB;
    let volume = &mut session.volume;
    let mut random = SplitMix64::new(session.setting.seed ^ 0x6673_7374);
    let mut done = Done::default();
    let mut tasks: Vec<(usize, Vec<FileNr>)> = Vec::new();
    for _ in 0..TASKS {
        tasks.push((volume.make_directory(None, FILES_MAX as u64)?, Vec::new()));
    }
    for _ in 0..OPERATIONS {
        let (part, files) = &mut tasks[random.below(TASKS as u64) as usize];
        let operation = random.below(10);
        if files.is_empty() || operation < 2 && files.len() < FILES_MAX {
            files.push(volume.create(*part));
            continue;
        }
        let which = random.below(files.len() as u64) as usize;
        let nr = files[which];
        let offset = random.below(SIZE_MAX);
        let len = 1 + random.below(128 << 10);
        let fits = match operation {
            0..4 => volume.write(nr, offset, len)?,
            4..6 => volume.write(nr, volume.size(nr).min(SIZE_MAX), len)?,
            6 => volume.fallocate(nr, offset, len * 4)?,
            7 => {
                volume.truncate(nr, offset.min(volume.size(nr)));
                true
            }
            8 => {
                volume.punch(nr, offset, len);
                true
            }
            _ => {
                volume.close(nr);
                volume.unlink(nr);
                files.swap_remove(which);
                true
            }
        };
        done.left_out += u64::from(!fits);
    }
    for (_, files) in tasks {
        files.iter().for_each(|&nr| volume.close(nr));
        done.made.extend(files);
    }
    Ok(done)
}
