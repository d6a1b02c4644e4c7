//! Journals that the kernel left behind, as after a power cut: the whole image must read as what
//! the kernel makes of a copy, and e2fsck of another.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uext4_blockdev::{BlockDevice, MemoryDevice};
use uext4_jbd2::{LogRun, Recovery, ReplayedDevice, recover};
use uext4_ondisk::journal::{BlockType, JBD2_MAGIC, JournalHeader};
use uext4_ondisk::superblock::SuperBlock;
use uext4_ondisk::{BlockSize, Geometry, Pblk};
use uext4_testkit::{Mount, assert_e2fsck, can_mount, run};
use zerocopy::big_endian::U32;

use crate::judge::{journal_runs, mounts};

/// How the power goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// After the running transaction was committed.
    Committed,
    /// Before.
    Uncommitted,
    /// While it goes on: the file below is copied as it is.
    Running,
}

fn fill(path: &Path, len: usize, byte: u8) {
    let mut bytes = vec![byte; len];
    // Where data is journaled, such blocks must be escaped.
    for block in bytes.chunks_mut(2048) {
        block[..4].copy_from_slice(&U32::new(JBD2_MAGIC).to_bytes());
    }
    fs::write(path, bytes).unwrap();
}

fn sync(root: &Path) {
    run("sync", ["-f".as_ref(), root.as_os_str()]);
}

/// Changes of every kind in several transactions: directories that go, so that their blocks are
/// revoked, and come back as data or as other directories.
fn change(root: &Path) {
    for round in 0..4u8 {
        let dir = root.join(format!("d{round}"));
        fs::create_dir(&dir).unwrap();
        for number in 0..150 {
            let name = format!("a rather long name, so that there are many blocks {number:04}");
            File::create(dir.join(name)).unwrap();
        }
        fill(&root.join(format!("big{round}")), 300_000, round);
        sync(root);
        if round > 0 {
            let old = root.join(format!("d{}", round - 1));
            fs::remove_dir_all(&old).unwrap();
            fill(&root.join("reused"), 100_000, 0x55 + round);
            let big = root.join(format!("big{}", round - 1));
            File::options()
                .write(true)
                .open(&big)
                .unwrap()
                .set_len(5_000)
                .unwrap();
            fs::rename(&big, root.join("renamed")).unwrap();
        }
        let file = File::create(root.join("synced")).unwrap();
        file.write_all_at(&[round; 5000], 70_000).unwrap();
        file.sync_all().unwrap();
    }
    fs::remove_dir_all(root.join("d3")).unwrap();
    fill(&root.join("last"), 20_000, 9);
}

/// The same, until the kernel left some transactions in the log: it writes blocks to their homes
/// and drops what was logged whenever it has the time. A commit between the removal of a file and
/// the end of its truncation leaves an orphan, which a mount removes after the replay, read-only
/// or not: such an image says nothing of the replay alone.
fn crash_with_a_full_log(dir: &Path, mke2fs: &str, options: &str, end: End) -> (PathBuf, Judged) {
    let (mut transactions, mut orphans) = (0, 0);
    for _ in 0..20 {
        let image = crash(dir, mke2fs, options, end);
        let ours = Judged::new(&image);
        transactions = ours.recovery.transactions;
        orphans += usize::from(ours.has_orphans());
        if transactions >= 4 && !ours.has_orphans() {
            return (image, ours);
        }
    }
    panic!("{end:?}: {transactions} transactions, orphans in {orphans} of 20 images");
}

/// The image as it is after all this.
fn crash(dir: &Path, mke2fs: &str, options: &str, end: End) -> PathBuf {
    let (image, crashed) = (dir.join("image"), dir.join("crashed"));
    let _ = fs::remove_file(&image);
    let more = ["-E", "lazy_itable_init=0"];
    uext4_testkit::mke2fs(&image, mke2fs.split_whitespace().chain(more), "24M");
    let mount = Mount::new(&image, options);
    change(mount.path());
    match end {
        End::Committed => mount.shut_down(1),
        End::Uncommitted => mount.shut_down(2),
        End::Running => sync(mount.path()),
    }
    copy(&image, &crashed);
    crashed
}

fn copy(from: &Path, to: &Path) {
    let arguments = ["--sparse=always".as_ref(), from.as_os_str(), to.as_os_str()];
    run("cp", arguments);
}

/// What every block must be that a replay does not own: all but the journal and the superblock.
struct Judged {
    size: BlockSize,
    runs: Vec<LogRun>,
    recovery: Recovery,
    replayed: ReplayedDevice,
    blocks_count: u64,
}

