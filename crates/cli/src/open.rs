//! Opening the file system that the image options point at.

use std::path::Path;
use std::sync::Arc;

use uext4::{Filesystem, FollowLast, Inode, OpenOptions};
use uext4_blockdev::partition::{self, Found};
use uext4_blockdev::{Access, BlockDevice, FileDevice, SubDevice};
use uext4_ondisk::superblock::{SUPERBLOCK_OFFSET, SuperBlock};
use uext4_ondisk::{Damage, Ino};

use crate::args::ImageArgs;
use crate::failure::{Exit, Failure};
use crate::show::{escaped, size_text};

/// Bytes the engine may use for caches: with everything else the command stays below 256 MiB.
const MEMORY_MAX: usize = 96 << 20;

/// Opens the file system for reading.
///
/// # Errors
/// Exit 8 if the image cannot be opened, 4 if the file system in it is damaged.
pub fn open(args: &ImageArgs) -> Result<Filesystem, Failure> {
    let device = device(args)?;
    let options = OpenOptions {
        memory_max: MEMORY_MAX,
        replay_journal: !args.no_replay,
        superblock: args.superblock,
        ..OpenOptions::default()
    };
    let opened = Filesystem::open(device, &options);
    if let Ok(fs) = &opened
        && let Some(sequence) = fs.replayed().and_then(|r| r.failed_commit)
    {
        eprintln!(
            "uext4: {}: the journal's transaction {sequence} is damaged: shown is the state before it",
            args.image.display()
        );
    }
    opened.map_err(|error| {
        let failure = Failure::engine(args.image.display(), &error);
        match error {
            uext4::Error::Corrupt(_) if args.superblock.is_none() => {
                failure.hint("try a backup: `--superblock 32768` (8193 with 1 KiB blocks)")
            }
            _ => failure,
        }
    })
}

/// The device, or the part of it that holds the file system.
fn device(args: &ImageArgs) -> Result<Arc<dyn BlockDevice>, Failure> {
    let failed = |error| device_failure(&args.image, &error);
    let whole = FileDevice::open(&args.image, Access::ReadOnly).map_err(failed)?;
    let whole: Arc<dyn BlockDevice> = Arc::new(whole);
    if let Some(offset) = args.offset {
        let part = SubDevice::from_offset(whole, offset).map_err(failed)?;
        return Ok(Arc::new(part));
    }
    if let Some(number) = args.partition {
        return Ok(Arc::new(partition::open(whole, number).map_err(failed)?));
    }
    if args.superblock.is_some() && holds_ext(&*whole) {
        return Ok(whole);
    }
    let mut found = partition::find_file_systems(Arc::clone(&whole), holds_ext).map_err(failed)?;
    match found.len() {
        0 => Ok(whole),
        1 => Ok(Arc::new(found.remove(0).device)),
        count => Err(Failure::new(
            Exit::CouldNot,
            format_args!(
                "{}: {count} partitions hold an ext file system",
                args.image.display()
            ),
        )
        .hint(format!("choose one with --partition N: {}", list(&found)))),
    }
}

fn device_failure(image: &Path, error: &uext4_blockdev::Error) -> Failure {
    match error {
        // It tells the path itself.
        uext4_blockdev::Error::Open { .. } => Failure::new(Exit::CouldNot, error),
        uext4_blockdev::Error::Partition(_) => {
            Failure::new(Exit::Damaged, format_args!("{}: {error}", image.display()))
                .hint("say where the file system begins with --offset BYTES")
        }
        _ => Failure::new(Exit::CouldNot, format_args!("{}: {error}", image.display())),
    }
}

fn list(found: &[Found]) -> String {
    let list: Vec<String> = found
        .iter()
        .filter_map(|found| found.partition.as_ref())
        .map(|p| {
            let name = match p.name.as_str() {
                "" => String::new(),
                name => format!(" {:?}", escaped(name.as_bytes())),
            };
            format!(
                "{}{name} ({} at byte {})",
                p.number,
                size_text(p.len),
                p.start
            )
        })
        .collect();
    list.join(", ")
}

/// True if a superblock of the ext family stands there, sound or not.
pub fn holds_ext(device: &dyn BlockDevice) -> bool {
    let mut bytes = [0; 1024];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes).is_ok()
        && !matches!(
            SuperBlock::parse(&bytes),
            Err(Damage::SuperblockMagic { .. })
        )
}

/// The inode of a path in the image, or of `<N>`: inode number N, as in debugfs.
///
/// # Errors
/// Exit 1 if there is no such path, 4 if damage is in the way.
pub fn resolve(fs: &Filesystem, path: &[u8], last: FollowLast) -> Result<Inode, Failure> {
    let number = path
        .strip_prefix(b"<")
        .and_then(|p| p.strip_suffix(b">"))
        .and_then(|p| std::str::from_utf8(p).ok())
        .and_then(|p| p.parse().ok());
    let found = match number {
        Some(ino) => fs.inode(Ino(ino)),
        None => fs.resolve(path, last),
    };
    found.map_err(|error| Failure::engine(escaped(path), &error))
}
