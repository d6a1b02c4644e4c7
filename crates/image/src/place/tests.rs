//! Where contents lie.

use uext4_ondisk::BlockSize;
use uext4_ondisk::features::{Compat, Features, Incompat, RoCompat};

use super::region::Run;
use super::*;

fn features() -> Features {
    Features {
        compat: Compat::RESIZE_INODE,
        incompat: Incompat::EXTENTS | Incompat::FLEX_BG | Incompat::BIT64,
        ro_compat: RoCompat::SPARSE_SUPER,
    }
}

fn region() -> Region {
    let block_size = BlockSize::from_bytes(4096).unwrap();
    Region::first(&features(), block_size, 32768).unwrap()
}

#[test]
fn contents_lie_between_the_copies_of_the_superblock() {
    let region = region();
    let runs: Vec<Run> = region.runs(0..200_000).collect();
    let starts: Vec<u64> = runs.iter().map(|run| run.start).collect();
    // After the superblock, 255 blocks of descriptors and 1,024 for growth; groups 0, 1, 3, 5.
    let group = |n: u64| n * 32768 + 1280;
    assert_eq!(starts, [group(0), group(1), group(3), group(5)]);
    assert_eq!(runs.iter().map(|run| run.len).sum::<u64>(), 200_000);
    assert!(
        runs.iter()
            .take(3)
            .all(|run| (run.start + run.len) % 32768 == 0)
    );
    assert_eq!(
        region.runs(10..12).next(),
        Some(Run {
            start: 1290,
            len: 2
        })
    );
    let end = region.limit() / region.block_len();
    assert_eq!(region.runs(end..end + 1).next(), None);
}

#[test]
fn other_file_systems_have_no_such_place() {
    let block_size = BlockSize::from_bytes(4096).unwrap();
    for (add, remove) in [
        (Incompat::INLINE_DATA, Incompat::empty()),
        (Incompat::META_BG, Incompat::empty()),
        (Incompat::empty(), Incompat::FLEX_BG),
        (Incompat::empty(), Incompat::EXTENTS),
    ] {
        let mut features = features();
        features.incompat = (features.incompat | add).difference(remove);
        assert!(Region::first(&features, block_size, 32768).is_none());
    }
}

#[test]
fn what_the_writer_cannot_write_is_an_error_then_and_later() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let device = FileDevice::open(file.path(), uext4_blockdev::Access::ReadOnly).unwrap();
    let mut placer = Placer::new(region(), Arc::new(device), 0).unwrap();
    let mut failed = false;
    for _ in 0..64 {
        let result = placer.zeroes(BATCH_BYTES);
        assert!(!failed || result.is_err(), "an error was forgotten");
        failed |= result.is_err();
    }
    assert!(failed);
    assert!(placer.finish().is_err());
}
