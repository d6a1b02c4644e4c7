//! The power goes at any write: the file system has either size, and is clean.

use std::fs;
use std::sync::Arc;

use tempfile::TempDir;
use uext4_blockdev::{BlockDevice, Clock, MemoryDevice, VirtualClock};
use uext4_resize::{Size, grow};
use uext4_testkit::e2fsprogs::{assert_clean, e2fsck};
use uext4_testkit::loops::can_mount;
use uext4_testkit::{SimDevice, SimOptions, has_tool};

use crate::grow::{field, image};
use crate::kernel::the_kernel_is_safe;

/// Options of mke2fs, sizes in MiB before and after.
const CASES: &[(&str, u64, u64)] = &[
    ("-t ext4 -b 1024", 12, 40),
    ("-t ext4 -b 1024 -O ^resize_inode", 60, 80),
    ("-t ext4 -b 1024 -E resize=20000", 12, 140),
    ("-t ext4 -O bigalloc", 100, 130),
    ("-t ext3 -b 1024", 12, 40),
];

/// A device that writes a superblock whole or not at all.
pub fn sim() -> SimOptions {
    SimOptions {
        sector_size: 1024,
        ..SimOptions::default()
    }
}

#[test]
fn cut_at_any_write_it_has_either_size() {
    if !has_tool("mke2fs") {
        println!("skipped: no e2fsprogs");
        return;
    }
    let is_long = std::env::var_os("UEXT4_LONG").is_some();
    let dir = TempDir::new().unwrap();
    let clock: Arc<dyn Clock> = Arc::new(VirtualClock::default());
    let mut cuts = 0;
    let sim = sim();
    for &(options, from, to) in CASES {
        let path = image(&dir, options, from);
        let old = field(&path, "Block count");
        let mut bytes = fs::read(&path).unwrap();
        bytes.resize((to << 20) as usize, 0);
        let start = MemoryDevice::from_bytes(bytes);
        let run = |cut: Option<u64>| {
            let device = Arc::new(SimDevice::new(&start, sim.clone()));
            if let Some(cut) = cut {
                device.cut_at_write(cut);
            }
            let shared: Arc<dyn BlockDevice> = Arc::clone(&device) as _;
            let result = grow(&shared, &clock, Size::Device, from << 20);
            assert_eq!(result.is_ok(), cut.is_none(), "{options}: {result:?}");
            device
        };
        let whole = run(None);
        fs::write(&path, whole.power_cut(0).to_bytes()).unwrap();
        assert_clean(&path);
        let new = field(&path, "Block count");
        let changes = whole.stats().changes();
        let step = if is_long { 1 } else { changes.div_ceil(12) };
        let mut found = [0, 0];
        let mut mounted = 0;
        for cut in (0..changes).step_by(step as usize) {
            let device = run(Some(cut));
            for seed in 0..3 {
                fs::write(&path, device.power_cut(seed).to_bytes()).unwrap();
                if is_long && !options.contains("bigalloc") && can_mount() {
                    mounted += u32::from(the_kernel_is_safe(&path, &dir));
                }
                let replay = e2fsck(&path, "-y -E journal_only");
                assert!(replay.status.success(), "{options}, cut {cut}: {replay:?}");
                assert_clean(&path);
                let blocks = field(&path, "Block count");
                assert!(
                    blocks == old || blocks == new,
                    "{options}, cut {cut}: {blocks:?}"
                );
                found[usize::from(blocks == new)] += 1;
                cuts += 1;
            }
        }
        println!("{options}: {found:?}, {mounted} mounted by the kernel");
        assert!(
            !is_long || found.iter().all(|&count| count > 0),
            "{found:?}"
        );
    }
    println!("{cuts} cuts");
}
