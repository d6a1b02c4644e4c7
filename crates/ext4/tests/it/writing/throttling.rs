//! Writers that wait for the device: nothing is lost by it.

use std::sync::Arc;
use std::time::Duration;

use uext4::data::{Cancel, Pacing, WriteContext, Writer};
use uext4::tuning::{DirtyLimits, Tunables};
use uext4::{Creation, Error, NewInode, OpenInode, OpenOptions, Volume};
use uext4_blockdev::{MemoryDevice, SystemClock};

use super::device::{judge, made};

const FILE: Creation = Creation {
    mode: 0o600,
    umask: 0,
    uid: 0,
    gid: 0,
};

fn options(list: &str) -> OpenOptions {
    let mut options = OpenOptions::default();
    options.pages_max = 8 << 20;
    for option in list.split(',').filter(|option| !option.is_empty()) {
        options.option(option).unwrap();
    }
    options
}

fn open(device: &Arc<MemoryDevice>, options: &OpenOptions) -> Volume {
    let fs = Volume::open(device.clone(), Arc::new(SystemClock), options).unwrap();
    fs.start_background().unwrap();
    fs
}

fn create(fs: &Volume, name: &str) -> OpenInode {
    let root = fs.root().unwrap();
    root.create(name.as_bytes(), NewInode::File, &FILE).unwrap()
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 509 + seed) as u8).collect()
}

fn assert_holds(file: &OpenInode, content: &[u8]) {
    let mut got = vec![0; content.len() + 1];
    assert_eq!(file.read_at(0, &mut got).unwrap(), content.len());
    assert!(&got[..content.len()] == content);
}

#[test]
fn options_have_the_kernels_names_and_ranges() {
    let refused = |option: &str| {
        let error = OpenOptions::default().option(option).unwrap_err();
        error.to_string()
    };
    assert!(refused("dirty_ratio=101").contains("1 to 100"));
    assert!(refused("dirty_bytes=1").contains("dirty_bytes"));
    assert!(refused("min_ratio=50x").contains("min_ratio"));
    assert!(refused("wb_mode=mainline").contains("wb_mode"));
    assert!(refused("dirty_rate=1").contains("dirty_rate"));
    let device = made("-t ext4", 16_384);
    // A background limit above the other counts as half of it.
    let fs = open(
        &device,
        &options("dirty_bytes=1048576,dirty_background_bytes=4194304"),
    );
    let stats = fs.stats().pages.unwrap();
    assert_eq!(stats.nr_dirty_threshold, 1 << 20);
    assert_eq!(stats.nr_dirty_background_threshold, 1 << 19);
    fs.set_tunable("dirty_bytes", "2097152").unwrap();
    assert_eq!(fs.stats().pages.unwrap().nr_dirty_threshold, 2 << 20);
    let error = fs.set_tunable("dirty_background_ratio", "-1").unwrap_err();
    assert!(matches!(error, Error::Option { .. }));
    let text = fs.stats().device.unwrap().to_string();
    assert!(
        text.contains("DirtyThresh:") && text.contains("2048 kB"),
        "{text}"
    );
    fs.close().unwrap();
}

#[test]
fn pauses_are_returned_and_files_are_whole() {
    let device = made("-t ext4", 65_536);
    let fs = open(&device, &options(""));
    let file = create(&fs, "paced");
    let content = pattern(24 << 20, 5);
    let mut writer = Writer::default();
    let mut at = 0;
    while at < content.len() {
        let end = content.len().min(at + 100_000);
        let context = WriteContext {
            pacing: Pacing::Return(&mut writer),
            ..WriteContext::default()
        };
        let paced = file.write_with(context, at as u64, &content[at..end]);
        let paced = paced.unwrap();
        at += paced.len;
        assert!(at == end || !paced.pause.is_zero());
        assert!(paced.pause <= Duration::from_millis(200));
        // The timer of a front end.
        std::thread::sleep(paced.pause);
    }
    file.fsync().unwrap();
    assert_holds(&file, &content);
    drop(file);
    fs.close().unwrap();
    judge(&device, "paced");
}

#[test]
fn a_cancelled_writer_has_written_less() {
    let device = made("-t ext4", 65_536);
    let fs = open(&device, &options("dirty_bytes=65536"));
    let file = create(&fs, "cancelled");
    let cancel = Cancel::new();
    cancel.cancel();
    let mut writer = Writer::default().with_cancel(cancel);
    let content = pattern(32 << 20, 1);
    let mut at = 0;
    let ended = loop {
        let end = content.len().min(at + (1 << 20));
        let context = WriteContext {
            pacing: Pacing::Sleep(&mut writer),
            ..WriteContext::default()
        };
        match file.write_with(context, at as u64, &content[at..end]) {
            Ok(written) => at += written.len,
            Err(error) => break error,
        }
        assert!(at < content.len(), "it never had to wait");
    };
    assert!(matches!(ended, Error::Interrupted), "{ended}");
    // What was taken in is there, and others write on.
    file.write_at(at as u64, b"end").unwrap();
    let whole = [&content[..at], b"end"].concat();
    assert_holds(&file, &whole);
    drop(file);
    fs.close().unwrap();
    judge(&device, "cancelled");
}

#[test]
fn file_systems_keep_limits_together() {
    let limits = DirtyLimits::new(&Tunables::default()).unwrap();
    let devices: Vec<_> = (0..2)
        .map(|_| made("-t ext4 -g 1024 -G 1", 65_536))
        .collect();
    let mut options = options("wb_flushers=4");
    options.writeback.limits = Some(Arc::clone(&limits));
    let systems: Vec<_> = devices
        .iter()
        .map(|device| open(device, &options))
        .collect();
    // A fifth of the memory of both.
    let thresh = (16 << 20) / 4096 / 5;
    assert_eq!(limits.domain().thresh(), thresh);
    std::thread::scope(|scope| {
        for fs in &systems {
            for number in 0..6 {
                scope.spawn(move || {
                    let dir = fs.root().unwrap();
                    let name = format!("d{number}");
                    let dir = dir.create(name.as_bytes(), NewInode::Directory, &FILE);
                    let file = dir.unwrap().create(b"f", NewInode::File, &FILE).unwrap();
                    let content = pattern(3 << 20, number);
                    for (index, part) in content.chunks(50_000).enumerate() {
                        let at = index as u64 * 50_000;
                        assert_eq!(file.write_at(at, part).unwrap(), part.len());
                    }
                    assert_holds(&file, &content);
                });
            }
        }
    });
    for (fs, device) in systems.iter().zip(&devices) {
        fs.close().unwrap();
        judge(device, "shared limits");
    }
    assert_eq!(limits.domain().unwritten(), 0);
}
