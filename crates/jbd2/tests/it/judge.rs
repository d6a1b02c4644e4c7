//! The judges of recovery: what the maker of a log expects, and the kernel.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use uext4_blockdev::MemoryDevice;
use uext4_jbd2::{LogRun, Recovery};
use uext4_ondisk::journal::JournalIncompat;
use uext4_ondisk::{BlockSize, Pblk};
use uext4_testkit::{Mount, can_mount, debugfs, mke2fs};

use crate::maker::{Kind, Maker, PLAIN, Place, V1, V2, V3, all_kinds};

/// What recovery of a hand-made log must come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// So many transactions are replayed.
    Replays(u32),
    /// So many, then a commit with a wrong checksum. The kernel replays them and then refuses.
    FailedCommit(u32),
    /// No thread reads it.
    Refused,
    /// So many; the kernel refuses.
    MoreThanKernel(u32),
    /// So many; the kernel goes on to what it found damaged.
    FewerThanKernel(u32),
    /// An error; the kernel goes on where one must not.
    LessThanKernel,
}

/// Runs a case on a bare device for all kinds of journals, and on a file system for some, which
/// the kernel then replays too.
pub fn judge(case: impl Fn(&mut Maker) -> Verdict) {
    judge_kinds(&all_kinds(), &case);
}

/// As [`judge`], for these kinds of journals only.
pub fn judge_kinds(kinds: &[Kind], case: impl Fn(&mut Maker) -> Verdict) {
    for &kind in kinds {
        judge_ours(&mut Maker::new(Place::bare(), kind), &case);
    }
    let Some(place) = image_place() else {
        return;
    };
    let wide = JournalIncompat::BIT64;
    let chosen = [PLAIN, V1, V2.with(wide), V3, V3.with(wide)];
    let fits = |kind: &&Kind| {
        let plain = Kind::new(kind.compat, kind.incompat - JournalIncompat::ASYNC_COMMIT);
        chosen.contains(&plain)
    };
    for &kind in kinds.iter().filter(fits) {
        let device = Arc::new(place.device.snapshot());
        let mut maker = Maker::new(
            Place {
                device,
                ..place.clone()
            },
            kind,
        );
        let verdict = judge_ours(&mut maker, &case);
        judge_kernel(&maker, verdict, kind);
    }
}

fn judge_ours(maker: &mut Maker, case: &impl Fn(&mut Maker) -> Verdict) -> Verdict {
    let verdict = case(maker);
    maker.finish();
    let recovery = maker.recover();
    let check = |recovery: &Recovery, transactions: u32, failed: bool| {
        assert_eq!(recovery.transactions, transactions, "{:?}", recovery.replay);
        let first = recovery.superblock.s_sequence.get();
        let next = first.wrapping_add(transactions);
        assert_eq!(recovery.next_sequence, next);
        assert_eq!(recovery.failed_commit, failed.then_some(next));
        maker.assert_homes(&maker.replayed(recovery), "ours");
    };
    match verdict {
        Verdict::Replays(n) | Verdict::MoreThanKernel(n) | Verdict::FewerThanKernel(n) => {
            check(&recovery.unwrap(), n, false)
        }
        Verdict::FailedCommit(n) => check(&recovery.unwrap(), n, true),
        Verdict::Refused | Verdict::LessThanKernel => {
            let found = recovery.map(|r| r.transactions);
            assert!(found.is_err(), "replayed {found:?}");
        }
    }
    verdict
}

/// Has the kernel replay the same.
fn judge_kernel(maker: &Maker, verdict: Verdict, kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let mut bytes = maker.place.device.to_bytes();
    // needs_recovery, in a superblock without a checksum.
    bytes[1024 + 0x60] |= 4;
    fs::write(&image, bytes).unwrap();
    let mounted = mounts(&image, "defaults");
    let device = MemoryDevice::from_bytes(fs::read(&image).unwrap());
    match verdict {
        Verdict::Replays(_) => assert!(mounted, "{kind:?}: the kernel refuses"),
        Verdict::LessThanKernel | Verdict::FewerThanKernel(_) => return,
        _ => assert!(!mounted, "{kind:?}: the kernel mounts"),
    }
    if let Verdict::Replays(_) | Verdict::FailedCommit(_) = verdict {
        maker.assert_homes(&device, &format!("kernel, {kind:?}"));
    }
}

/// Mounts an image and unmounts it again. False if the kernel refuses.
pub fn mounts(image: &Path, options: &str) -> bool {
    Mount::attempt(image, options).is_ok()
}

/// The pieces of an image's journal, as debugfs reports them: `(0-11):8-19, (IND):20, (12):21`.
pub fn journal_runs(image: &Path) -> Vec<LogRun> {
    let reported = debugfs(image, "stat <8>");
    let mut words = reported.split_whitespace();
    words.find(|word| ["BLOCKS:", "EXTENTS:"].contains(word));
    let pieces = words.map_while(|word| word.strip_prefix('(')?.split_once("):"));
    let data = pieces.filter(|(logical, _)| logical.starts_with(|c: char| c.is_ascii_digit()));
    let runs = data.map(|(_, blocks)| {
        let blocks = blocks.trim_end_matches(',');
        let (first, last) = blocks.split_once('-').unwrap_or((blocks, blocks));
        let (first, last): (u64, u64) = (first.parse().unwrap(), last.parse().unwrap());
        LogRun {
            start: Pblk(first),
            len: (last + 1 - first) as u32,
        }
    });
    runs.collect()
}

/// An empty file system with a journal of 2,048 blocks in several pieces; `None` if no thread may
/// mount it.
fn image_place() -> Option<&'static Place> {
    static PLACE: OnceLock<Option<Place>> = OnceLock::new();
    PLACE.get_or_init(|| can_mount().then(make_place)).as_ref()
}

fn make_place() -> Place {
    let dir = tempfile::tempdir().unwrap();
    let image: PathBuf = dir.path().join("image");
    let options = "-t ext4 -b 1024 -g 1024 -N 64 -J size=2 \
                   -O ^metadata_csum,^resize_inode,^flex_bg,^64bit";
    mke2fs(&image, options.split_whitespace(), "6M");
    let runs = journal_runs(&image);
    assert!(runs.len() > 1, "{runs:?}");
    assert_eq!(runs.iter().map(|run| run.len).sum::<u32>(), 2048);
    let free = debugfs(&image, "ffb 64 4000");
    let homes = free.split_whitespace().filter_map(|word| word.parse().ok());
    let homes: Vec<_> = homes.map(Pblk).collect();
    assert_eq!(homes.len(), 64, "{free}");
    Place {
        device: Arc::new(MemoryDevice::from_bytes(fs::read(&image).unwrap())),
        size: BlockSize::from_bytes(1024).unwrap(),
        blocks_count: 6144,
        runs,
        homes,
    }
}
