//! Limits: what exceeds them is refused with nothing changed, and everything else goes on.

use std::sync::Arc;
use std::time::Duration;

use uext4::data::Fallocate;
use uext4::quota::{Quota, QuotaKind, QuotaLimits};
use uext4::xattr::SetMode;
use uext4::{
    Error, Image, InodeFlags, NewInode, OpenInode, OpenOptions, RenameMode, SetAttributes, Volume,
};
use uext4_blockdev::{MemoryDevice, VirtualClock};

use super::super::device::{made, mount, mount_small};
use super::{close_and_judge, creation};

const FLAGS: &str = "-t ext4 -b 1024 -O quota,project";
const USER: QuotaKind = QuotaKind::User;

fn open() -> (Arc<MemoryDevice>, Volume) {
    let device = made(FLAGS, 32_768);
    let fs = mount(device.clone());
    (device, fs)
}

fn space(hard: u64) -> QuotaLimits {
    QuotaLimits {
        space_hard: hard,
        ..QuotaLimits::default()
    }
}

fn inodes(hard: u64) -> QuotaLimits {
    QuotaLimits {
        inodes_hard: hard,
        ..QuotaLimits::default()
    }
}

#[track_caller]
fn refused<T>(result: Result<T, Error>, whose: (QuotaKind, u32)) {
    match result {
        Err(Error::QuotaExceeded { kind, id }) => assert_eq!((kind, id), whose),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("not refused"),
    }
}

fn file(fs: &Volume, name: &str, uid: u32, gid: u32) -> OpenInode {
    let how = creation(uid, gid);
    fs.create(name.as_bytes(), NewInode::File, &how).unwrap()
}

fn chown(uid: u32) -> SetAttributes {
    SetAttributes {
        uid: Some(uid),
        ..SetAttributes::default()
    }
}

#[test]
fn bytes_are_refused_when_they_are_written() {
    let (device, fs) = open();
    fs.set_quota(USER, 1000, space(100 << 10)).unwrap();
    let a = file(&fs, "a", 1000, 5);
    assert_eq!(a.write_at(0, &[1; 60 << 10]).unwrap(), 60 << 10);
    let b = file(&fs, "b", 1000, 5);
    // As much as there is room for, before any of it is mapped.
    assert_eq!(b.write_at(0, &[2; 60 << 10]).unwrap(), 40 << 10);
    refused(b.append(&[2; 1]), (USER, 1000));
    // What has its block already is no more than before.
    assert_eq!(a.write_at(3, &[3; 50 << 10]).unwrap(), 50 << 10);
    // Others are not concerned.
    assert_eq!(
        file(&fs, "c", 1001, 5).append(&[4; 200 << 10]).unwrap().1,
        200 << 10
    );
    fs.sync().unwrap();
    refused(b.append(&[2; 1]), (USER, 1000));
    let quota = fs.quota(USER, 1000).unwrap();
    assert_eq!((quota.space, quota.inodes), (100 << 10, 2));
    a.set_attributes(&SetAttributes {
        size: Some(10 << 10),
        ..SetAttributes::default()
    })
    .unwrap();
    assert_eq!(b.append(&[5; 60 << 10]).unwrap().1, 50 << 10);
    fs.remove(b"b").unwrap();
    drop(b);
    assert_eq!(fs.quota(USER, 1000).unwrap().space, 10 << 10);
    drop(a);
    close_and_judge(fs, &device, "bytes");
}

#[test]
fn what_waits_to_be_written_goes_with_its_owner() {
    let (device, fs) = open();
    fs.set_quota(USER, 1000, space(100 << 10)).unwrap();
    let a = file(&fs, "a", 1000, 5);
    a.write_at(0, &[1; 100 << 10]).unwrap();
    a.set_attributes(&chown(1001)).unwrap();
    assert_eq!(fs.quota(USER, 1000).unwrap().space, 0);
    assert_eq!(fs.quota(USER, 1001).unwrap().space, 100 << 10);
    let b = file(&fs, "b", 1000, 5);
    b.write_at(0, &[1; 50 << 10]).unwrap();
    refused(a.set_attributes(&chown(1000)), (USER, 1000));
    assert_eq!(a.inode().uid, 1001);
    // Forgotten before it was mapped.
    fs.remove(b"b").unwrap();
    drop(b);
    a.set_attributes(&chown(1000)).unwrap();
    fs.sync().unwrap();
    refused(a.append(&[1]), (USER, 1000));
    drop(a);
    close_and_judge(fs, &device, "delayed");
}

