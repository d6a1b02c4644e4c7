//! Changes files in an image, durably, and closes it.
//!
//! `cargo run -p uext4 --example edit -- disk.img`

use std::io::{Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use uext4::device::{Access, BlockDevice, FileDevice, SystemClock};
use uext4::{Creation, FollowLast, OpenOptions, RenameMode, Volume};

/// Replaces a configuration file in one step, and appends to a log.
pub fn edit(device: Arc<dyn BlockDevice>) -> std::io::Result<()> {
    let volume = Volume::open(device, Arc::new(SystemClock), &OpenOptions::default())?;
    volume.create_dir_all("/etc/example", &Creation::directory())?;

    // A new file takes the place of the old one: readers see one or the other, whole.
    let mut new = volume.create_file("/etc/example/conf.new")?;
    writeln!(new, "answer = 42")?;
    new.fsync()?;
    drop(new);
    let (old, new) = ("/etc/example/conf.new", "/etc/example/conf");
    volume.rename(old, new, RenameMode::Replace)?;

    // The end of a file that may exist: by position, as with std::fs.
    volume.write("/etc/example/log", "begun\n")?;
    let mut log = volume.open_file("/etc/example/log")?;
    log.seek(SeekFrom::End(0))?;
    log.write_all(b"configured\n")?;
    log.seek(SeekFrom::Start(0))?;
    let mut text = String::new();
    log.read_to_string(&mut text)?;
    assert_eq!(text, "begun\nconfigured\n");

    // Attributes belong to the inode in use.
    let conf = volume.open_path("/etc/example/conf", FollowLast::Yes)?;
    conf.set_xattr(b"user.origin", Some(b"example"), uext4::xattr::SetMode::Any)?;
    drop((log, conf));

    // All that was done is on the device after this, and the journal is empty.
    volume.sync()?;
    volume.close()?;
    Ok(())
}

/// Edits the image that the first argument names.
pub fn main() -> std::io::Result<()> {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("usage: edit IMAGE");
        return Ok(());
    };
    let device = FileDevice::open(path, Access::ReadWrite).map_err(uext4::Error::from)?;
    edit(Arc::new(device))
}
