//! A repair, or a change by `tune`, that a power cut ended: every opening for writing finishes it
//! first, every reader reads through its log, and no file is lost, wherever the cut was.

use std::sync::Arc;

use uext4::rescue::CutRepair;
use uext4::{Damage, Error, Image, NewInode, OpenOptions, Volume};
use uext4_blockdev::{BlockDevice, MemoryDevice};
use uext4_fsck::tune::{Change, tune};
use uext4_fsck::{Options, Overlay, UnfinishedRepair, Writes, apply, plan};
use uext4_ondisk::Ino;
use uext4_ondisk::repair_log::RepairPointer;
use uext4_ondisk::superblock::SUPERBLOCK_OFFSET;
use uext4_testkit::damage::Survey;
use uext4_testkit::{SimDevice, SimOptions, has_tool};

use crate::left::HOW;
use crate::made::{made, mount};
use crate::tree::{Oracle, Tree, of_image};

/// What is written to an image, and the tree that it holds before and after.
struct Case {
    image: MemoryDevice,
    overlay: Overlay,
    writes: Writes,
    tree: Tree,
}

impl Case {
    fn write(&self, device: &dyn BlockDevice) -> uext4_fsck::Result<u64> {
        apply::in_place(device, &self.overlay, &self.writes, None, &|_| ())
    }

    /// The image after a cut at a write.
    fn cut(&self, at: u64) -> MemoryDevice {
        let seed = at;
        let options = SimOptions {
            seed,
            ..SimOptions::default()
        };
        let device = SimDevice::new(&self.image, options);
        device.cut_at_write(at);
        assert!(self.write(&device).is_err());
        device.power_cut(seed)
    }

    fn changes(&self) -> u64 {
        let device = SimDevice::new(&self.image, SimOptions::default());
        self.write(&device).unwrap();
        device.stats().changes()
    }
}

fn open(device: &MemoryDevice) -> Image {
    Image::open(Arc::new(device.snapshot()), &OpenOptions::default()).unwrap()
}

fn tree(fs: &Image) -> Tree {
    let mut tree = of_image(fs, Oracle::Mount);
    tree.retain(|path, _| !path.is_empty());
    tree
}

/// Files and directories, closed, with two groups at least, so that there is a backup of the
/// superblock.
fn filled(flags: &str, blocks: u64) -> MemoryDevice {
    let device = made(flags, blocks);
    let fs = mount(Arc::clone(&device) as _);
    let root = fs.root().unwrap();
    for nr in 0..12_u8 {
        let name = format!("dir{nr}");
        let dir = root.create(name.as_bytes(), NewInode::Directory, &HOW);
        let dir = dir.unwrap();
        for file in 0..6_u8 {
            let name = format!("file{file}");
            let file = dir.create(name.as_bytes(), NewInode::File, &HOW).unwrap();
            file.write_at(0, &vec![b'a' + nr; 3000]).unwrap();
        }
    }
    drop(root);
    fs.close().unwrap();
    device.snapshot()
}

/// A change that rewrites all inode tables.
fn tuned() -> Case {
    let image = filled("-t ext4 -b 1024 -I 128", 16_384);
    let tree = tree(&open(&image));
    let device: Arc<dyn BlockDevice> = Arc::new(image.snapshot());
    let changes = [Change::InodeSize(256)];
    let tuned = tune(&device, &Options::default(), &changes, &()).unwrap();
    Case {
        image,
        overlay: tuned.overlay,
        writes: tuned.writes,
        tree,
    }
}

/// A repair of bitmaps and of the superblock.
fn repaired() -> Case {
    let image = filled("-t ext4 -b 1024", 16_384);
    let tree = tree(&open(&image));
    repair_of(image, tree)
}

