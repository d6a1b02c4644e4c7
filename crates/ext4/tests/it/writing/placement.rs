//! Where the data of files is put: what is preallocated for them, freed, and discarded on the
//! device.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use uext4::data::Fallocate;
use uext4::{Error, OpenInode, OpenOptions, Volume};
use uext4_blockdev::{BlockDevice, Error as DeviceError, MemoryDevice};

use super::device::{file, judge, made};

fn open(device: Arc<dyn BlockDevice>, options: &str) -> Result<Volume, Error> {
    super::device::open(device, OpenOptions::default(), options)
}

/// Where the parts of a file lie, in bytes; neighbours on the device are one.
fn places(file: &OpenInode) -> Vec<Range<u64>> {
    let mut all: Vec<Range<u64>> = Vec::new();
    file.fiemap(0..u64::MAX, |part| {
        let start = part.physical.unwrap();
        match all.last_mut() {
            Some(last) if last.end == start => last.end += part.len,
            _ => all.push(start..start + part.len),
        }
        true
    })
    .unwrap();
    all
}

#[test]
fn files_written_side_by_side_stay_whole_and_free_preallocations() {
    let device = made("-t ext4 -b 4096", 131_072);
    let fs = open(device.clone(), "").unwrap();
    let files = [0, 1, 2, 3].map(|i| file(&fs, &format!("f{i}")));
    // Ends behind a power of two.
    for step in 0..67u64 {
        for file in &files {
            file.write_at(step << 16, &vec![step as u8; 1 << 16])
                .unwrap();
            file.fsync().unwrap();
        }
    }
    let kept = fs.stats().preallocation.unwrap();
    assert!(kept.kept > 0);
    for file in &files {
        let places = places(file);
        assert!(places.len() <= 8, "{places:?}");
    }
    // Behind a cut, and with its last user, nothing is reserved for a file.
    files[0]
        .set_attributes(&uext4::SetAttributes {
            size: Some(1000),
            ..Default::default()
        })
        .unwrap();
    drop(files);
    let done = fs.stats();
    assert_eq!(done.preallocation.unwrap().files, 0);
    assert!(done.allocator.unwrap().discarded > 0);
    fs.close().unwrap();
    assert_eq!(fs.stats().preallocation.unwrap().kept, 0);
    judge(&device, "side by side");
}

#[test]
fn the_final_writeback_is_one_run_a_file() {
    let device = made("-t ext4 -b 4096", 131_072);
    let fs = open(device.clone(), "").unwrap();
    let sizes = (0..200u64).map(|i| 1 + i * i * 37 % 300_000);
    let names: Vec<String> = (0..200).map(|i| format!("f{i}")).collect();
    for (name, size) in names.iter().zip(sizes) {
        let file = file(&fs, name);
        file.write_at(0, &vec![5; size as usize]).unwrap();
    }
    fs.sync().unwrap();
    let mut all: Vec<Range<u64>> = Vec::new();
    for name in &names {
        let file = fs.root().unwrap().lookup(name.as_bytes()).unwrap();
        let places = places(&file);
        assert_eq!(places.len(), 1, "{name}");
        all.extend(places);
    }
    all.sort_unstable_by_key(|place| place.start);
    let gaps = all.windows(2).filter(|pair| pair[0].end != pair[1].start);
    assert!(gaps.count() < 5);
    fs.close().unwrap();
    judge(&device, "closed files");
}

#[test]
fn halves_that_are_written_join() {
    let device = made("-t ext4 -b 4096", 262_144);
    let fs = open(device.clone(), "").unwrap();
    let file = file(&fs, "f");
    let len = 30_000u64 << 12;
    let how = Fallocate::Allocate { keep_size: false };
    file.fallocate(how, 0, len).unwrap();
    let runs = places(&file).len();
    let bytes = vec![7; 1 << 20];
    for at in (0..len).step_by(1 << 20) {
        let part = &bytes[..(len - at).min(1 << 20) as usize];
        file.write_at(at, part).unwrap();
    }
    file.fsync().unwrap();
    let mut extents = 0;
    file.fiemap(0..u64::MAX, |part| {
        assert_eq!(part.state, uext4::data::ExtentState::Written);
        extents += 1;
        true
    })
    .unwrap();
    assert_eq!((extents, places(&file).len()), (runs, runs));
    drop(file);
    fs.close().unwrap();
    judge(&device, "halves");
}

