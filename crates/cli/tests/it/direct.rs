//! O_DIRECT: what buffered readers see of asynchronous writes, and how a full image answers.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;
use tempfile::TempDir;

use crate::host::{assert_clean, has_tool, mke2fs, run, scratch, text};
use crate::served::Served;
use crate::transport::{Transport, over_each};

over_each! {
    buffered_readers_see_asynchronous_writes,
    a_full_image_ends_direct_writes_with_enospc,
}

/// An image that is mounted over a transport.
struct Place {
    served: Served,
    scratch: TempDir,
}

impl Place {
    fn new(transport: Transport) -> Self {
        let scratch = scratch();
        let dir = scratch.path().join("mnt");
        fs::create_dir(&dir).unwrap();
        let image = scratch.path().join("image");
        mke2fs(&image, &["-t", "ext4"], 64);
        Self {
            served: Served::over(transport, &image, &dir, "rw"),
            scratch,
        }
    }

    fn file(&self) -> PathBuf {
        self.scratch.path().join("mnt/file")
    }

    fn judged(self) {
        assert!(self.served.end().success());
        let image = self.scratch.path().join("image");
        assert_clean(&image);
    }
}

/// Rewrites a file with asynchronous writes next to two processes that read it through the page
/// cache, and fails if a buffered read after a write shows older data.
const SCRIPT: &str = include_str!("direct/rewrite.py");

fn buffered_readers_see_asynchronous_writes(transport: Transport) {
    if !transport.can_serve() || !has_tool("python3") {
        return;
    }
    let place = Place::new(transport);
    let script = place.scratch.path().join("rewrite.py");
    fs::write(&script, SCRIPT).unwrap();
    let printed = run("python3", &[text(&script), text(&place.file()), "300"]);
    let printed = String::from_utf8_lossy(&printed);
    assert!(
        printed == "stale: 0 of 300\n" || printed.starts_with("skipped"),
        "{printed}"
    );
    println!("{printed}");
    place.judged();
}

fn opened(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.write(true).create(true);
    let direct = options.custom_flags(OFlags::DIRECT.bits().cast_signed());
    direct.open(path).unwrap()
}

fn a_full_image_ends_direct_writes_with_enospc(transport: Transport) {
    if !transport.can_serve() {
        return;
    }
    let place = Place::new(transport);
    for size in [1 << 20, 300 << 10, 4096] {
        let room = vec![7; size + 4096];
        let start = room.as_ptr().align_offset(4096);
        let data = &room[start..][..size];
        let file = opened(&place.file());
        let mut written = 0;
        let error = loop {
            match file.write_at(data, written) {
                Ok(0) => panic!("nothing was written"),
                Ok(len) => written += len as u64,
                Err(error) => break error,
            }
        };
        let error = Errno::from_io_error(&error);
        assert_eq!(error, Some(Errno::NOSPC), "{size} bytes at {written}");
        assert!(written > 32 << 20 && file.metadata().unwrap().len() == written);
        drop(file);
        fs::remove_file(place.file()).unwrap();
    }
    place.judged();
}
