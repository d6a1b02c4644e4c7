//! Names in one directory: made, looked up, moved and taken, with the journal on, the image in memory.

use std::sync::Arc;
use std::time::Instant;

use uext4::{Creation, Filesystem, NewInode, OpenOptions, RenameMode};
use uext4_blockdev::{MemoryDevice, SystemClock};

const NAMES: usize = 100_000;

fn fresh() -> Filesystem {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.img");
    let made = std::process::Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-b", "4096", "-N", "250000"])
        .arg(&path)
        .arg("2G")
        .status()
        .unwrap();
    assert!(made.success());
    let device = MemoryDevice::from_bytes(std::fs::read(&path).unwrap());
    let options = OpenOptions {
        memory_max: 512 << 20,
        ..OpenOptions::default()
    };
    Filesystem::open_rw(Arc::new(device), Arc::new(SystemClock), &options).unwrap()
}

fn rate(what: &str, count: usize, f: impl FnOnce()) {
    let start = Instant::now();
    f();
    let seconds = start.elapsed().as_secs_f64();
    println!("{what:10} {:10.0} /s", count as f64 / seconds);
}

fn main() {
    let names: Vec<String> = (0..NAMES).map(|i| format!("file-{i:06}")).collect();
    let file = Creation {
        mode: 0o644,
        ..Creation::default()
    };
    for _ in 0..3 {
        let fs = fresh();
        let root = fs.root().unwrap();
        let dir = root.create(b"d", NewInode::Directory, &file).unwrap();
        rate("create", NAMES, || {
            for name in &names {
                dir.create(name.as_bytes(), NewInode::File, &file).unwrap();
            }
        });
        rate("stat", NAMES, || {
            for name in &names {
                std::hint::black_box(dir.lookup(name.as_bytes()).unwrap().inode());
            }
        });
        rate("rename", NAMES, || {
            for name in &names {
                let to = format!("moved-{}", &name[5..]);
                dir.rename(name.as_bytes(), &dir, to.as_bytes(), RenameMode::Replace)
                    .unwrap();
            }
        });
        rate("unlink", NAMES, || {
            for name in &names {
                let to = format!("moved-{}", &name[5..]);
                dir.unlink(to.as_bytes()).unwrap();
            }
        });
        drop((dir, root));
        rate("close", 1, || fs.close().unwrap());
    }
}
