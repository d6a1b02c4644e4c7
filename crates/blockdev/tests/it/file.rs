//! Files and block devices of this machine.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use uext4_blockdev::{Access, BlockDevice, Claim, Error, FileDevice};
use uext4_testkit::{Loop, can_mount};

const MIB: u64 = 1 << 20;

/// An image attached as a block device; `None` where this machine does not allow it.
pub fn attach(image: &Path, sector_size: u32) -> Option<Loop> {
    let option = format!("--sector-size={sector_size}");
    can_mount().then(|| Loop::with_options(image, &[&option]).unwrap())
}

#[test]
fn a_block_device_is_opened_read_written_and_discarded() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    drop(FileDevice::create(&image, 8 * MIB).unwrap());
    let Some(disk) = attach(&image, 512) else {
        return;
    };
    let device = FileDevice::open(disk.path(), Access::ReadWrite).unwrap();
    assert!(device.is_block_device());
    assert_eq!((device.len(), device.sector_size()), (8 * MIB, 512));
    assert_eq!(device.next_data(5).unwrap(), Some(5..8 * MIB));
    device.write_at(MIB - 3, &[7; 5000]).unwrap();
    device.discard(MIB - 1, 3000).unwrap();
    device.flush().unwrap();
    let mut bytes = vec![0; 5002];
    device.read_at(MIB - 4, &mut bytes).unwrap();
    let mut expected = vec![7; 5002];
    expected[3..3003].fill(0);
    (expected[0], expected[5001]) = (0, 0);
    assert_eq!(bytes, expected);
    assert!(matches!(
        device.read_at(8 * MIB - 1, &mut [0; 2]),
        Err(Error::OutOfRange { .. })
    ));
    assert!(matches!(
        device.set_len(9 * MIB),
        Err(Error::FixedLength { .. })
    ));
    // It becomes longer by what others do, and that is noticed when it is asked for.
    let longer = FileDevice::open(&image, Access::ReadWrite).unwrap();
    longer.set_len(9 * MIB).unwrap();
    uext4_testkit::run("losetup", ["-c", disk.path().to_str().unwrap()]);
    assert_eq!(device.len(), 8 * MIB);
    assert_eq!(device.measure().unwrap(), 9 * MIB);
    device.write_at(9 * MIB - 1, &[7]).unwrap();
    drop(longer);

    // Held for writing once, it is not given out again; reading does no harm.
    let error = FileDevice::open(disk.path(), Access::ReadWrite).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("is in use: mounted, or held by another program")
    );
    FileDevice::open(disk.path(), Access::ReadOnly).unwrap();
    drop(device);

    let in_image = FileDevice::open(&image, Access::ReadOnly).unwrap();
    in_image.read_at(MIB - 4, &mut bytes).unwrap();
    assert_eq!(bytes, expected);
}

/// A figure of `/sys/block/DEVICE/stat`, in sectors of 512 bytes.
fn sectors(disk: &Loop, field: usize) -> u64 {
    let name = disk.path().file_name().unwrap().to_str().unwrap();
    let text = std::fs::read_to_string(format!("/sys/block/{name}/stat")).unwrap();
    text.split_whitespace().nth(field).unwrap().parse().unwrap()
}

/// The field of sectors written, and that of sectors discarded.
const WRITTEN: usize = 6;
const DISCARDED: usize = 13;

#[test]
fn data_that_are_written_behind_reach_the_disk_without_a_flush() {
    const LEN: u64 = 64 * MIB;
    // Gathered, and under way.
    const BEHIND: u64 = 24 * MIB;
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    drop(FileDevice::create(&image, LEN).unwrap());
    let Some(disk) = attach(&image, 512) else {
        return;
    };
    let device = FileDevice::open(disk.path(), Access::ReadWrite).unwrap();
    let before = sectors(&disk, WRITTEN);
    let data = vec![7; MIB as usize];
    for start in (0..LEN).step_by(data.len()) {
        device.write_at(start, &data).unwrap();
        device.write_behind(start..start + MIB);
    }
    let written = (sectors(&disk, WRITTEN) - before) * 512;
    assert!(written >= LEN - BEHIND, "{written} of {LEN} bytes");
    device.flush().unwrap();
    let mut back = vec![0; data.len()];
    device.read_at(LEN - MIB, &mut back).unwrap();
    assert!(back == data);
}

