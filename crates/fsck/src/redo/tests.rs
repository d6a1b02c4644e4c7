//! Cuts at each write, and logs that must not be written.

use std::sync::Arc;

use uext4_blockdev::MemoryDevice;
use uext4_mkfs::{Options, format, layout};
use uext4_redo::FoundLog;
use uext4_redo::primary::LEN as SUPERBLOCK_LEN;
use uext4_testkit::{SimDevice, SimOptions};

use super::*;

/// An empty file system, whose superblock is damaged if `damaged`, and its clusters in use.
fn image(damaged: bool) -> (MemoryDevice, ClusterSet) {
    let device = MemoryDevice::new(8 << 20);
    let layout = layout(&Options::new([3; 16], [0; 16], 0), 8 << 20).unwrap();
    format(&layout, &device).unwrap();
    let used = ClusterSet::new(&layout.geometry, &Arc::default());
    for run in layout.used_runs() {
        used.add(used.of_blocks(Pblk(run.start), run.len), |_| ());
    }
    if damaged {
        device.write_at(SUPERBLOCK_OFFSET, &[0xFF; 700]).unwrap();
    }
    (device, used)
}

/// Changes of some blocks, and of the superblock so that it is whole.
fn plan(device: &SimDevice, whole: &MemoryDevice, block_size: BlockSize) -> Overlay {
    let base: Arc<dyn BlockDevice> = Arc::new(device.contents());
    let overlay = Overlay::new(base, block_size, u64::MAX);
    let mut superblock = [0; SUPERBLOCK_LEN];
    whole.read_at(SUPERBLOCK_OFFSET, &mut superblock).unwrap();
    let at = index((SUPERBLOCK_OFFSET % u64::from(block_size.bytes())) as u32);
    let first = Pblk(SUPERBLOCK_OFFSET >> block_size.log2());
    let change = |bytes: &mut [u8]| bytes[at..at + SUPERBLOCK_LEN].copy_from_slice(&superblock);
    overlay.update(first, Cause(0), change).unwrap();
    for block in [40, 41, 97, 1000] {
        let change = |bytes: &mut [u8]| bytes.fill(block as u8);
        overlay.update(Pblk(block), Cause(1), change).unwrap();
    }
    overlay
}

/// What a run does: it finishes what was begun, or plans anew.
fn run(device: &SimDevice, whole: &MemoryDevice, used: &ClusterSet) -> Result<()> {
    match UnfinishedRepair::find(device)? {
        Some(repair) => Ok(repair.finish(device)?),
        None => {
            let plan = plan(device, whole, BlockSize::MIN);
            Writes::new(&plan, used)?.write(device, &plan)
        }
    }
}

/// The blocks that the file system knows of, and those that the plan changes.
fn known(device: &MemoryDevice, used: &ClusterSet) -> Vec<u8> {
    let mut bytes = device.to_bytes();
    for (at, block) in (0..).zip(bytes.chunks_mut(1024)) {
        if at != 0 && !used.contains(at - 1) && !(900..1001).contains(&at) {
            block.fill(0);
        }
    }
    bytes
}

#[test]
fn a_cut_at_any_write_is_made_good_by_the_next_run() {
    for damaged in [false, true] {
        let (whole, used) = image(false);
        let (start, _) = image(damaged);
        let device = SimDevice::new(&start, SimOptions::default());
        run(&device, &whole, &used).unwrap();
        let writes = device.stats().changes();
        assert!(writes > 10, "{writes}");
        assert!(UnfinishedRepair::find(&device).unwrap().is_none());
        let wanted = known(&device.contents(), &used);
        let mut found_log = 0;
        for cut in 0..writes {
            for seed in 0..6 {
                let device = SimDevice::new(
                    &start,
                    SimOptions {
                        seed,
                        ..Default::default()
                    },
                );
                device.cut_at_write(cut);
                assert!(run(&device, &whole, &used).is_err());
                let after = SimDevice::new(&device.power_cut(seed), SimOptions::default());
                found_log += u32::from(UnfinishedRepair::find(&after).unwrap().is_some());
                run(&after, &whole, &used).unwrap();
                let left = known(&after.contents(), &used);
                assert!(
                    left == wanted,
                    "cut at {cut}, seed {seed}, damaged {damaged}"
                );
                assert!(UnfinishedRepair::find(&after).unwrap().is_none());
            }
        }
        assert!(found_log > 5, "{found_log}");
    }
}