/// The same of a file system without room for a log but in its journal.
fn full(flags: &str) -> Case {
    let device: Arc<dyn BlockDevice> = Arc::new(filled(flags, 4096));
    let fs = mount(Arc::clone(&device));
    let root = fs.root().unwrap();
    for nr in 0..200 {
        let name = format!("empty{nr}");
        root.create(name.as_bytes(), NewInode::File, &HOW).unwrap();
    }
    let fill = root.create(b"fill", NewInode::File, &HOW).unwrap();
    let mut end = 0;
    for len in [256 << 10, 1 << 10] {
        while fill
            .write_at(end, &vec![b'f'; len])
            .is_ok_and(|written| written == len)
        {
            end += len as u64;
        }
    }
    drop((fill, root));
    fs.close().unwrap();
    drop(fs);
    let mut bytes = vec![0; device.len() as usize];
    device.read_at(0, &mut bytes).unwrap();
    let journal = Survey::new(bytes.clone());
    let journal = &journal.known(Ino::JOURNAL).unwrap().blocks;
    // As in the kernel, two in a hundred blocks are left for maps. So more blocks of the inode
    // tables are wrong than these.
    let image = MemoryDevice::from_bytes(bytes);
    let tree = tree(&open(&image));
    let mut inode = [0; 512];
    for (group, first) in [(0, 11), (1, 0)] {
        let group = open(&image)
            .group_desc(uext4::format::GroupNr(group))
            .unwrap();
        for number in first..160 {
            let at = group.inode_table.0 * 1024 + number * 512;
            image.read_at(at, &mut inode).unwrap();
            if inode[0] != 0 || inode[1] != 0 {
                inode[0x7C] ^= 1;
                image.write_at(at, &inode).unwrap();
            }
        }
    }
    let case = repair_of(image, tree);
    for run in case.writes.log().unwrap() {
        let mut blocks = run.start..run.start + run.blocks;
        let is_journal = |block| journal.iter().any(|mapped| mapped.pblk.0 == block);
        assert!(blocks.all(is_journal), "{run:?}");
    }
    case
}

/// A repair of an image with bitmaps and counts that are wrong, and what `tree` it is to leave.
fn repair_of(image: MemoryDevice, tree: Tree) -> Case {
    let group = open(&image).group_desc(uext4::format::GroupNr(0)).unwrap();
    for bitmap in [group.block_bitmap, group.inode_bitmap] {
        image.write_at(bitmap.0 * 1024, &[0; 100]).unwrap();
    }
    image
        .write_at(SUPERBLOCK_OFFSET + 0x20, &[0xEE; 8])
        .unwrap();
    let device: Arc<dyn BlockDevice> = Arc::new(image.snapshot());
    let outcome = plan(&device, &Options::default(), &()).unwrap();
    assert!(outcome.is_clean);
    let writes = Writes::new(&outcome.overlay, &outcome.used).unwrap();
    Case {
        image,
        overlay: outcome.overlay,
        writes,
        tree,
    }
}

/// Opens for writing, changes something, closes; and judges what that leaves.
fn written(device: Arc<dyn BlockDevice>, wanted: &Tree) -> Option<CutRepair> {
    let fs = mount(Arc::clone(&device));
    let cut_repair = fs.rescue().cut_repair;
    let root = fs.root().unwrap();
    if wanted.contains_key(b"fill".as_slice()) {
        // Full: a file goes before another one comes.
        root.unlink(b"fill").unwrap();
        fs.sync().unwrap();
    }
    let file = root.create(b"new", NewInode::File, &HOW).unwrap();
    file.write_at(0, b"what comes after the cut").unwrap();
    drop((file, root));
    fs.close().unwrap();
    drop(fs);
    let found = uext4_fsck::findings(&device).unwrap();
    assert!(found.is_empty(), "{found:?}");
    let fs = Image::open(device, &OpenOptions::default()).unwrap();
    let mut left = tree(&fs);
    assert!(left.remove(b"new".as_slice()).is_some());
    let mut wanted = wanted.clone();
    wanted.remove(b"fill".as_slice());
    assert!(left == wanted, "files were lost or changed");
    cut_repair
}

