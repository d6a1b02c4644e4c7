//! Fills a file of an image from a stream whose length is not known before.
//!
//! `producer | cargo run -p uext4 --example build -- disk.img /path/in/image`

use std::io::{self, Read};
use std::sync::Arc;

use uext4::device::{Access, BlockDevice, FileDevice, SystemClock};
use uext4::{Creation, File, NewInode, OpenOptions, Volume};

/// Copies `stream` to a new file of `path`, which appears only when it is complete, and returns its
/// length.
pub fn build(device: Arc<dyn BlockDevice>, path: &str, stream: &mut dyn Read) -> io::Result<u64> {
    let mut options = OpenOptions::default();
    // All caches together.
    options.memory = Some(64 << 20);
    let volume = Volume::open(device, Arc::new(SystemClock), &options)?;
    let (above, _) = path.rsplit_once('/').unwrap_or(("", path));
    volume.create_dir_all(above, &Creation::directory())?;
    let (dir, name) = volume.open_parent(path.as_bytes())?;

    // Without a name until it is whole: after a crash it is gone.
    let inode = dir.create_unnamed(NewInode::File, &Creation::file())?;
    let mut file = File::new(inode)?;
    let len = io::copy(stream, &mut file)?;
    file.fsync()?;
    file.link(&dir, name)?;

    drop((file, dir));
    let free = volume.statfs().available;
    eprintln!("{len} bytes written, {free} blocks are available");
    volume.close()?;
    Ok(len)
}

/// Copies standard input to the path that the second argument names.
pub fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let (Some(image), Some(path)) = (args.next(), args.next()) else {
        eprintln!("usage: build IMAGE PATH");
        return Ok(());
    };
    let device = FileDevice::open(image, Access::ReadWrite).map_err(uext4::Error::from)?;
    build(Arc::new(device), &path, &mut io::stdin().lock())?;
    Ok(())
}
