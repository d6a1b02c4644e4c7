//! Files and block devices of this host as devices.

use std::sync::Arc;

use super::*;
use crate::vectors::VECTORS_MAX;
use crate::{Claim, SubDevice};

fn new_device(len: u64) -> (tempfile::TempDir, FileDevice) {
    let dir = tempfile::tempdir().unwrap();
    let device = FileDevice::create(dir.path().join("image"), len).unwrap();
    (dir, device)
}

#[test]
fn a_file_returns_the_written_bytes() {
    let (_dir, device) = new_device(10_000);
    device.write_at(9_000, &[1; 1000]).unwrap();
    assert!(matches!(
        device.write_at(9_001, &[1; 1000]),
        Err(Error::OutOfRange { .. })
    ));
    device.discard(9_500, 100).unwrap();
    device.discard(10_000, 0).unwrap();
    device.set_len(20_000).unwrap();
    device.flush().unwrap();
    let reader = FileDevice::open(device.path(), Access::ReadOnly).unwrap();
    assert_eq!((reader.len(), reader.sector_size()), (20_000, 512));
    let mut bytes = vec![9; 20_000];
    reader.read_at(0, &mut bytes).unwrap();
    let mut expected = vec![0; 20_000];
    expected[9_000..9_500].fill(1);
    expected[9_600..10_000].fill(1);
    assert_eq!(bytes, expected);
    assert!(matches!(reader.write_at(0, &[1]), Err(Error::ReadOnly)));
    assert!(matches!(reader.discard(0, 1), Err(Error::ReadOnly)));
    assert!(matches!(reader.set_len(1), Err(Error::ReadOnly)));
}

#[test]
fn what_another_program_adds_belongs_to_the_device_once_it_is_measured() {
    let (_dir, device) = new_device(10_000);
    let other = File::options().write(true).open(device.path()).unwrap();
    other.set_len(20_000).unwrap();
    assert!(device.write_at(10_000, &[1]).is_err());
    assert_eq!(device.measure().unwrap(), 20_000);
    device.write_at(19_999, &[1]).unwrap();
    other.set_len(5_000).unwrap();
    assert_eq!((device.measure().unwrap(), device.len()), (20_000, 20_000));
}

#[test]
fn a_length_that_the_system_refuses_leaves_the_old_one() {
    let (_dir, device) = new_device(10_000);
    let error = device.set_len(u64::MAX / 2 + 2).unwrap_err();
    assert!(error.to_string().starts_with("make the file end at byte"));
    assert_eq!((device.measure().unwrap(), device.len()), (10_000, 10_000));
}

#[test]
fn what_cannot_be_opened_is_named() {
    let (dir, device) = new_device(0);
    let refused = |path: &Path| {
        FileDevice::open(path, Access::ReadOnly)
            .unwrap_err()
            .to_string()
    };
    assert!(refused(dir.path()).ends_with("is a directory, not an image file or a block device"));
    assert!(refused(Path::new("/dev/null")).contains("/dev/null: is neither"));
    assert!(refused(&dir.path().join("absent")).contains("No such file"));
    assert!(matches!(
        FileDevice::create(device.path(), 1),
        Err(Error::Open { .. })
    ));
    let too_long = dir.path().join("too-long");
    assert!(FileDevice::create(&too_long, u64::MAX).is_err());
    assert!(!too_long.exists());
    assert_eq!(device.next_data(0).unwrap(), None);
}

#[test]
fn batches_are_joined_in_any_number_and_order() {
    const PIECE: usize = 33;
    const PIECES: usize = 3 * VECTORS_MAX + 5;
    let (_dir, device) = new_device((PIECE * PIECES) as u64);
    let bytes: Vec<u8> = (0..PIECE * PIECES).map(|i| (i * 7 % 251) as u8).collect();
    let offset = |piece: usize| (piece * PIECE) as u64;
    let mut requests: Vec<_> = bytes.chunks(PIECE).enumerate().collect();
    // One piece out of order, one in two halves, and empty ones between.
    requests.swap(10, 20);
    let mut writes: Vec<_> = requests
        .iter()
        .map(|&(piece, buf)| WriteRequest {
            offset: offset(piece),
            buf,
        })
        .collect();
    let (left, right) = writes[30].buf.split_at(5);
    writes[30].buf = left;
    writes.insert(
        31,
        WriteRequest {
            offset: offset(30) + 5,
            buf: right,
        },
    );
    writes.insert(
        0,
        WriteRequest {
            offset: 0,
            buf: &[],
        },
    );
    writes.push(WriteRequest {
        offset: device.len(),
        buf: &[],
    });
    device.write_many(&writes).unwrap();
    device.write_many(&[]).unwrap();

    let mut back = vec![0; bytes.len()];
    let mut reads: Vec<_> = back
        .chunks_mut(PIECE)
        .enumerate()
        .map(|(piece, buf)| ReadRequest {
            offset: offset(piece),
            buf,
        })
        .collect();
    reads.swap(1, 2000);
    device.read_many(&mut reads).unwrap();
    assert_eq!(back, bytes);

    let last = WriteRequest {
        offset: device.len(),
        buf: &[1],
    };
    let first = WriteRequest {
        offset: 0,
        buf: &[255],
    };
    assert!(device.write_many(&[first, last]).is_err());
    device.read_at(0, &mut back[..1]).unwrap();
    assert_eq!(
        back[0], bytes[0],
        "nothing is written of a batch that does not fit"
    );
}