#[test]
fn a_log_that_was_changed_is_not_written_and_forgotten() {
    let (start, used) = image(false);
    let device = SimDevice::new(&start, SimOptions::default());
    let plan = plan(&device, &start, BlockSize::MIN);
    let writes = Writes::new(&plan, &used).unwrap();
    let log = writes.log.as_ref().unwrap().block(0).unwrap();
    // Everything but the last writes: the log is whole and the pointer is there.
    device.cut_at_write(2 + writes.count() + 3);
    assert!(writes.write(&device, &plan).is_err());
    let image = device.contents();
    assert!(UnfinishedRepair::find(&image).unwrap().is_some());
    image.write_at((log + 2) * 1024 + 5, &[0x5A]).unwrap();
    let found = FoundLog::find(&image).unwrap();
    assert!(matches!(found, Some(FoundLog::Damaged)), "{found:?}");
    assert!(UnfinishedRepair::find(&image).unwrap().is_none());
    // The next repair forgets it, and mends the rest.
    let (found, left) = repaired(image);
    assert!(found.contains(&"repair-log-damaged"), "{found:?}");
    assert!(FoundLog::find(&left).unwrap().is_none());
}

#[test]
fn without_room_for_a_log_nothing_is_written() {
    let (start, used) = image(false);
    used.add(0..u64::MAX, |_| ());
    let device = SimDevice::new(&start, SimOptions::default());
    let plan = plan(&device, &start, BlockSize::MIN);
    let writes = Writes::new(&plan, &used).unwrap();
    assert!(matches!(
        writes.write(&device, &plan),
        Err(Error::NoLogRoom { .. })
    ));
    assert_eq!(device.stats().changes(), 0);
    writes.write_without_log(&device, &plan).unwrap();
    // The mark of the superblock, too.
    assert_eq!(device.stats().changes(), writes.count() + 1);
}

/// The findings of a repair of `image`, and what it makes of it.
fn repaired(image: MemoryDevice) -> (Vec<&'static str>, MemoryDevice) {
    let image: Arc<dyn BlockDevice> = Arc::new(image);
    let outcome = crate::plan(&image, &crate::Options::default(), &()).unwrap();
    let left = MemoryDevice::new(image.len());
    let mut bytes = vec![0; index(image.len() as u32)];
    outcome.overlay.read_at(0, &mut bytes).unwrap();
    left.write_at(0, &bytes).unwrap();
    let names = outcome.findings.iter();
    let names = names.map(|(_, finding)| finding.problem.info().name);
    (names.collect(), left)
}

/// A device on which a repair was cut off in its third step.
fn cut_off() -> MemoryDevice {
    let (start, used) = image(false);
    let device = SimDevice::new(&start, SimOptions::default());
    let plan = plan(&device, &start, BlockSize::MIN);
    let writes = Writes::new(&plan, &used).unwrap();
    device.cut_at_write(2 + writes.count() + 3);
    assert!(writes.write(&device, &plan).is_err());
    device.contents()
}

#[test]
fn a_log_of_a_file_system_that_was_in_use_since_is_forgotten() {
    let image = cut_off();
    assert!(UnfinishedRepair::find(&image).unwrap().is_some());
    let mut bytes = primary::read(&image).unwrap().unwrap();
    let mut superblock = SuperBlock::parse(&bytes).unwrap();
    superblock.s_mnt_count = (superblock.s_mnt_count.get() + 1).into();
    superblock.update_checksum();
    bytes.copy_from_slice(zerocopy::IntoBytes::as_bytes(&superblock));
    image.write_at(SUPERBLOCK_OFFSET, &bytes).unwrap();
    let found = FoundLog::find(&image).unwrap();
    assert!(matches!(found, Some(FoundLog::OutOfDate)), "{found:?}");
    let (found, left) = repaired(image);
    assert!(found.contains(&"repair-log-out-of-date"), "{found:?}");
    assert!(!found.contains(&"unfinished-repair"), "{found:?}");
    assert!(FoundLog::find(&left).unwrap().is_none());
}

