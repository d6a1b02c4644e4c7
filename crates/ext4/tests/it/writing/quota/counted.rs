//! Counting.

use std::sync::Arc;

use uext4::data::Fallocate;
use uext4::quota::QuotaLimits;
use uext4::xattr::SetMode;
use uext4::{
    Creation, FileType, InodeFlags, NewInode, OpenInode, RenameMode, SetAttributes, Volume,
};
use uext4_blockdev::MemoryDevice;
use uext4_testkit::SplitMix64;
use uext4_testkit::{debugfs_write, e2fsck, said};

use super::super::device::{made, mount, steps};
use super::{KINDS, close_and_judge, creation, reported};

const FLAGS: [&str; 6] = [
    "-t ext4 -O quota,project",
    "-t ext4 -b 1024 -J size=1 -O quota,project,orphan_file",
    "-t ext4 -O quota,^has_journal -E quotatype=usrquota",
    "-t ext4 -b 1024 -O quota,project,ea_inode -I 256",
    "-t ext3 -b 1024 -O quota",
    "-t ext4 -O quota,project,inline_data,ea_inode",
];

struct Run<'a> {
    fs: &'a Volume,
    random: SplitMix64,
    projects: bool,
    held: Vec<OpenInode>,
}

impl Run<'_> {
    fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    fn name(&mut self) -> String {
        format!("name {}", self.below(25))
    }

    fn creation(&mut self) -> Creation {
        creation(self.below(6) as u32 * 1000, self.below(4) as u32 * 70_000)
    }

    fn dir(&mut self) -> OpenInode {
        let root = self.fs.root().unwrap();
        let name = self.name();
        match root.lookup(name.as_bytes()) {
            Ok(dir) if dir.inode().file_type == FileType::Directory => dir,
            _ => root,
        }
    }

    fn create(&mut self) {
        let (dir, name, how) = (self.dir(), self.name(), self.creation());
        let long = vec![b't'; 100];
        let kind = match self.below(8) {
            0 | 1 => NewInode::Directory,
            2 => NewInode::Symlink(b"short"),
            3 => NewInode::Symlink(&long),
            4 => NewInode::Fifo,
            _ => NewInode::File,
        };
        if self.below(10) == 0 {
            if let Ok(file) = dir.create_unnamed(NewInode::File, &how) {
                _ = file.write_at(0, &[7; 5000]);
                self.held.push(file);
            }
        } else {
            _ = dir.create(name.as_bytes(), kind, &how);
        }
    }

    fn set_attributes(&mut self, file: &OpenInode) {
        let mut set = SetAttributes::default();
        match self.below(5) {
            0 => set.uid = Some(self.below(6) as u32 * 1000),
            1 => set.gid = Some(self.below(5) as u32 * 70_000),
            2 if self.projects => set.projid = Some(self.below(3) as u32),
            2 => {}
            3 if file.inode().file_type == FileType::Directory => {
                if self.projects {
                    let old = file.inode().flags & InodeFlags::INDEX;
                    set.flags = Some(InodeFlags::PROJINHERIT | old);
                }
                set.mode = Some(0o2755);
            }
            _ => set.size = Some(self.below(100_000)),
        }
        _ = file.set_attributes(&set);
    }

    fn change_data(&mut self, file: &OpenInode) {
        let (at, len) = (self.below(200_000), 1 + self.below(40_000));
        let how = match self.below(8) {
            0 => Fallocate::Allocate { keep_size: true },
            1 => Fallocate::PunchHole,
            2 => Fallocate::ZeroRange { keep_size: false },
            3 => Fallocate::CollapseRange,
            4 => Fallocate::InsertRange,
            _ => {
                _ = file.write_at(at, &vec![1; len as usize]);
                return;
            }
        };
        let block = 4096;
        _ = match how {
            Fallocate::CollapseRange | Fallocate::InsertRange => {
                file.fallocate(how, at / block * block, len.next_multiple_of(block))
            }
            _ => file.fallocate(how, at, len),
        };
    }

    fn set_xattr(&mut self, file: &OpenInode) {
        let name = format!("user.{}", self.below(4));
        let len = [10, 300, 1500, 9000][self.below(4) as usize];
        let value = vec![self.below(2) as u8; len];
        let value = (self.below(4) > 0).then_some(&value[..]);
        _ = file.set_xattr(name.as_bytes(), value, SetMode::Any);
    }

    fn rename(&mut self) {
        let (from, to) = (self.dir(), self.dir());
        let (old, new) = (self.name(), self.name());
        let modes = [
            RenameMode::Replace,
            RenameMode::Exchange,
            RenameMode::Whiteout(Creation::default()),
        ];
        let mode = modes[self.below(3) as usize];
        _ = from.rename(old.as_bytes(), &to, new.as_bytes(), mode);
    }

    fn step(&mut self) {
        let (dir, name) = (self.dir(), self.name());
        let file = dir.lookup(name.as_bytes());
        match (self.below(12), file) {
            (0..=2, _) => self.create(),
            (3, _) => _ = dir.unlink(name.as_bytes()),
            (4, _) => _ = dir.rmdir(name.as_bytes()),
            (5, _) => self.rename(),
            (6, Ok(file)) => self.set_attributes(&file),
            (7, Ok(file)) => self.set_xattr(&file),
            (8, Ok(file)) => {
                let name = self.name();
                _ = file.link(&dir, name.as_bytes());
            }
            (9, Ok(file)) if self.held.len() < 5 => self.held.push(file),
            (9, _) => drop(self.held.pop()),
            (10, _) if self.below(20) == 0 => self.fs.sync().unwrap(),
            (_, Ok(file)) => self.change_data(&file),
            _ => {}
        }
    }
}

