//! Files that are cut while others make them durable: a commit may come at any moment of a cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use uext4::data::Fallocate;
use uext4::{OpenOptions, SetAttributes, Volume};
use uext4_blockdev::{BlockDevice, VirtualClock};

use super::judge::{read, recover};
use super::many;
use super::recorder::{Cuts, Recorder};
use crate::writing::device::{file, made};

/// Cuts of one file.
const ROUNDS: u64 = 60;

#[test]
fn files_truncated_during_fsyncs() {
    let empty = made("-t ext4 -b 1024 -J size=1", 8192);
    let device = Arc::new(Recorder::new(&empty));
    let clock = Arc::new(VirtualClock::new(1_700_000_000));
    let options = OpenOptions::default();
    let fs = Volume::open(device.clone(), clock, &options).unwrap();
    let cut = file(&fs, "cut");
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let syncing = scope.spawn(|| {
            while !is_done.load(SeqCst) {
                cut.fsync().unwrap();
                fs.sync().unwrap();
            }
        });
        for round in 0..ROUNDS {
            cut.write_at(0, &vec![round as u8 + 1; 40_000]).unwrap();
            match round % 4 {
                0 => cut.fsync().unwrap(),
                1 => cut.fallocate(Fallocate::PunchHole, 9000, 9000).unwrap(),
                _ => {}
            }
            let size = Some([0, 1024, 5000][round as usize % 3]);
            let change = SetAttributes {
                size,
                ..SetAttributes::default()
            };
            cut.set_attributes(&change).unwrap();
        }
        is_done.store(true, SeqCst);
        syncing.join().unwrap();
    });
    drop(cut);
    fs.close().unwrap();
    let mut cuts = Cuts::new(&empty);
    let (events, mut states) = (device.take_events(), 0);
    let stride = (events.len() / many(400)).max(1);
    for (at, (_, event)) in events.iter().enumerate() {
        cuts.push(event);
        if !at.is_multiple_of(stride) {
            continue;
        }
        for image in [cuts.all(), cuts.some(at as u64)] {
            let image = Arc::new(image);
            let found = recover(Arc::clone(&image) as Arc<dyn BlockDevice>);
            found.and_then(|()| read(&image)).unwrap_or_else(|error| {
                panic!("after {at} of {} changes: {error}", events.len());
            });
            states += 1;
        }
    }
    println!("{states} states of {} changes", events.len());
}
