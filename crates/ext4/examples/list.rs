//! Lists all files of an image, as `find IMAGE -ls` would.
//!
//! `cargo run -p uext4 --example list -- disk.img`

use std::io::{self, Write};
use std::sync::Arc;

use uext4::device::{Access, BlockDevice, FileDevice};
use uext4::{FileType, Image, OpenOptions, Result};

/// Writes a line for each file: its inode, permissions, size and path.
pub fn list(device: Arc<dyn BlockDevice>, out: &mut dyn Write) -> Result<u64> {
    let image = Image::open(device, &OpenOptions::default())?;
    let mut count = 0;
    for found in image.walk("/")? {
        let found = match found {
            Ok(found) => found,
            // One damaged directory does not keep the others from being listed.
            Err(error) => {
                eprintln!("{error}");
                continue;
            }
        };
        let inode = &found.inode;
        let kind = match inode.file_type {
            FileType::Directory => 'd',
            FileType::Symlink => 'l',
            _ => '-',
        };
        let path = String::from_utf8_lossy(&found.path);
        let line = writeln!(
            out,
            "{:8} {kind}{:04o} {:10} {path}",
            inode.ino,
            inode.mode & 0o7777,
            inode.size
        );
        line.map_err(|source| uext4::Error::Content { offset: 0, source })?;
        count += 1;
    }
    Ok(count)
}

/// Lists the image that the first argument names.
pub fn main() -> Result<()> {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("usage: list IMAGE");
        return Ok(());
    };
    let device = FileDevice::open(path, Access::ReadOnly)?;
    list(Arc::new(device), &mut io::stdout())?;
    Ok(())
}