#[test]
fn inodes_are_refused() {
    let (device, fs) = open();
    fs.set_quota(USER, 1000, inodes(3)).unwrap();
    let how = creation(1000, 5);
    fs.create_dir(b"dir", &how).unwrap();
    fs.symlink(b"target", b"link", &how).unwrap();
    file(&fs, "dir/a", 1000, 5);
    for kind in [NewInode::File, NewInode::Directory, NewInode::Fifo] {
        refused(fs.create(b"dir/b", kind, &how), (USER, 1000));
        assert!(matches!(fs.create(b"link", kind, &how), Err(Error::Exists)));
    }
    let dir = fs.open_path(b"dir", uext4::FollowLast::Yes).unwrap();
    refused(dir.create_unnamed(NewInode::File, &how), (USER, 1000));
    // One more name is no inode.
    fs.link(b"dir/a", b"b").unwrap();
    let other = file(&fs, "other", 1001, 5);
    refused(other.set_attributes(&chown(1000)), (USER, 1000));
    fs.remove(b"link").unwrap();
    other.set_attributes(&chown(1000)).unwrap();
    drop((dir, other));
    close_and_judge(fs, &device, "inodes");
}

#[test]
fn directories_links_and_attributes_need_blocks() {
    let (device, fs) = open();
    let how = creation(1000, 5);
    let dir = fs.create_dir(b"dir", &how).unwrap();
    fs.set_quota(USER, 1000, space(2 << 10)).unwrap();
    fs.symlink(&[b't'; 70], b"link", &how).unwrap();
    refused(fs.create_dir(b"more", &how), (USER, 1000));
    refused(fs.symlink(&[b't'; 70], b"long", &how), (USER, 1000));
    fs.symlink(&[b't'; 59], b"short", &how).unwrap();
    // Until the directory must grow.
    let mut last = 0;
    let error = loop {
        let name = format!("a name in the directory {last:4}");
        match dir.create(name.as_bytes(), NewInode::File, &how) {
            Ok(_) => last += 1,
            Err(error) => break error,
        }
    };
    refused::<()>(Err(error), (USER, 1000));
    assert!((10..40).contains(&last), "{last}");
    let name = [b'l'; 200];
    let link = fs.root().unwrap().lookup(b"link").unwrap();
    refused(link.link(&dir, &name), (USER, 1000));
    refused(
        fs.root()
            .unwrap()
            .rename(b"link", &dir, &name, RenameMode::Replace),
        (USER, 1000),
    );
    let value = [7; 900];
    refused(
        dir.set_xattr(b"user.x", Some(&value), SetMode::Any),
        (USER, 1000),
    );
    dir.set_xattr(b"user.x", Some(b"small"), SetMode::Any)
        .unwrap();
    // One for the attribute, two for a directory that becomes hashed.
    fs.set_quota(USER, 1000, space(5 << 10)).unwrap();
    dir.set_xattr(b"user.x", Some(&value), SetMode::Any)
        .unwrap();
    dir.create(&name, NewInode::File, &how).unwrap();
    drop((dir, link));
    close_and_judge(fs, &device, "blocks");
}

#[test]
fn allocated_ranges_are_refused_whole() {
    let (device, fs) = open();
    let group = (QuotaKind::Group, 77);
    fs.set_quota(group.0, group.1, space(50 << 10)).unwrap();
    let a = file(&fs, "a", 0, 77);
    let allocate = Fallocate::Allocate { keep_size: true };
    refused(a.fallocate(allocate, 0, 60 << 10), group);
    assert_eq!(fs.quota(group.0, 77).unwrap().space, 0);
    a.fallocate(allocate, 0, 50 << 10).unwrap();
    refused(a.fallocate(allocate, 50 << 10, 1), group);
    assert_eq!(a.write_at(0, &[1; 50 << 10]).unwrap(), 50 << 10);
    a.fallocate(Fallocate::PunchHole, 0, 25 << 10).unwrap();
    assert_eq!(fs.quota(group.0, 77).unwrap().space, 25 << 10);
    drop(a);
    close_and_judge(fs, &device, "allocated");
}

