//! Cost of creating: many small files in directories of 16, names, inodes, data and all, from
//! memory to a file on tmpfs, or the one that `UEXT4_BENCH_IMAGE` names.

#![allow(clippy::single_range_in_vec_init)]

use std::process::Command;
use std::sync::Arc;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use uext4::bulk::{Attributes, Creator, CreatorOptions};
use uext4::{Ino, NewInode};
use uext4_blockdev::{Access, BlockDevice, FileDevice};

const FILES: u32 = 80_000;
/// As in a source tree: 16 KiB on average.
const FILE_LEN: u64 = 16 << 10;

fn empty_image(path: &std::path::Path) {
    let status = Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-N", "100000"])
        .arg(path)
        .arg("1600M")
        .status();
    assert!(status.expect("mke2fs").success());
}

fn fill(device: Arc<dyn BlockDevice>, data: &[u8]) {
    let mut creator = Creator::open(device, &CreatorOptions::default()).unwrap();
    let attributes = Attributes {
        mode: 0o755,
        ..Attributes::default()
    };
    let mut parent = Ino::ROOT;
    for i in 0..FILES {
        if i % 16 == 0 {
            let name = format!("directory {i}");
            let kind = NewInode::Directory;
            parent = creator
                .create(Ino::ROOT, name.as_bytes(), kind, &attributes)
                .unwrap();
        }
        let name = format!("some source file {i}.c");
        let kind = NewInode::File;
        let ino = creator
            .create(parent, name.as_bytes(), kind, &attributes)
            .unwrap();
        let len = u64::from(i) * 7919 % (2 * FILE_LEN);
        let mut source = data;
        creator
            .write_file(ino, len, &[0..len], &mut source)
            .unwrap();
    }
    creator.finish().unwrap();
}

fn benches(c: &mut Criterion) {
    let data: Vec<u8> = (0..2 * FILE_LEN).map(|i| i as u8).collect();
    let dir = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap();
    let path = std::env::var_os("UEXT4_BENCH_IMAGE")
        .map_or_else(|| dir.path().join("image"), std::path::PathBuf::from);
    let mut group = c.benchmark_group("creator");
    group.sample_size(10);
    group.throughput(Throughput::Elements(FILES.into()));
    group.bench_function("80,000 files of 16 KiB, to a file", |b| {
        b.iter_batched(
            || {
                empty_image(&path);
                FileDevice::open(&path, Access::ReadWrite).unwrap()
            },
            |device| fill(Arc::new(device), &data),
            BatchSize::PerIteration,
        );
    });
    let _ = std::fs::remove_file(&path);
    group.finish();
}

criterion_group!(all, benches);
criterion_main!(all);