#[test]
fn trimming_a_disk_discards_and_writes_no_zeroes() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    drop(FileDevice::create(&image, 8 * MIB).unwrap());
    let Some(disk) = attach(&image, 512) else {
        return;
    };
    let device = FileDevice::open(disk.path(), Access::ReadWrite).unwrap();
    device.write_at(0, &vec![7; 2 << 20]).unwrap();
    device.flush().unwrap();
    let before = [sectors(&disk, WRITTEN), sectors(&disk, DISCARDED)];
    if !device.trim(MIB - 100, MIB).unwrap() {
        println!("skipped: this loop device takes no discards");
        return;
    }
    let after = [sectors(&disk, WRITTEN), sectors(&disk, DISCARDED)];
    assert_eq!(after[0], before[0]);
    // Whole sectors alone.
    assert_eq!((after[1] - before[1]) * 512, MIB - 512);
    let mut ends = [[0; 412], [0; 412]];
    device.read_at(MIB - 512, &mut ends[0]).unwrap();
    device.read_at(2 * MIB - 512, &mut ends[1]).unwrap();
    assert_eq!(ends, [[7; 412]; 2]);
    assert!(device.trim(5, 100).unwrap(), "less than a sector");
}

#[test]
fn an_image_that_the_kernel_has_is_not_claimed() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let device = Arc::new(FileDevice::create(&image, MIB).unwrap());
    let Some(disk) = attach(&image, 512) else {
        return;
    };
    let refused = [Claim::new(device.clone()).err(), device.claim().err()];
    for error in refused {
        let error = error.unwrap();
        assert!(matches!(error, Error::Attached { .. }), "{error}");
        let text = error.to_string();
        assert!(text.ends_with(&format!("is in use as {}", disk.path().display())));
    }
    drop(disk);
    // The kernel lets go of it a moment later where others look at it.
    for _ in 0..100 {
        if Claim::new(device.clone()).is_ok() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("still claimed");
}

#[test]
fn holes_of_sparse_files_are_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sparse");
    const LEN: u64 = 1 << 40;
    let device = FileDevice::create(&path, LEN).unwrap();
    let places = [0, 5 * MIB, LEN / 2 + 123, LEN - 10];
    for place in places {
        device.write_at(place, &[1; 10]).unwrap();
    }
    let data = |device: &FileDevice| {
        let (mut at, mut found) = (0, Vec::new());
        while let Some(range) = device.next_data(at).unwrap() {
            assert!(range.start >= at && range.end > range.start && range.end <= LEN);
            at = range.end;
            found.push(range);
        }
        found
    };
    if device.next_data(MIB).unwrap() == Some(MIB..LEN) {
        println!("skipped: this file system knows no holes");
        return;
    }
    let found = data(&device);
    assert_eq!(found.len(), places.len());
    for (range, place) in found.iter().zip(places) {
        assert!(range.contains(&place) && range.contains(&(place + 9)));
        assert!(range.end - range.start <= 2 * MIB);
    }
    let blocks = || std::fs::metadata(&path).unwrap().blocks();
    let before = blocks();
    device.discard(4 * MIB, LEN / 2 - 8 * MIB).unwrap();
    assert!(blocks() < before, "discarding gives space back");
    assert_eq!(device.len(), LEN);
    let left = data(&device);
    assert_eq!(left.len(), 3);
    assert_eq!(left[1].start / MIB, LEN / 2 / MIB);
    let mut bytes = [9; 10];
    device.read_at(5 * MIB, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 10]);
}

#[test]
fn a_pipe_is_refused_without_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pipe");
    if !Command::new("mkfifo")
        .arg(&path)
        .status()
        .is_ok_and(|status| status.success())
    {
        println!("skipped: no mkfifo");
        return;
    }
    let error = FileDevice::open(&path, Access::ReadOnly).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("is neither an image file nor a block device")
    );
}
