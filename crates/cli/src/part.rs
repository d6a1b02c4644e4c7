//! The part of an image that holds the file system: as options name it, or as it is found.
//!
//! Who writes gets a window that ends where another partition or the table begins, and nothing
//! that is protected: a partition marked as read-only, or what a dm-verity hash tree or a footer of
//! Android Verified Boot covers.

use std::path::PathBuf;
use std::sync::Arc;

use uext4_blockdev::partition::{self, Found, Guard, Name, Place, READ_ONLY, Window};
use uext4_blockdev::verified_boot::Footer;
use uext4_blockdev::verity::{Tree, refuse_behind};
use uext4_blockdev::{Access, BlockDevice, Error, FileDevice, SubDevice};
pub use uext4_image::fs_len as len_of;
use uext4_ondisk::Damage;
use uext4_ondisk::superblock::{SUPERBLOCK_OFFSET, SuperBlock};

use crate::args::PlaceArgs;
use crate::cut_repair;
use crate::device_failure::device_failure;
use crate::failure::{Exit, Failure};
use crate::identify;
use crate::in_disk::warn_of_given_up;
use crate::messages;
use crate::show::{escaped, size_text};

impl PlaceArgs {
    /// An image whose file system is found.
    pub fn of(image: PathBuf) -> Self {
        Self {
            image,
            offset: None,
            partition: None,
            drop_verity: false,
        }
    }

    /// The options do not say where the file system is.
    pub fn is_found(&self) -> bool {
        self.offset.is_none() && self.partition.is_none()
    }
}

/// The number of the partition that the options name; `None` if they name none, or one that the
/// table does not have.
pub fn partition_number(place: &PlaceArgs) -> Option<u32> {
    let name = match place.partition.as_ref()? {
        Name::Number(number) => return Some(*number),
        name @ Name::Text(_) => name,
    };
    let whole = FileDevice::open(&place.image, Access::ReadOnly).ok()?;
    let table = partition::read(&whole).ok()?;
    Some(name.among(&table.partitions).ok()?.number)
}

/// The byte of the image at which the file system begins; `None` if it is not found there.
pub fn start(place: &PlaceArgs) -> Option<u64> {
    if let Some(offset) = place.offset {
        return Some(offset);
    }
    let whole = FileDevice::open(&place.image, Access::ReadOnly).ok()?;
    Some(window(&(Arc::new(whole) as _), place).ok()?.start)
}

/// The part of the image that holds the file system, to be read. A file system that is longer than
/// its partition is read as far as it goes.
///
/// # Errors
/// Exit 8 if there is none where the options say, or several.
pub fn part(
    whole: Arc<dyn BlockDevice>,
    args: &PlaceArgs,
) -> Result<Arc<dyn BlockDevice>, Failure> {
    let failed = |error| device_failure(&args.image, &error);
    let Some(offset) = args.offset else {
        let window = window(&whole, args)?;
        return Ok(Arc::new(window.open(whole).map_err(failed)?));
    };
    let all = SubDevice::from_offset(Arc::clone(&whole), offset).map_err(failed)?;
    match Window::find(&*whole, &Place::Offset(offset)) {
        Ok(window) if len_of(&all).is_none_or(|len| len <= window.len_on(&*whole)) => {
            Ok(Arc::new(window.open(whole).map_err(failed)?))
        }
        _ => Ok(Arc::new(all)),
    }
}

/// The part of the image that holds the file system, to be written. With `--drop-verity`, what
/// protects it is given up.
///
/// # Errors
/// As [`part`]; exit 8 if it is protected.
pub fn part_to_write(
    whole: Arc<dyn BlockDevice>,
    args: &PlaceArgs,
) -> Result<Arc<dyn BlockDevice>, Failure> {
    let failed = |error| device_failure(&args.image, &error);
    let mut window = window(&whole, args)?;
    if args.drop_verity {
        give_up(&whole, &mut window).map_err(failed)?;
    }
    let part = window.open_to_write(whole, &len_of).map_err(failed)?;
    refuse_tree_behind(&part).map_err(failed)?;
    Ok(Arc::new(part))
}

/// Why the file system may only be read; `None` if nothing protects it, or it is not found.
pub fn protection(args: &PlaceArgs) -> Option<Error> {
    // What cannot be opened is for who opens it to report.
    let whole = FileDevice::open(&args.image, Access::ReadOnly).ok()?;
    let whole: Arc<dyn BlockDevice> = Arc::new(whole);
    let opened = window(&whole, args).ok()?.open_to_write(whole, &len_of);
    match opened.and_then(|part| refuse_tree_behind(&part)) {
        Err(
            error @ (Error::Verified { .. }
            | Error::VerifiedBoot { .. }
            | Error::ReadOnlyPartition { .. }),
        ) => Some(error),
        _ => None,
    }
}

/// The hash tree that covers the file system; `None` if there is none, or it cannot be read.
pub fn hash_tree(args: &PlaceArgs) -> Option<Covered> {
    let whole = FileDevice::open(&args.image, Access::ReadOnly).ok()?;
    let whole: Arc<dyn BlockDevice> = Arc::new(whole);
    let window = window(&whole, args).ok()?;
    let start = window.start;
    let guards = window.guards(&whole, &len_of).ok()?;
    let of_its_own = guards.into_iter().find_map(|guard| match guard {
        Guard::Tree { number, tree } => Some((Some(number), tree)),
        Guard::ReadOnly { .. } => None,
    });
    let (partition, tree) = match of_its_own {
        Some(found) => found,
        None => {
            let part = window.open(Arc::clone(&whole)).ok()?;
            let mut tree = Tree::behind(&part, len_of(&part)?).ok()??;
            tree.at = tree.at.saturating_add(start);
            (None, tree)
        }
    };
    Some(Covered {
        tree,
        partition,
        start,
        whole,
    })
}

