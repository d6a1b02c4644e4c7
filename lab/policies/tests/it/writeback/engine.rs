//! The whole engine with each design: what was written is there.

use std::sync::Arc;
use std::thread;

use uext4::data::{Pacing, WriteContext, Writer};
use uext4::tuning::Policies;
use uext4::{Creation, FollowLast, NewInode, OpenInode, OpenOptions, Volume};
use uext4_blockdev::{MemoryDevice, SystemClock};
use uext4_lab_policies::writeback::Mode;

const BYTES: u64 = 96 << 20;

const BY: Creation = Creation {
    mode: 0o600,
    umask: 0,
    uid: 0,
    gid: 0,
};

fn made() -> Arc<MemoryDevice> {
    let device = MemoryDevice::new(BYTES);
    let mut wishes = uext4_mkfs::Options::new([7; 16], [9; 16], 1_700_000_000);
    wishes.assume_zeroed = true;
    let layout = uext4_mkfs::layout(&wishes, BYTES).unwrap();
    uext4_mkfs::format(&layout, &device).unwrap();
    Arc::new(device)
}

fn open(device: &Arc<MemoryDevice>, mode: Mode) -> Volume {
    let mut options = OpenOptions::default();
    options.pages_max = 8 << 20;
    options.policies = Policies {
        throttle: mode.policy(),
        ..Policies::default()
    };
    let fs = Volume::open(device.clone(), Arc::new(SystemClock), &options).unwrap();
    fs.start_background().unwrap();
    fs
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 509 + seed) as u8).collect()
}

/// Writes without sleeping: the test makes the pauses, as the timer of a front end.
fn write_paced(file: &OpenInode, content: &[u8]) {
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
        thread::sleep(paced.pause);
    }
}

fn write(file: &OpenInode, content: &[u8]) {
    for (index, part) in content.chunks(50_000).enumerate() {
        let at = index as u64 * 50_000;
        assert_eq!(file.write_at(at, part).unwrap(), part.len());
    }
}

#[test]
fn files_are_whole_whether_writers_sleep_or_pause() {
    const LEN: usize = 12 << 20;
    for mode in Mode::ALL {
        let device = made();
        let fs = open(&device, mode);
        let root = fs.root().unwrap();
        thread::scope(|scope| {
            for (seed, name) in [b"paced", b"slept"].into_iter().enumerate() {
                let file = root.create(name, NewInode::File, &BY).unwrap();
                scope.spawn(move || {
                    let content = pattern(LEN, seed);
                    match seed {
                        0 => write_paced(&file, &content),
                        _ => write(&file, &content),
                    }
                    file.fsync().unwrap();
                });
            }
        });
        drop(root);
        fs.close().unwrap();
        let fs = open(&device, mode);
        for (seed, path) in [b"/paced", b"/slept"].into_iter().enumerate() {
            let file = fs.open_path(path, FollowLast::Yes).unwrap();
            let mut got = vec![0; LEN + 1];
            let mut len = 0;
            while let read @ 1.. = file.read_at(len as u64, &mut got[len..]).unwrap() {
                len += read;
            }
            assert!(got[..len] == pattern(LEN, seed), "{mode}");
        }
        fs.close().unwrap();
    }
}