impl Judged {
    fn new(image: &Path) -> Self {
        let bytes = fs::read(image).unwrap();
        let sb = SuperBlock::parse(&bytes[1024..]).unwrap();
        let geometry = Geometry::new(&sb).unwrap();
        let (size, blocks_count) = (geometry.block_size, geometry.blocks_count);
        let base: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_bytes(bytes));
        let runs = journal_runs(image);
        let recovery = recover(&*base, size, blocks_count, &runs).unwrap();
        let replayed = ReplayedDevice::new(base, size, recovery.replay.clone());
        Self {
            size,
            runs,
            recovery,
            replayed,
            blocks_count,
        }
    }

    fn block(&self, device: &dyn BlockDevice, block: Pblk) -> Vec<u8> {
        let mut bytes = vec![0; self.size.len()];
        let offset = self.size.byte_offset(block).unwrap();
        device.read_at(offset, &mut bytes).unwrap();
        bytes
    }

    /// Whether files wait for their removal, by the superblock after the replay.
    fn has_orphans(&self) -> bool {
        let mut bytes = [0; 1024];
        self.replayed.read_at(1024, &mut bytes).unwrap();
        SuperBlock::parse(&bytes).unwrap().s_last_orphan.get() != 0
    }

    /// Blocks of the journal that are of this type.
    fn log_blocks(&self, kind: BlockType) -> usize {
        let blocks = self.runs.iter().flat_map(|run| {
            let blocks = (0..run.len).map(|i| Pblk(run.start.0 + u64::from(i)));
            blocks.map(|block| self.block(&**self.replayed.base(), block))
        });
        let is_kind = |block: &Vec<u8>| JournalHeader::parse(block).is_some_and(|h| h.0 == kind);
        blocks.filter(is_kind).count()
    }

    fn assert_equal(&self, image: &Path, who: &str) {
        let theirs = MemoryDevice::from_bytes(fs::read(image).unwrap());
        let superblock = Pblk(1024 >> self.size.log2());
        for number in 0..self.blocks_count {
            let block = Pblk(number);
            let mut runs = self.runs.iter();
            let inside = |run: &LogRun| number.wrapping_sub(run.start.0) < u64::from(run.len);
            if block == superblock || runs.any(inside) {
                continue;
            }
            let same = self.block(&self.replayed, block) == self.block(&theirs, block);
            let named = self.recovery.replay.get(block);
            assert!(same, "{who}: block {number} differs; in the log: {named:?}");
        }
    }
}

fn judge(mke2fs: &str, options: &str) {
    if !can_mount() {
        return;
    }
    for end in [End::Committed, End::Uncommitted, End::Running] {
        let dir = tempfile::tempdir().unwrap();
        let (image, ours) = crash_with_a_full_log(dir.path(), mke2fs, options, end);
        assert!(ours.recovery.replay.len() > 20);
        assert_eq!(ours.recovery.failed_commit, None);
        if !options.contains("data=journal") {
            assert!(
                ours.log_blocks(BlockType::Revoke) > 0,
                "{end:?}: no revokes"
            );
        } else {
            let mut blocks = ours.recovery.replay.blocks().iter();
            assert!(blocks.any(|block| block.escaped), "{end:?}: no escapes");
        }
        let kernel = dir.path().join("kernel");
        copy(&image, &kernel);
        assert!(mounts(&kernel, "ro"), "the kernel refuses");
        ours.assert_equal(&kernel, &format!("kernel, {end:?}"));
        let e2fsck = dir.path().join("e2fsck");
        copy(&image, &e2fsck);
        assert_e2fsck(&e2fsck, "-y -E journal_only", 1);
        ours.assert_equal(&e2fsck, &format!("e2fsck, {end:?}"));
    }
}

#[test]
fn v3_sums() {
    judge("-t ext4 -b 1024", "defaults");
    judge("-t ext4 -b 4096", "defaults");
}

#[test]
fn v3_sums_without_64bit() {
    judge("-t ext4 -b 1024 -O ^64bit", "defaults");
}

#[test]
fn no_sums() {
    judge("-t ext4 -b 1024 -O ^metadata_csum", "defaults");
    judge("-t ext4 -b 4096 -O ^metadata_csum,^64bit", "defaults");
    judge("-t ext3 -b 1024", "defaults");
}

#[test]
fn v1_sums() {
    judge("-t ext4 -b 1024 -O ^metadata_csum", "journal_checksum");
    judge(
        "-t ext4 -b 4096 -O ^metadata_csum,^64bit",
        "journal_checksum",
    );
}

#[test]
fn early_commits() {
    let options = "journal_async_commit,data=writeback";
    judge("-t ext4 -b 1024", options);
    judge("-t ext4 -b 1024 -O ^metadata_csum,^64bit", options);
}

#[test]
fn data_in_the_journal() {
    judge("-t ext4 -b 1024 -J size=8", "data=journal");
    judge(
        "-t ext4 -b 2048 -O ^metadata_csum -J size=8",
        "data=journal",
    );
}