/// The footer of Android Verified Boot that covers the file system, at its byte of the image;
/// `None` if there is none, or it cannot be read.
pub fn footer(args: &PlaceArgs) -> Option<Footer> {
    let whole = FileDevice::open(&args.image, Access::ReadOnly).ok()?;
    let whole: Arc<dyn BlockDevice> = Arc::new(whole);
    let window = window(&whole, args).ok()?;
    let part = window.open(whole).ok()?;
    let mut footer = Footer::behind(&part, len_of(&part)?).ok()??;
    footer.at = footer.at.saturating_add(window.start);
    footer.descriptors_at = footer.descriptors_at.saturating_add(window.start);
    Some(footer)
}

/// A hash tree, and what it covers.
pub struct Covered {
    /// The tree; it lies at this byte of the image.
    pub tree: Tree,
    /// The partition of the tree, if it has one of its own.
    pub partition: Option<u32>,
    /// Where the data begins in the image.
    pub start: u64,
    /// The image.
    pub whole: Arc<dyn BlockDevice>,
}

/// Gives up what protects a window: from now on it is a file system like any other.
fn give_up(whole: &Arc<dyn BlockDevice>, window: &mut Window) -> Result<(), Error> {
    let guards = window.guards(whole, &len_of)?;
    for guard in &guards {
        guard.lift(&**whole)?;
    }
    warn_of_given_up(&guards);
    if let Some(partition) = &mut window.partition {
        partition.attributes &= !READ_ONLY;
    }
    let part = window.open(Arc::clone(whole))?;
    match len_of(&part) {
        Some(len) => give_up_tree(&part, len, window.start),
        None => Ok(()),
    }
}

/// Gives up the hash tree and the footer of verified boot behind the first `len` bytes of a part
/// that begins at byte `start`.
///
/// # Errors
/// Of the device.
pub fn give_up_tree(part: &dyn BlockDevice, len: u64, start: u64) -> Result<(), Error> {
    let given_up = |what: &str, at: u64| {
        let at = at.saturating_add(start);
        messages::warning(format_args!("the {what} at byte {at} is given up"));
    };
    if let Some(tree) = Tree::behind(part, len)? {
        tree.wipe(part)?;
        given_up("dm-verity hash tree", tree.at);
    }
    if let Some(footer) = Footer::behind(part, len)? {
        footer.wipe(part)?;
        given_up("footer of Android Verified Boot", footer.at);
    }
    Ok(())
}

/// Fails if something behind a file system verifies it, in the same partition or file.
fn refuse_tree_behind(part: &SubDevice) -> Result<(), Error> {
    match len_of(part) {
        Some(len) => refuse_behind(part, len),
        None => Ok(()),
    }
}

/// True if a superblock of the ext family stands there: sound, damaged or cut off.
pub fn holds_ext(device: &dyn BlockDevice) -> bool {
    let mut bytes = [0; 1024];
    let present = device.len().saturating_sub(SUPERBLOCK_OFFSET).min(1024);
    // OK to cast: at most 1024.
    let part = &mut bytes[..present as usize];
    if device.read_at(SUPERBLOCK_OFFSET, part).is_err() {
        return false;
    }
    let has_magic = !matches!(
        SuperBlock::parse(&bytes),
        Err(Damage::SuperblockMagic { .. })
    );
    // That of a repair which was cut off comes back with the rest of it.
    has_magic || cut_repair::is_named_by(&bytes)
}

/// Where in the image the file system lies, and where it ends at the latest.
///
/// # Errors
/// As [`part`].
pub fn window(whole: &Arc<dyn BlockDevice>, args: &PlaceArgs) -> Result<Window, Failure> {
    let failed = |error| device_failure(&args.image, &error);
    let place = match (args.offset, &args.partition) {
        (Some(offset), _) => Some(Place::Offset(offset)),
        (None, Some(name)) => Some(Place::Partition(name.clone())),
        (None, None) => None,
    };
    if let Some(place) = place {
        return Window::find(&**whole, &place).map_err(failed);
    }
    // In a partition, a backup of the superblock shows that a file system was meant to be there.
    let whole_len = whole.len();
    let holds = |device: &dyn BlockDevice| {
        holds_ext(device) || device.len() < whole_len && identify::lost_its_superblock(device)
    };
    let mut found = partition::find_file_systems(Arc::clone(whole), holds).map_err(failed)?;
    match found.len() {
        0 => Ok(Window::whole()),
        1 => Ok(found
            .remove(0)
            .partition
            .map_or_else(Window::whole, Window::of)),
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

fn list(found: &[Found]) -> String {
    let list: Vec<String> = found
        .iter()
        .filter_map(|found| Some((found.partition.as_ref()?, holds_ext(&found.device))))
        .map(|(p, has_superblock)| {
            let lost = match has_superblock {
                true => "",
                false => ", its superblock is lost",
            };
            let name = match p.name.as_str() {
                "" => String::new(),
                name => format!(" {:?}", escaped(name.as_bytes())),
            };
            format!(
                "{}{name} ({} at byte {}{lost})",
                p.number,
                size_text(p.len),
                p.start
            )
        })
        .collect();
    list.join(", ")
}
