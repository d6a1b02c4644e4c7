//! File systems that several hosts reach grow and shrink, while no other host has them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use uext4_blockdev::{Access, BlockDevice, Clock, FileDevice, VirtualClock};
use uext4_ondisk::mmp::{EXT4_MMP_SEQ_CLEAN, EXT4_MMP_SEQ_FSCK, MMP_LEN, MmpBlock};
use uext4_ondisk::superblock::{SUPERBLOCK_OFFSET, SuperBlock};
use uext4_ondisk::{BlockSize, Pblk};
use uext4_resize::{Error, Examination, Resized, Size, SmallerSize, grow, shrink};
use uext4_testkit::e2fsprogs::{assert_clean, mke2fs};
use uext4_testkit::has_tool;
use zerocopy::IntoBytes;

/// An image with some files and the feature.
fn image(dir: &TempDir, features: &str) -> Option<PathBuf> {
    if !has_tool("mke2fs") {
        println!("skipped: no e2fsprogs");
        return None;
    }
    let (image, tree) = (dir.path().join("image"), dir.path().join("tree"));
    fs::create_dir(&tree).unwrap();
    for nr in 0..40_u8 {
        fs::write(tree.join(nr.to_string()), vec![nr; 40_000]).unwrap();
    }
    let tree = tree.to_str().unwrap();
    let options = ["-t", "ext4", "-b", "1024", "-O", features, "-d", tree];
    mke2fs(&image, options, "80M");
    Some(image)
}

fn open(image: &Path) -> Arc<dyn BlockDevice> {
    Arc::new(FileDevice::open(image, Access::ReadWrite).unwrap())
}

/// The block, and where it lies.
fn block(device: &dyn BlockDevice) -> (MmpBlock, u64, SuperBlock) {
    let mut bytes = [0; size_of::<SuperBlock>()];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes).unwrap();
    let superblock = SuperBlock::parse(&bytes).unwrap();
    let size = BlockSize::from_bytes(1024).unwrap();
    let place = Pblk(superblock.s_mmp_block.get());
    let offset = size.byte_offset(place).unwrap();
    let mut bytes = [0; MMP_LEN];
    device.read_at(offset, &mut bytes).unwrap();
    let block = MmpBlock::parse(&bytes, place, superblock.csum_seed()).unwrap();
    (block, offset, superblock)
}

/// As another host leaves the block.
fn write_number(device: &dyn BlockDevice, number: u32) {
    let (mut block, offset, superblock) = block(device);
    block.mmp_seq = number.into();
    block.mmp_nodename = [0; 64];
    block.mmp_nodename[..5].copy_from_slice(b"other");
    if let Some(seed) = superblock.csum_seed() {
        block.mmp_checksum = block.checksum(seed).into();
    }
    device.write_at(offset, block.as_bytes()).unwrap();
}

fn grow_by(image: &Path, more: u64, clock: &Arc<dyn Clock>) -> Result<Resized, Error> {
    let size = Size::More(more);
    grow(&open(image), clock, size, u64::MAX, Examination::First(&()))
}

fn is_free_and_clean(image: &Path) {
    let device = open(image);
    assert_eq!(block(&*device).0.mmp_seq.get(), EXT4_MMP_SEQ_CLEAN);
    let found = uext4_fsck::findings(&device).unwrap();
    assert!(found.is_empty(), "{found:?}");
    assert_clean(image);
}

#[test]
fn a_file_system_of_several_hosts_grows_and_shrinks() {
    for features in ["mmp", "mmp,^metadata_csum"] {
        let dir = TempDir::new().unwrap();
        let Some(image) = image(&dir, features) else {
            return;
        };
        let clock: Arc<dyn Clock> = Arc::new(VirtualClock::new(1_700_000_000));
        let grown = grow_by(&image, 200 << 20, &clock).unwrap();
        assert_eq!(grown.after, 280 << 10);
        // Other hosts that may have it are waited for.
        assert!(clock.monotonic() >= Duration::from_secs(11));
        is_free_and_clean(&image);
        let least = SmallerSize::Least;
        let first = Examination::First(&());
        let shrunk = shrink(&open(&image), &clock, least, first, &mut |_| Ok(())).unwrap();
        assert!(shrunk.after < 80 << 10, "{shrunk:?}");
        let file = fs::File::options().write(true).open(&image).unwrap();
        file.set_len(shrunk.after << 10).unwrap();
        is_free_and_clean(&image);
    }
}

/// Another host works on while time passes.
#[derive(Debug)]
struct Busy {
    device: Arc<dyn BlockDevice>,
    clock: VirtualClock,
    is_odd: AtomicBool,
}

impl Clock for Busy {
    fn now(&self) -> (i64, u32) {
        self.clock.now()
    }

    fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    fn sleep(&self, duration: Duration) {
        self.clock.sleep(duration);
        let is_odd = self.is_odd.fetch_xor(true, Ordering::Relaxed);
        write_number(&*self.device, 77 + u32::from(is_odd));
    }
}

#[test]
fn what_another_host_has_is_left_alone() {
    let dir = TempDir::new().unwrap();
    let Some(image) = image(&dir, "mmp") else {
        return;
    };
    write_number(&*open(&image), 76);
    let busy: Arc<dyn Clock> = Arc::new(Busy {
        device: open(&image),
        clock: VirtualClock::new(1_700_000_000),
        is_odd: AtomicBool::new(false),
    });
    let error = grow_by(&image, 100 << 20, &busy).unwrap_err();
    assert!(matches!(error, Error::Shared(_)), "{error}");
    assert!(error.to_string().contains("other"), "{error}");
    let first = Examination::First(&());
    let size = SmallerSize::Least;
    let error = shrink(&open(&image), &busy, size, first, &mut |_| Ok(())).unwrap_err();
    assert!(matches!(error, Error::Shared(_)), "{error}");
    // One that died keeps it until its mark is cleared.
    let clock: Arc<dyn Clock> = Arc::new(VirtualClock::new(1_700_000_000));
    write_number(&*open(&image), 0x1234);
    let error = grow_by(&image, 100 << 20, &clock).unwrap_err();
    assert!(error.to_string().contains("clear_mmp"), "{error}");
    // One that examines it does not change the number.
    write_number(&*open(&image), EXT4_MMP_SEQ_FSCK);
    let before = fs::read(&image).unwrap();
    grow_by(&image, 100 << 20, &clock).unwrap_err();
    assert!(fs::read(&image).unwrap() == before);
}