#[test]
fn options_have_names_and_ranges() {
    let device = made("-t ext4 -b 4096 -E stride=16,stripe_width=64", 262_144);
    for (options, says) in [
        ("stripe=40000", "must be 0 to 32768 blocks, at most a group"),
        ("stripe=9999999", "0 to 524288"),
        ("mb_group_prealloc=40000", "0 to 32768"),
        ("mb_search=linear", "mb_search"),
        ("discard,mb_normalize=table", "mb_normalize"),
    ] {
        let error = open(device.clone(), options).unwrap_err();
        assert!(
            matches!(error, Error::Option { .. } | Error::UnknownOption { .. }),
            "{error}"
        );
        assert!(error.to_string().contains(says), "{error}");
    }
    for (options, stripe) in [("", 64), ("stripe=0", 0), ("stripe=16,mb_stream_req=4", 16)] {
        let fs = open(device.clone(), options).unwrap();
        // A window of a stripe or more is whole stripes, at the place of one.
        let file = file(&fs, &format!("f{stripe}"));
        file.write_at(0, &vec![1; 100 << 12]).unwrap();
        file.fsync().unwrap();
        let start = places(&file)[0].start >> 12;
        assert!(
            stripe == 0 || start.is_multiple_of(stripe),
            "{options}: {start}"
        );
        drop(file);
        fs.close().unwrap();
    }
    judge(&device, "stripes");
}

/// Remembers what it was asked to forget.
#[derive(Debug)]
struct Flash {
    base: Arc<MemoryDevice>,
    reported: Mutex<Vec<Range<u64>>>,
}

impl BlockDevice for Flash {
    fn len(&self) -> u64 {
        self.base.len()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.base.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.base.write_at(offset, buf)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.base.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        self.reported.lock().push(offset..offset + len);
        self.base.discard(offset, len)
    }
}

#[test]
fn freed_blocks_are_discarded_once_durable() {
    let base = made("-t ext4 -b 4096", 65_536);
    let device = Arc::new(Flash {
        base: base.clone(),
        reported: Mutex::default(),
    });
    let reported = || std::mem::take(&mut *device.reported.lock());
    let fs = open(device.clone(), "discard").unwrap();
    file(&fs, "gone").write_at(0, &vec![3; 1 << 20]).unwrap();
    file(&fs, "kept").write_at(0, &vec![4; 1 << 20]).unwrap();
    fs.sync().unwrap();
    let root = fs.root().unwrap();
    let place = places(&root.lookup(b"gone").unwrap());
    let kept = places(&root.lookup(b"kept").unwrap());
    assert_eq!(reported(), []);
    root.unlink(b"gone").unwrap();
    assert_eq!(reported(), [], "not durable yet");
    fs.sync().unwrap();
    assert_eq!(reported(), place);
    // All that is free, and nothing else.
    let bytes = fs.trim(0..u64::MAX, 0).unwrap();
    let ranges = reported();
    assert_eq!(bytes, ranges.iter().map(|r| r.end - r.start).sum::<u64>());
    assert!(bytes > 40 << 20);
    let overlaps = |r: &Range<u64>| r.start < kept[0].end && kept[0].start < r.end;
    assert!(!ranges.iter().any(overlaps));
    assert_eq!(fs.trim(0..4096, 0).unwrap(), 0);
    let wrong = fs.trim(1 << 40..u64::MAX, 0);
    assert!(matches!(wrong, Err(Error::Invalid { .. })), "{wrong:?}");
    drop(root);
    fs.close().unwrap();
    judge(&base, "discard");
}
