//! `cat`: the contents of files, byte for byte.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use uext4::{FollowLast, Image};
use uext4_ondisk::inode::FileType;

use super::{Output, bytes};
use crate::failure::{Complaints, Exit, Failure};
use crate::paths;
use crate::show::escaped;

/// Bytes read at once.
const PIECE: usize = 1 << 20;

/// Print the contents of files
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  uext4 cat disk.img /etc/os-release
  uext4 cat disk.img /var/log/syslog /var/log/syslog.1 | grep error
  uext4 cat disk.img '<12>'             the file with inode number 12")]
pub struct CatArgs {
    /// Files in the image; symbolic links are followed
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
}

/// Prints the files; a file that cannot be read does not stop the others.
pub fn run(args: &CatArgs, fs: &Image, out: &mut Output) -> Result<Exit, Failure> {
    let mut complaints = Complaints::new();
    for path in &args.paths {
        match print(fs, bytes(path.as_os_str()), out) {
            Ok(()) => {}
            Err(Failure::BrokenPipe) => return Err(Failure::BrokenPipe),
            Err(Failure::Message { exit, what, .. }) => complaints.report(exit, what),
        }
    }
    Ok(complaints.exit())
}

/// Prints a file.
///
/// # Errors
/// Exit 1 for what is no file, 4 for damage; those of standard output.
pub fn print(fs: &Image, path: &[u8], out: &mut Output) -> Result<(), Failure> {
    let inode = paths::resolve(fs, path, FollowLast::Yes)?;
    if inode.file_type == FileType::Directory {
        return Err(Failure::engine(escaped(path), &uext4::Error::IsDirectory));
    }
    // A byte more than a small file has, so that one read sees its end. The size may be any number.
    let wanted = inode.size.saturating_add(1).min(PIECE as u64);
    let mut piece = vec![0; wanted as usize];
    let (mut at, mut len) = (0, piece.len());
    let block_len = fs.geometry().block_size.len();
    loop {
        let got = match fs.read_at(&inode, at, piece.get_mut(..len).unwrap_or_default()) {
            // Every block before the missing one can be printed.
            Err(error) if error.is_beyond_end() && len > block_len => {
                len = block_len;
                continue;
            }
            read => read.map_err(|error| Failure::engine(escaped(path), &error))?,
        };
        if got == 0 {
            return Ok(());
        }
        out.write_all(&piece[..got])?;
        at += got as u64;
    }
}