fn cut_everywhere(case: &Case) {
    let changes = case.changes();
    let mut begun = 0;
    for at in 0..changes {
        let after = case.cut(at);
        let log = UnfinishedRepair::find(&after).unwrap();
        let Some(log) = log else {
            // Nothing has changed, or all has: what is damaged is the repair's.
            continue;
        };
        begun += 1;
        let finished = Some(CutRepair::Finished(log.blocks()));
        let fs = open(&after);
        assert_eq!(fs.rescue().cut_repair, finished);
        assert!(tree(&fs) == case.tree, "cut at {at}: seen through the log");
        let opened = written(Arc::new(after.snapshot()), &case.tree);
        assert_eq!(opened, finished, "cut at {at}");
        // The power goes again while the next opening finishes it.
        for again in [0, 1, log.blocks() / 2, log.blocks(), log.blocks() + 1] {
            let device = Arc::new(SimDevice::new(&after, SimOptions::default()));
            device.cut_at_write(again);
            let clock = Arc::new(uext4_blockdev::VirtualClock::new(1_700_000_000));
            let opened = Volume::open(Arc::clone(&device) as _, clock, &OpenOptions::default());
            assert!(opened.is_err());
            written(Arc::new(device.power_cut(again + at)), &case.tree);
        }
    }
    println!("{changes} cuts, {begun} with a log");
    assert!(begun > 2, "{begun}");
}

#[test]
fn a_cut_in_tune_loses_no_file_whatever_opens_the_file_system_next() {
    if has_tool("mke2fs") {
        cut_everywhere(&tuned());
    }
}

#[test]
fn a_cut_in_a_repair_loses_no_file_whatever_opens_the_file_system_next() {
    if has_tool("mke2fs") {
        cut_everywhere(&repaired());
    }
}

#[test]
fn a_cut_with_the_log_in_the_journal_loses_no_file() {
    if has_tool("mke2fs") {
        cut_everywhere(&full(
            "-t ext4 -b 1024 -g 2048 -I 512 -N 320 -m 0 -J size=1",
        ));
    }
}

#[test]
fn a_cut_with_the_log_in_the_journal_and_protection_from_other_hosts_loses_no_file() {
    if has_tool("mke2fs") {
        cut_everywhere(&full(
            "-t ext4 -b 1024 -g 2048 -I 512 -N 320 -m 0 -J size=1 -O mmp",
        ));
    }
}

/// An image with a log that is to be finished.
fn with_log() -> (Case, MemoryDevice, UnfinishedRepair) {
    let case = tuned();
    let after = case.cut(case.changes() - 2);
    let log = UnfinishedRepair::find(&after).unwrap().unwrap();
    (case, after, log)
}

fn superblock(device: &MemoryDevice) -> [u8; 1024] {
    let mut bytes = [0; 1024];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_damaged_log_is_said_to_readers_and_refused_to_writers() {
    if !has_tool("mke2fs") {
        return;
    }
    let (_, after, _) = with_log();
    let pointer = RepairPointer::find(&superblock(&after)).unwrap();
    let last = pointer.offset.get() + pointer.len.get() - 1;
    after.write_at(last, &[0x5A]).unwrap();
    assert_eq!(
        open(&after).rescue().cut_repair,
        Some(CutRepair::LogDamaged)
    );
    let before = after.to_bytes();
    let device = Arc::new(after);
    let clock = Arc::new(uext4_blockdev::VirtualClock::new(1_700_000_000));
    let opened = Volume::open(Arc::clone(&device) as _, clock, &OpenOptions::default());
    let error = opened.unwrap_err();
    assert!(
        matches!(error, Error::Corrupt(Damage::RepairLog)),
        "{error}"
    );
    assert!(error.to_string().contains("uext4 repair"), "{error}");
    assert!(
        device.to_bytes() == before,
        "a refused opening writes nothing"
    );
}

#[test]
fn a_log_that_is_out_of_date_is_forgotten_by_the_next_opening() {
    if !has_tool("mke2fs") {
        return;
    }
    let (case, after, log) = with_log();
    let pointer = superblock(&after);
    // It was finished, and the file system used since; another program kept the pointer.
    log.finish(&after).unwrap();
    mount(Arc::new(after.snapshot())).close().unwrap();
    let used = Arc::new(after.snapshot());
    mount(Arc::clone(&used) as _).close().unwrap();
    let mut bytes = superblock(&used);
    let found = RepairPointer::find(&pointer).unwrap();
    uext4_redo::primary::change(&mut bytes, |bytes| found.store(bytes));
    used.write_at(SUPERBLOCK_OFFSET, &bytes).unwrap();
    assert_eq!(open(&used).rescue().cut_repair, None);
    assert_eq!(written(Arc::clone(&used) as _, &case.tree), None);
    assert!(RepairPointer::find(&superblock(&used)).is_none());
}