#[test]
fn projects_are_limited() {
    let (device, fs) = open();
    let dir = fs.create_dir(b"project", &creation(0, 0)).unwrap();
    dir.set_attributes(&SetAttributes {
        projid: Some(42),
        flags: Some(InodeFlags::PROJINHERIT),
        ..SetAttributes::default()
    })
    .unwrap();
    let project = (QuotaKind::Project, 42);
    let limits = QuotaLimits {
        space_hard: 30 << 10,
        inodes_hard: 3,
        ..QuotaLimits::default()
    };
    fs.set_quota(project.0, project.1, limits).unwrap();
    let a = file(&fs, "project/a", 0, 0);
    assert_eq!(a.write_at(0, &[1; 50 << 10]).unwrap(), 29 << 10);
    refused(a.append(&[1]), project);
    file(&fs, "project/b", 1, 1);
    refused(
        fs.create(b"project/c", NewInode::File, &creation(1, 1)),
        project,
    );
    let outside = file(&fs, "outside", 0, 0);
    let into = SetAttributes {
        projid: Some(42),
        ..SetAttributes::default()
    };
    refused(outside.set_attributes(&into), project);
    fs.remove(b"project/b").unwrap();
    outside.set_attributes(&into).unwrap();
    assert_eq!(fs.quota(project.0, 42).unwrap().inodes, 3);
    drop((a, outside, dir));
    close_and_judge(fs, &device, "projects");
}

#[test]
fn soft_limits_have_a_grace() {
    const WEEK: u64 = 7 * 24 * 60 * 60;
    let device = made(FLAGS, 32_768);
    let clock = Arc::new(VirtualClock::new(1_700_000_000));
    let fs = mount_small(device.clone(), &clock, 4 << 20);
    let limits = QuotaLimits {
        space_soft: 20 << 10,
        space_hard: 60 << 10,
        inodes_soft: 1,
        ..QuotaLimits::default()
    };
    fs.set_quota(USER, 1000, limits).unwrap();
    let a = file(&fs, "a", 1000, 5);
    a.write_at(0, &[1; 20 << 10]).unwrap();
    assert_eq!(fs.quota(USER, 1000).unwrap().space_grace_end, 0);
    a.append(&[1; 10 << 10]).unwrap();
    let b = file(&fs, "b", 1000, 5);
    let quota = fs.quota(USER, 1000).unwrap();
    assert_eq!(quota.space_grace_end, 1_700_000_000 + WEEK);
    assert_eq!(quota.inodes_grace_end, 1_700_000_000 + WEEK);
    clock.advance(Duration::from_secs(WEEK - 1));
    a.append(&[1; 1 << 10]).unwrap();
    file(&fs, "c", 1000, 5);
    clock.advance(Duration::from_secs(1));
    refused(a.append(&[1]), (USER, 1000));
    refused(fs.create_dir(b"d", &creation(1000, 5)), (USER, 1000));
    // The end of the grace stays over an unmount.
    fs.close().unwrap();
    drop((a, b, fs));
    let fs = mount_small(device.clone(), &clock, 4 << 20);
    let a = fs.root().unwrap().lookup(b"a").unwrap();
    refused(a.append(&[1]), (USER, 1000));
    // Down to the limit it ends, and begins anew above.
    a.set_attributes(&SetAttributes {
        size: Some(20 << 10),
        ..SetAttributes::default()
    })
    .unwrap();
    assert_eq!(fs.quota(USER, 1000).unwrap().space_grace_end, 0);
    a.append(&[1; 1 << 10]).unwrap();
    let end = 1_700_000_000 + 2 * WEEK;
    assert_eq!(fs.quota(USER, 1000).unwrap().space_grace_end, end);
    drop(a);
    close_and_judge(fs, &device, "soft");
}