#[test]
fn until_the_third_step_the_superblock_is_the_old_one() {
    let (start, used) = image(false);
    let device = SimDevice::new(&start, SimOptions::default());
    let plan = plan(&device, &start, BlockSize::MIN);
    let change = |bytes: &mut [u8]| bytes[0x60] ^= 4;
    plan.update(Pblk(1), Cause(0), change).unwrap();
    let writes = Writes::new(&plan, &used).unwrap();
    // The pointer is the last write.
    device.cut_at_write(2 + writes.count() + 1);
    assert!(writes.write(&device, &plan).is_err());
    let old = primary::read(&start).unwrap().unwrap();
    let now = primary::read(&device.contents()).unwrap().unwrap();
    assert!(RepairPointer::find(&now).is_some());
    let pointer = uext4_ondisk::repair_log::POINTER_OFFSET;
    assert_eq!(old[..pointer], now[..pointer]);
    assert!(SuperBlock::parse(&now).is_ok());
}

#[test]
fn numbers_of_a_log_are_read_up_to_the_first_that_cannot_be() {
    let device = SimDevice::new(&MemoryDevice::new(64 << 20), SimOptions::default());
    let run = LogRun {
        blocks: log_blocks(1024, 60_000),
        start: 8,
    };
    let header = uext4_ondisk::repair_log::RepairLogHeader::new(1024, 60_000, 1, [0; 32]);
    let mut block = header.bytes().to_vec();
    block.extend_from_slice(&run.bytes());
    device.write_at(8 << 10, &block).unwrap();
    let mut superblock = [0; SUPERBLOCK_LEN];
    let sums = uext4_ondisk::repair_log::SuperblockSums::of(&superblock);
    let pointer = RepairPointer::new(8 << 10, run.blocks << 10, [0; 8]).between(sums, sums);
    pointer.store(&mut superblock);
    device.write_at(SUPERBLOCK_OFFSET, &superblock).unwrap();
    let found = FoundLog::find(&device).unwrap();
    assert!(matches!(found, Some(FoundLog::Damaged)), "{found:?}");
    assert!(device.stats().bytes_read < 8 << 10, "{:?}", device.stats());
}

#[test]
fn a_log_fits_into_many_short_runs() {
    let (start, used) = image(false);
    for cluster in (0..used.clusters()).filter(|at| at % 3 == 0) {
        used.add(cluster..cluster + 1, |_| ());
    }
    let device = SimDevice::new(&start, SimOptions::default());
    let plan = plan(&device, &start, BlockSize::MIN);
    let writes = Writes::new(&plan, &used).unwrap();
    assert!(writes.log().unwrap().len() > 2, "{:?}", writes.log());
    device.cut_at_write(2 + writes.count() + 4);
    assert!(writes.write(&device, &plan).is_err());
    let image = device.contents();
    let repair = UnfinishedRepair::find(&image).unwrap().unwrap();
    repair.finish(&image).unwrap();
    let mut content = [0; 1024];
    for block in [40, 41, 97, 1000] {
        image.read_at(block * 1024, &mut content).unwrap();
        assert_eq!(content, [block as u8; 1024]);
    }
    assert!(FoundLog::find(&image).unwrap().is_none());
}

#[test]
fn without_a_log_the_superblock_says_errors_until_all_is_written() {
    let (start, used) = image(false);
    used.add(0..u64::MAX, |_| ());
    let old = start.to_bytes();
    for cut in 0..6 {
        let device = SimDevice::new(&start, SimOptions::default());
        let plan = plan(&device, &start, BlockSize::MIN);
        let writes = Writes::new(&plan, &used).unwrap();
        device.cut_at_write(cut);
        assert!(writes.write_without_log(&device, &plan).is_err());
        let after = device.power_cut(cut).to_bytes();
        let written = |block: usize| after[block * 1024..][..1024] == [block as u8; 1024];
        let any = [40, 41, 97, 1000]
            .into_iter()
            .any(|block| after[block * 1024..][..1024] != old[block * 1024..][..1024]);
        let all = [40, 41, 97].into_iter().all(written);
        let errors = after[1024 + 0x3A] & 2 != 0;
        assert!(errors || !any || all, "cut at {cut}");
        assert!(errors || cut < 2 || cut == 5, "cut at {cut}");
    }
}
