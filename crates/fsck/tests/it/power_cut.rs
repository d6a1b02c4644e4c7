//! Power cuts at the writes of repairs: the next run ends in the same tree.
//!
//! A plan is written to a simulated device, which loses its power after each of the writes in turn
//! and keeps any part of what was not flushed. The next run, which finishes what it finds begun
//! and plans anew, must leave the same bytes in all blocks in use as a run without a cut.
//!
//! `UEXT4_LONG` cuts 200 repairs at every write, in place of 10 at some.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use uext4_blockdev::{BlockDevice, MemoryDevice};
use uext4_fsck::{ClusterSet, Error, Options, Outcome, UnfinishedRepair, Writes, apply, plan};
use uext4_ondisk::superblock::SuperBlock;
use uext4_ondisk::{BlockSize, Pblk};
use uext4_testkit::damage::images;
use uext4_testkit::damage::{Kind, Sums, kinds};
use uext4_testkit::e2fsprogs::{debugfs_script, debugfs_write, dumpe2fs, e2fsck, mke2fs};
use uext4_testkit::{SimDevice, SimOptions, assert_clean, has_tool, scratch};

use crate::cases::{assert_none, is_long, pick, run};
use crate::judge::MEMORY_MAX;

/// Repairs of the long run, and of the quick one.
const REPAIRS: [usize; 2] = [200, 10];
/// Cuts of a repair in the quick run.
const CUTS_QUICK: u64 = 12;
/// The time of all repairs: the same, as they write it.
const NOW: u32 = 1_900_000_000;

/// One damage of one image.
#[derive(Clone, Copy, Debug)]
struct Case {
    kind: &'static Kind,
    image: usize,
}

impl Case {
    fn name(&self) -> String {
        format!("{} on {}", self.kind.name, images::ALL[self.image].name)
    }

    /// The damaged image, if there is a place for the damage.
    fn damaged(&self) -> Option<MemoryDevice> {
        let sample = images::sample(self.image);
        let damaged = self.kind.apply(&sample.survey, Sums::Stale, 1)?;
        Some(MemoryDevice::from_bytes(damaged.bytes))
    }
}

/// Kinds of damage in their order, each on another image, until there are enough.
fn cases() -> Vec<Case> {
    let wanted = REPAIRS[usize::from(!is_long())];
    let kinds: Vec<_> = kinds().filter(|kind| kind.hopeless.is_none()).collect();
    let step = (kinds.len() / wanted).max(1);
    let all = (0..images::ALL.len()).flat_map(|round| {
        let kinds = kinds.iter().map(|kind| (kind, pick(kind.name)));
        let kinds = kinds.filter(move |(_, nr)| nr.is_multiple_of(step));
        kinds.map(move |(kind, nr)| Case {
            kind,
            image: (nr + round) % images::ALL.len(),
        })
    });
    all.filter(|case| case.damaged().is_some())
        .take(wanted)
        .collect()
}

fn planned(device: Arc<dyn BlockDevice>) -> Result<Outcome, Error> {
    let options = Options {
        memory: MEMORY_MAX,
        remake: true,
        now: NOW,
        ..Options::default()
    };
    plan(&device, &options, &())
}

/// What the next run does: finishes what was begun, and then whatever else there is to do.
fn rerun(device: &Arc<SimDevice>) -> Result<(), Error> {
    if let Some(repair) = UnfinishedRepair::find(&**device)? {
        apply::finish(&**device, &repair, &|_| ())?;
    }
    let outcome = planned(Arc::clone(device) as _)?;
    let writes = Writes::new(&outcome.overlay, &outcome.used)?;
    apply::in_place(&**device, &outcome.overlay, &writes, None, &|_| ())?;
    Ok(())
}

/// The bytes of all blocks in use, and of those before the first cluster. The block for multiple
/// mount protection is left out: a cut leaves the name of the host that repaired in it.
fn in_use(image: &MemoryDevice, block_size: BlockSize, used: &ClusterSet) -> Vec<u8> {
    let mut bytes = image.to_bytes();
    let superblock = SuperBlock::parse(&bytes[1024..2048]).unwrap();
    let mmp = Pblk(superblock.s_mmp_block.get());
    for (block, content) in (0..).map(Pblk).zip(bytes.chunks_mut(block_size.len())) {
        let clusters = used.of_blocks(block, 1);
        let is_mmp = block == mmp && block != Pblk(0);
        if is_mmp || !clusters.is_empty() && !used.contains_any(clusters) {
            content.fill(0);
        }
    }
    bytes
}

/// Where the power goes, of so many writes: everywhere, or here and there and at the end.
fn cuts(writes: u64) -> Vec<u64> {
    let step = match is_long() {
        true => 1,
        false => writes.div_ceil(CUTS_QUICK).max(1),
    };
    let last = writes.saturating_sub(2);
    (0..writes)
        .filter(|cut| cut % step == 0 || *cut >= last)
        .collect()
}

/// Cuts one repair, and counts the cuts; what went wrong.
fn cut(case: &Case, count: &AtomicU64) -> Result<(), String> {
    cut_of(&case.damaged().unwrap(), count)
}