/// Gives limits to most of those who take part, so that every kind of operation meets one.
fn limit(fs: &Volume) {
    for (at, (kind, _)) in KINDS.into_iter().enumerate() {
        for i in 1..6 {
            let id = [1000, 70_000, 1][at] * i;
            let limits = QuotaLimits {
                space_hard: u64::from(i) * 30_000,
                space_soft: u64::from(i % 2) * 20_000,
                inodes_hard: u64::from(i) * 4,
                inodes_soft: 2,
            };
            _ = fs.set_quota(kind, id, limits);
        }
    }
}

#[test]
fn random_operations_are_counted_as_e2fsck_counts() {
    for flags in FLAGS {
        for seed in 0..steps(4, 60) {
            let device = made(flags, 32_768);
            let fs = mount(device.clone());
            let mut random = Run {
                fs: &fs,
                random: SplitMix64::new(seed),
                projects: flags.contains("project"),
                held: Vec::new(),
            };
            if seed % 2 == 1 {
                limit(&fs);
            }
            for _ in 0..800 {
                random.step();
            }
            drop(random);
            close_and_judge(fs, &device, &format!("{flags} {seed}"));
        }
    }
}

/// More ids than one leaf or one block of the tree holds, in all bytes of the number.
#[test]
fn many_ids() {
    for flags in [
        "-t ext4 -b 1024 -O quota -E quotatype=usrquota",
        "-t ext4 -O quota,project",
        "-t ext3 -b 1024 -O quota",
    ] {
        let device = made(flags, 32_768);
        let fs = mount(device.clone());
        let dir = fs.root().unwrap();
        let file = dir
            .create(b"file", NewInode::File, &creation(0, 0))
            .unwrap();
        file.write_at(0, b"x").unwrap();
        for i in 0..3000u32 {
            let id = match i % 3 {
                0 => i,
                1 => i.wrapping_mul(0x9E37_79B1) % (u32::MAX - 1),
                _ => i << 12,
            };
            let set = SetAttributes {
                uid: Some(id),
                gid: Some(id / 2),
                ..SetAttributes::default()
            };
            file.set_attributes(&set).unwrap();
            if i % 4 == 0 {
                let name = format!("f{i}");
                let how = creation(id, i % 100);
                dir.create(name.as_bytes(), NewInode::File, &how).unwrap();
            }
        }
        drop((file, dir));
        close_and_judge(fs, &device, flags);
    }
}

#[test]
fn what_was_left_half_deleted_is_no_longer_counted() {
    for flags in [
        "-t ext4 -O quota,project",
        "-t ext4 -b 1024 -O quota,orphan_file",
    ] {
        let device = made(flags, 32_768);
        let fs = mount(device.clone());
        let dir = fs.root().unwrap();
        for i in 0..10u32 {
            let name = format!("f{i}");
            let how = creation(1000 + i, 5);
            let file = dir.create(name.as_bytes(), NewInode::File, &how).unwrap();
            file.write_at(0, &vec![3; 100_000]).unwrap();
            file.fsync().unwrap();
            dir.unlink(name.as_bytes()).unwrap();
            // Still in use when the power goes.
            std::mem::forget(file);
        }
        fs.sync().unwrap();
        let before = reported(&fs, KINDS[0].0);
        assert_eq!(before.len(), 11, "{flags}: {before:?}");
        let cut = Arc::new(MemoryDevice::from_bytes(device.to_bytes()));
        let fs = mount(cut.clone());
        let left = reported(&fs, KINDS[0].0);
        assert_eq!(left.len(), 1, "{flags}: {left:?}");
        close_and_judge(fs, &cut, flags);
    }
}

#[test]
fn many_threads_are_counted() {
    let device = made("-t ext4 -O quota,project", 65_536);
    let fs = mount(device.clone());
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let fs = fs.clone();
            scope.spawn(move || {
                let name = format!("dir {thread}");
                let dir = fs.create_dir(name.as_bytes(), &creation(1000, 7)).unwrap();
                for i in 0..400u32 {
                    let name = format!("f{}", i % 50);
                    let how = creation(1000 + i % 3, 7 + thread % 2);
                    let Ok(file) = dir.create(name.as_bytes(), NewInode::File, &how) else {
                        dir.unlink(name.as_bytes()).unwrap();
                        continue;
                    };
                    file.write_at(0, &vec![1; 10_000]).unwrap();
                    let set = SetAttributes {
                        uid: Some(1000 + i % 2),
                        ..SetAttributes::default()
                    };
                    file.set_attributes(&set).unwrap();
                    if i % 70 == 0 {
                        fs.sync().unwrap();
                    }
                }
            });
        }
    });
    close_and_judge(fs, &device, "threads");
}

/// That e2fsck would report.
#[test]
fn wrong_quota_counts_are_reported_by_e2fsck() {
    let device = made("-t ext4 -O quota,project", 16_384);
    let fs = mount(device.clone());
    let file = fs.create(b"a", NewInode::File, &creation(5, 5)).unwrap();
    drop(file);
    fs.close().unwrap();
    let image = uext4_testkit::stored(&device);
    debugfs_write(image.path(), ["sif a uid 6"]);
    let text = said(&e2fsck(image.path(), "-fn"));
    assert!(text.contains("Update quota info"), "{text}");
}