#[test]
fn a_file_cut_short_by_others_is_an_error() {
    let (_dir, device) = new_device(8192);
    File::options()
        .write(true)
        .open(device.path())
        .unwrap()
        .set_len(100)
        .unwrap();
    let (mut one, mut two) = ([0; 80], [0; 80]);
    let mut reads = [
        ReadRequest {
            offset: 0,
            buf: &mut one,
        },
        ReadRequest {
            offset: 80,
            buf: &mut two,
        },
    ];
    let error = device.read_many(&mut reads).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Io {
                op: "read",
                offset: 100,
                ..
            }
        ),
        "{error}"
    );
    assert!(matches!(
        device.read_at(80, &mut two),
        Err(Error::Io { .. })
    ));
    assert_eq!(device.next_data(200).unwrap(), None);
}

#[test]
fn zeroes_are_written_over_data_alone() {
    let (_dir, device) = new_device(4 << 20);
    device.write_at(1 << 20, &vec![7; 1 << 20]).unwrap();
    device.write_zeroes((1 << 20) + 3..3 << 20).unwrap();
    let mut bytes = vec![0; 4 << 20];
    device.read_at(0, &mut bytes).unwrap();
    assert!(bytes[1 << 20..].starts_with(&[7, 7, 7, 0]));
    assert_eq!(bytes.iter().filter(|&&byte| byte != 0).count(), 3);
    if device.next_data(0).unwrap() == Some(1 << 20..2 << 20) {
        assert_eq!(
            device.next_data(2 << 20).unwrap(),
            None,
            "no hole was filled"
        );
    }
}

#[test]
fn locks_exclude_one_another() {
    let (_dir, device) = new_device(1);
    let other = FileDevice::open(device.path(), Access::ReadOnly).unwrap();
    device.lock_shared().unwrap();
    other.lock_shared().unwrap();
    assert!(matches!(device.lock(), Err(Error::Locked { .. })));
    drop(other);
    device.lock().unwrap();
    let other = FileDevice::open(device.path(), Access::ReadOnly).unwrap();
    let error = other.lock_shared().unwrap_err();
    assert!(
        error.to_string().ends_with("is in use by another program"),
        "{error}"
    );
}

#[test]
fn an_image_has_one_writer_and_a_disk_one_for_each_partition() {
    let (_dir, device) = new_device(100);
    let device = Arc::new(device);
    let window = |start, len| Arc::new(SubDevice::new(device.clone(), start, len).unwrap());
    let first = Claim::new(window(0, 50)).unwrap();
    let second = Claim::new(window(50, 50)).unwrap();
    // The same bytes through the same device, and any byte through another one.
    for refused in [Claim::new(window(49, 2)), Claim::new(device.clone())] {
        assert!(matches!(refused, Err(Error::Locked { .. })));
    }
    assert!(matches!(device.claim(), Err(Error::Locked { .. })));
    let other = Arc::new(FileDevice::open(device.path(), Access::ReadWrite).unwrap());
    for _ in 0..2 {
        let refused = Claim::new(other.clone()).unwrap_err();
        assert!(matches!(refused, Error::Locked { .. }), "{refused}");
    }
    drop(first);
    assert!(Claim::new(other.clone()).is_err(), "one writer is left");
    drop(second);
    let claim = Claim::new(other.clone()).unwrap();
    assert!(Claim::new(device.clone()).is_err());
    drop(claim);

    // For as long as the device is open, a file system in it included.
    device.claim().unwrap();
    drop(Claim::new(device.clone()).unwrap());
    assert!(Claim::new(other.clone()).is_err());
    drop(device);
    other.claim().unwrap();
}
