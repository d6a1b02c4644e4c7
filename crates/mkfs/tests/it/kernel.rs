//! The running kernel mounts what this crate makes, and e2fsck finds nothing after it.

use std::fs;
use std::path::Path;

use uext4_blockdev::{BlockDevice, FileDevice};
use uext4_mkfs::{Layout, format, layout};
use uext4_testkit::{Mount, can_mount, complaints, run_text};

use crate::flags::options;
use crate::oracle::{available, theirs};

/// Flag sets the kernel of most machines takes: blocks of at most a page, no MMP waits.
const CASES: &[(&str, u64)] = &[
    ("-t ext2", 20 << 20),
    ("-t ext3", 64 << 20),
    ("-t ext4", 64 << 20),
    ("-t ext4", 2 << 30),
    ("-t ext4", 3 << 40),
    ("-t ext4 -E nodiscard", 300 << 20),
    ("-t ext4 -O bigalloc", 1 << 30),
    ("-t ext4 -O bigalloc -b 1024 -C 16384", 1 << 30),
    ("-t ext4 -O meta_bg,^resize_inode", 1 << 30),
    (
        "-t ext4 -O sparse_super2,inline_data,large_dir,ea_inode",
        1 << 30,
    ),
    (
        "-t ext4 -O orphan_file,metadata_csum_seed,stable_inodes",
        1 << 30,
    ),
    ("-t ext4 -O quota,project", 1 << 30),
    ("-t ext4 -O ^metadata_csum,uninit_bg", 1 << 30),
    ("-t ext4 -O fast_commit -E packed_meta_blocks=1", 1 << 30),
    ("-t ext4 -b 2048 -I 512 -G 4 -J size=8", 200 << 20),
];

/// Free blocks and inodes, as statfs reports.
fn free(at: &Path) -> (u64, u64) {
    let arguments = ["-f", "-c", "%f %d"].map(AsRef::as_ref);
    let text = run_text("stat", arguments.into_iter().chain([at]));
    let (blocks, inodes) = text.trim().split_once(' ').unwrap();
    (blocks.parse().unwrap(), inodes.parse().unwrap())
}

fn made(image: &Path, flags: &str, len: u64) -> Layout {
    let device = FileDevice::create(image, len).unwrap();
    let layout = layout(&options(flags), device.len()).unwrap();
    format(&layout, &device).unwrap();
    layout
}

#[test]
fn the_kernel_mounts_and_fills_them() {
    if !can_mount() || !available() {
        return;
    }
    for &(flags, len) in CASES {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        let layout = made(&image, flags, len);
        let mount = match Mount::attempt(&image, "defaults") {
            Ok(mount) => mount,
            Err(why) => {
                // A kernel built without quotas, say.
                let other = dir.path().join("theirs");
                theirs(&other, flags, len).unwrap();
                assert!(
                    Mount::attempt(&other, "defaults").is_err(),
                    "{flags}: {why}"
                );
                eprintln!("skipped: {flags}: this kernel does not mount such file systems");
                continue;
            }
        };
        let at = mount.path();
        let names: Vec<_> = fs::read_dir(at)
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        assert_eq!(names, ["lost+found"], "{flags}");
        let expected = (layout.free_blocks(), u64::from(layout.free_inodes()));
        assert_eq!(free(at), expected, "{flags}");
        for i in 0..40 {
            let sub = at.join(format!("d{i}"));
            fs::create_dir(&sub).unwrap();
            fs::write(sub.join("f"), vec![i; 20_000]).unwrap();
        }
        drop(mount);
        assert_eq!(complaints(&image), None, "{flags}");
        let mount = Mount::new(&image, "defaults");
        assert_eq!(
            fs::read(mount.path().join("d7/f")).unwrap(),
            vec![7; 20_000],
            "{flags}"
        );
        drop(mount);
    }
}
