//! What tests of the engine's insides share: file systems made by mke2fs, in memory, mounted for
//! writing, and judged by e2fsck afterwards.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use uext4_blockdev::{BlockDevice, MemoryDevice, VirtualClock};
use uext4_ondisk::Ino;
use uext4_ondisk::inode::{FULL_EXTRA_ISIZE, FileType, InodeFlags};

pub(crate) use uext4_testkit::{
    assert_device_clean as e2fsck, changed_by_kernel as kernel_mount, formatted as mke2fs,
};

use crate::alloc::ialloc::Parent;
use crate::inode::Inode;
use crate::inode::store::store_new;
use crate::journal::handle::Handle;
use crate::journal::sbi::Sbi;
use crate::mount::in_use;
use crate::mount::open_options::OpenOptions;
use crate::mount::super_;

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