#[test]
fn limits_are_stored_and_read() {
    let (device, fs) = open();
    let limits = QuotaLimits {
        space_hard: 2_000_001,
        space_soft: 1 << 20,
        inodes_hard: 100,
        inodes_soft: 50,
    };
    fs.set_quota(USER, 1000, limits).unwrap();
    fs.set_quota(USER, 0, limits).unwrap();
    fs.set_quota(QuotaKind::Project, 7, limits).unwrap();
    // What belongs to root is not limited.
    assert_eq!(
        file(&fs, "a", 0, 0).append(&vec![1; 3 << 20]).unwrap().1,
        3 << 20
    );
    fs.close().unwrap();
    drop(fs);
    let reading = Image::open(device.clone(), &OpenOptions::default()).unwrap();
    let rounded = QuotaLimits {
        space_hard: 2_000_896,
        ..limits
    };
    let quota = reading.quota(USER, 1000).unwrap();
    let expected = Quota {
        id: 1000,
        limits: rounded,
        ..Quota::default()
    };
    assert_eq!(quota, expected);
    assert_eq!(
        reading.quota(QuotaKind::Project, 7).unwrap().limits,
        rounded
    );
    assert_eq!(
        reading.quota(USER, 999).unwrap().limits,
        QuotaLimits::default()
    );
    let listed = reading.quotas(USER).unwrap();
    assert_eq!(listed.iter().map(|q| q.id).collect::<Vec<_>>(), [0, 1000]);
    let file = uext4_testkit::stored(&device);
    let text = uext4_testkit::debugfs(file.path(), "list_quota user");
    let row = text.lines().find(|line| line.trim().starts_with("1000 "));
    let words: Vec<&str> = row.unwrap().split_whitespace().collect();
    assert_eq!(words, ["1000", "0", "1024", "1954", "0", "50", "100"]);
    // Mounted so, they are counted only.
    let mut options = OpenOptions::default();
    options.quota_limits = false;
    let clock = Arc::new(VirtualClock::new(1_700_000_000));
    let fs = Volume::open(device.clone(), clock, &options).unwrap();
    let path = b"over";
    let over = fs.create(path, NewInode::File, &creation(1000, 5)).unwrap();
    assert_eq!(over.append(&vec![1; 3 << 20]).unwrap().1, 3 << 20);
    drop(over);
    close_and_judge(fs, &device, "stored");
}

#[test]
fn kinds_that_are_not_counted_are_named() {
    let device = made("-t ext4 -O quota -E quotatype=grpquota", 16_384);
    let fs = mount(device.clone());
    for kind in [USER, QuotaKind::Project] {
        let error = fs.set_quota(kind, 1, space(1)).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        assert!(matches!(fs.quota(kind, 1), Err(Error::Unsupported { .. })));
    }
    fs.set_quota(QuotaKind::Group, 1, space(1)).unwrap();
    close_and_judge(fs, &device, "groups");
    let fs = mount(made("-t ext4", 16_384));
    assert!(matches!(fs.quotas(USER), Err(Error::Unsupported { .. })));
}

#[test]
fn threads_get_all_there_is_and_no_more() {
    let (device, fs) = open();
    let hard = 1000 << 10;
    fs.set_quota(USER, 1000, space(hard)).unwrap();
    let taken: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let fs = fs.clone();
                scope.spawn(move || {
                    let mut taken = 0;
                    for i in 0.. {
                        let name = format!("{thread} {i}");
                        let file = file(&fs, &name, 1000, 5);
                        match file.write_at(0, &[1; 3 << 10]) {
                            Ok(len) => taken += len,
                            Err(Error::QuotaExceeded { .. }) => break,
                            Err(error) => panic!("{error}"),
                        }
                        if i % 40 == 0 {
                            file.fsync().unwrap();
                        }
                    }
                    taken
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    });
    assert_eq!(taken as u64, hard);
    assert_eq!(fs.quota(USER, 1000).unwrap().space, hard);
    close_and_judge(fs, &device, "threads");
}

#[test]
fn an_inline_file_that_cannot_leave_its_inode_stays() {
    let device = made("-t ext4 -b 4096 -O quota,inline_data", 16_384);
    let image = uext4_testkit::stored(&device);
    let source = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(source.path(), b"inline").unwrap();
    let write = format!("write {} a", source.path().display());
    uext4_testkit::debugfs_write(image.path(), [write]);
    let bytes = std::fs::read(image.path()).unwrap();
    let device = Arc::new(MemoryDevice::from_bytes(bytes));
    let fs = mount(device.clone());
    let a = fs.root().unwrap().lookup(b"a").unwrap();
    assert!(a.inode().flags.contains(InodeFlags::INLINE_DATA));
    a.set_attributes(&chown(1000)).unwrap();
    fs.set_quota(USER, 1000, space(1 << 10)).unwrap();
    refused(a.append(b"more"), (USER, 1000));
    let mut data = [0; 10];
    assert_eq!(a.read_at(0, &mut data).unwrap(), 6);
    assert_eq!(&data[..6], b"inline");
    fs.set_quota(USER, 1000, space(4 << 10)).unwrap();
    a.append(b"more").unwrap();
    assert_eq!(fs.quota(USER, 1000).unwrap().space, 4 << 10);
    drop(a);
    fs.close().unwrap();
    drop(fs);
}
