//! The running kernel mounts what this crate makes, and e2fsck finds nothing after it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use uext4_blockdev::{BlockDevice, FileDevice};
use uext4_mkfs::{Layout, format, layout};

use crate::flags::options;
use crate::oracle::{available, fsck, theirs};

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

/// A loop device and a mount, undone when dropped.
struct Mount {
    device: String,
    at: PathBuf,
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Where mounting failed there is nothing to undo, and nothing to be said about it. A process
        // that another test is starting may hold our files open for a moment: busy until it runs.
        for _ in 0..50 {
            let output = Command::new("umount").arg(&self.at).output();
            if !output.is_ok_and(|o| String::from_utf8_lossy(&o.stderr).contains("busy")) {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = Command::new("losetup").args(["-d", &self.device]).output();
    }
}

impl Mount {
    fn new(image: &Path, at: &Path) -> Result<Self, String> {
        let output = Command::new("losetup")
            .args(["-f", "--show"])
            .arg(image)
            .output()
            .unwrap();
        let mount = Self {
            device: String::from_utf8_lossy(&output.stdout).trim().to_owned(),
            at: at.to_owned(),
        };
        let output = Command::new("mount")
            .args(["-t", "ext4", &mount.device])
            .arg(at)
            .output()
            .unwrap();
        if output.status.success() {
            Ok(mount)
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }
}

fn can_mount() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|id| id.stdout.starts_with(b"0\n")) && Path::new("/dev/loop-control").exists()
}

/// Free blocks and inodes, as statfs tells.
fn free(at: &Path) -> (u64, u64) {
    let output = Command::new("stat")
        .args(["-f", "-c", "%f %d"])
        .arg(at)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
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
        eprintln!("skipped: needs root");
        return;
    }
    for &(flags, len) in CASES {
        let dir = tempfile::tempdir().unwrap();
        let (image, at) = (dir.path().join("image"), dir.path().join("mnt"));
        fs::create_dir(&at).unwrap();
        let layout = made(&image, flags, len);
        let mount = match Mount::new(&image, &at) {
            Ok(mount) => mount,
            Err(why) => {
                // A kernel built without quotas, say.
                let other = dir.path().join("theirs");
                theirs(&other, flags, len).unwrap();
                assert!(Mount::new(&other, &at).is_err(), "{flags}: {why}");
                eprintln!("skipped: {flags}: this kernel does not mount such file systems");
                continue;
            }
        };
        let names: Vec<_> = fs::read_dir(&at)
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        assert_eq!(names, ["lost+found"], "{flags}");
        let expected = (layout.free_blocks(), u64::from(layout.free_inodes()));
        assert_eq!(free(&at), expected, "{flags}");
        for i in 0..40 {
            let sub = at.join(format!("d{i}"));
            fs::create_dir(&sub).unwrap();
            fs::write(sub.join("f"), vec![i; 20_000]).unwrap();
        }
        drop(mount);
        assert_eq!(fsck(&image), None, "{flags}");
        let mount = Mount::new(&image, &at).unwrap();
        assert_eq!(
            fs::read(at.join("d7/f")).unwrap(),
            vec![7; 20_000],
            "{flags}"
        );
        drop(mount);
    }
}
