//! What tests of the engine's insides share: file systems made by mke2fs, in memory, mounted for
//! writing, and judged by e2fsck afterwards.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use uext4_blockdev::{BlockDevice, MemoryDevice, VirtualClock};
use uext4_ondisk::Ino;
use uext4_ondisk::inode::{FULL_EXTRA_ISIZE, FileType, InodeFlags};

use crate::alloc::ialloc::Parent;
use crate::inode::Inode;
use crate::inode::store::store_new;
use crate::journal::handle::Handle;
use crate::journal::sbi::Sbi;
use crate::mount::in_use;
use crate::mount::open_options::OpenOptions;
use crate::mount::super_;

/// A device with what `mke2fs FLAGS` makes of `kib` KiB.
pub(crate) fn mke2fs(flags: &str, kib: u64) -> Arc<MemoryDevice> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.img");
    let made = Command::new("mke2fs")
        .args(["-q", "-F"])
        .args(flags.split_whitespace())
        .arg(&path)
        .arg(format!("{kib}k"))
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "mke2fs {flags}: {stderr}");
    Arc::new(MemoryDevice::from_bytes(std::fs::read(&path).unwrap()))
}

/// Mounts it for writing.
pub(crate) fn mount(device: &Arc<MemoryDevice>) -> Arc<Sbi> {
    mount_with(device, &OpenOptions::default())
}

/// The same with options.
pub(crate) fn mount_with(device: &Arc<MemoryDevice>, options: &OpenOptions) -> Arc<Sbi> {
    let device: Arc<dyn BlockDevice> = Arc::<MemoryDevice>::clone(device);
    // Small times of deletion would be links of the orphan list.
    let clock = Arc::new(VirtualClock::new(1_700_000_000));
    Arc::new(super_::open_rw(device, clock, options).unwrap())
}

/// Unmounts, and asserts that e2fsck finds nothing wrong.
pub(crate) fn unmount_and_check(sbi: &Sbi, device: &MemoryDevice) {
    close(sbi);
    e2fsck(device);
}

/// Unmounts.
pub(crate) fn close(sbi: &Sbi) {
    in_use::close(sbi, &AtomicU64::new(0)).unwrap();
}

/// Asserts that e2fsck finds nothing wrong.
pub(crate) fn e2fsck(device: &MemoryDevice) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), device.to_bytes()).unwrap();
    let judged = Command::new("e2fsck")
        .args(["-f", "-n"])
        .arg(file.path())
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&judged.stdout);
    assert!(judged.status.success(), "{stdout}");
}

/// Makes an empty inode in the root's group that no name leads to; who calls gives it one.
pub(crate) fn new_inode(handle: &Handle<'_>, file_type: FileType) -> Inode {
    let sbi = handle.sbi();
    let (group, _) = sbi.geometry().inode_group(Ino::ROOT).unwrap();
    let parent = Parent {
        group,
        is_top: false,
        last_group: None,
    };
    let directory = (file_type == FileType::Directory).then_some(0);
    let new = handle.take_inode(parent, directory).unwrap();
    let mut inode = crate::inode::iget(sbi, Ino::ROOT).unwrap();
    inode.ino = new.ino;
    inode.mode = file_type.mode_bits() | 0o644;
    inode.file_type = file_type;
    inode.links = 1;
    inode.size = 0;
    inode.blocks = 0;
    inode.generation = handle.rw().next_generation();
    inode.xattr_block = None;
    inode.xattr_offset = None;
    inode.flags &= InodeFlags::EXTENTS;
    inode.i_block = if inode.has(InodeFlags::EXTENTS) {
        uext4_ondisk::extent::empty_extent_root()
    } else {
        [0; 60]
    };
    store_new(handle, sbi, &inode, FULL_EXTRA_ISIZE).unwrap();
    inode
}

/// Shows a device's file system to `f`, mounted by the kernel, and gives what that leaves; `None`
/// where there are no rights to mount.
pub(crate) fn kernel_mount(
    device: &MemoryDevice,
    f: impl FnOnce(&std::path::Path),
) -> Option<Arc<MemoryDevice>> {
    let root = rustix::process::geteuid().is_root();
    if !root || !std::path::Path::new("/dev/loop-control").exists() {
        println!("skipped: needs root");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let (image, place) = (dir.path().join("image"), dir.path().join("mnt"));
    std::fs::write(&image, device.to_bytes()).unwrap();
    std::fs::create_dir(&place).unwrap();
    let run = |program: &str, arguments: &[&std::ffi::OsStr]| {
        let output = Command::new(program).args(arguments).output().unwrap();
        assert!(output.status.success(), "{program}: {output:?}");
    };
    run(
        "mount",
        &[
            "-o".as_ref(),
            "loop".as_ref(),
            image.as_ref(),
            place.as_ref(),
        ],
    );
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| f(&place)));
    run("umount", &[place.as_ref()]);
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
    Some(Arc::new(MemoryDevice::from_bytes(
        std::fs::read(&image).unwrap(),
    )))
}