/// The same of any image.
fn cut_of(damaged: &MemoryDevice, count: &AtomicU64) -> Result<(), String> {
    let outcome = planned(Arc::new(damaged.snapshot())).map_err(|error| error.to_string())?;
    let Outcome { overlay, used, .. } = &outcome;
    let block_size = overlay.block_size();
    let writes = Writes::new(overlay, used).map_err(|error| error.to_string())?;
    let whole = SimDevice::new(damaged, SimOptions::default());
    match apply::in_place(&whole, overlay, &writes, None, &|_| ()) {
        Ok(0) => return Ok(()),
        // Such a repair needs an undo file.
        Err(Error::NoLogRoom { .. }) => return Ok(()),
        result => result.map_err(|error| error.to_string())?,
    };
    let changes = whole.stats().changes();
    // What the repair freed may hold the log of the next one, which clears the mark of this host.
    let whole_again = planned(Arc::new(whole.contents())).map_err(|error| error.to_string())?;
    let left_in_use = whole_again.used;
    let wanted = in_use(&whole.contents(), block_size, &left_in_use);
    for at in cuts(changes) {
        let seed = at;
        let options = SimOptions {
            seed,
            ..SimOptions::default()
        };
        let device = SimDevice::new(damaged, options);
        device.cut_at_write(at);
        if apply::in_place(&device, overlay, &writes, None, &|_| ()).is_ok() {
            return Err(format!("the power did not go at write {at}"));
        }
        let after = SimDevice::new(&device.power_cut(seed), SimOptions::default());
        let after = Arc::new(after);
        rerun(&after).map_err(|error| format!("cut at write {at}: {error}"))?;
        let left = in_use(&after.contents(), block_size, &left_in_use);
        if let Some(byte) = left.iter().zip(&wanted).position(|(a, b)| a != b) {
            let (found, right) = (left[byte], wanted[byte]);
            return Err(format!(
                "cut at write {at}: byte {byte} is {found}, not {right}"
            ));
        }
        count.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

#[test]
fn a_power_cut_at_any_write_of_a_repair_ends_in_the_same_tree() {
    if !has_tool("mke2fs") {
        return;
    }
    images::all().for_each(drop);
    let cases = cases();
    let count = AtomicU64::new(0);
    let failures = run(&cases, Case::name, |_, case| {
        let result = cut(case, &count);
        let failure = result.err().map(|what| format!("{}: {what}", case.name()));
        failure.into_iter().collect()
    });
    let count = count.into_inner();
    println!("{} repairs, {count} cuts", cases.len());
    assert_none(&failures, cases.len());
    assert!(count >= cases.len() as u64, "{count}");
}

/// An image without a free block, and a directory with a wrong number of links.
fn full(dir: &Path) -> MemoryDevice {
    let image = dir.join("image");
    let options = "-t ext4 -b 1024 -m 0 -N 64 -J size=1 -O ^resize_inode";
    mke2fs(&image, options.split_whitespace(), "6M");
    let free = || {
        let shown = dumpe2fs(&image);
        let line = shown.lines().find(|line| line.starts_with("Free blocks:"));
        line.unwrap()
            .split_whitespace()
            .last()
            .unwrap()
            .parse::<usize>()
            .unwrap()
    };
    let source = dir.join("source");
    for (n, left) in [40, 8, 2, 0, 0, 0, 0, 0].into_iter().enumerate() {
        let blocks = free().saturating_sub(left);
        fs::write(&source, vec![0x5A; blocks * 1024]).unwrap();
        let write = format!("write {} f{n}", source.display());
        debugfs_script(write, Some(&image));
    }
    while free() > 0 {
        fs::write(&source, vec![0x5A; 1024]).unwrap();
        let write = format!("write {} g{}", source.display(), free());
        debugfs_script(write, Some(&image));
    }
    e2fsck(&image, "-fy");
    assert_eq!(free(), 0);
    debugfs_write(
        &image,
        ["sif lost+found links_count 7", "sif f0 links_count 3"],
    );
    MemoryDevice::from_bytes(fs::read(&image).unwrap())
}

#[test]
fn a_repair_of_a_full_file_system_has_its_log_in_the_empty_journal() {
    if !has_tool("mke2fs") {
        return;
    }
    let dir = scratch();
    let damaged = full(dir.path());
    let outcome = planned(Arc::new(damaged.snapshot())).unwrap();
    assert!(outcome.is_clean);
    let writes = Writes::new(&outcome.overlay, &outcome.used).unwrap();
    assert!(writes.has_log());
    let count = AtomicU64::new(0);
    assert_eq!(cut_of(&damaged, &count), Ok(()));
    assert!(count.into_inner() > 5);
    let repaired = SimDevice::new(&damaged, SimOptions::default());
    apply::in_place(&repaired, &outcome.overlay, &writes, None, &|_| ()).unwrap();
    let image = dir.path().join("repaired");
    fs::write(&image, repaired.contents().to_bytes()).unwrap();
    assert_clean(&image);
}
