//! `get`: copies files and directories out of the image, with all attributes that can be restored.

use std::io::{ErrorKind, Write};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::Args;
use uext4::{FollowLast, Image, Inode};
use uext4_image::{Existing, Get, GetError, GetReport as Report, Refused, Unreadable, Watcher};
use uext4_ondisk::inode::FileType;

use super::{Output, bytes, cat};
use crate::args::ImageArgs;
use crate::examination::counted;
use crate::failure::{self, Complaints, Exit, Failure};
use crate::json::Json;
use crate::messages;
use crate::missing::Missing;
use crate::open;
use crate::paths;
use crate::progress::Progress;
use crate::show::escaped;

/// Copy files and directories out of the image
///
/// Restores modes, times to the nanosecond, hard links, holes, symbolic links, fifos and sockets;
/// xattrs and ACLs if the destination supports them; owners and devices if run by root, or under
/// fakeroot or pseudo. Set-user-id and set-group-id are dropped if the owner or the group cannot be
/// restored. If the destination refuses xattrs, or owners of root, all else is copied, and the exit
/// code is 1.
///
/// If DEST is a directory, the copy is made inside it under its own name (the contents of "/"
/// directly in it); otherwise DEST is the name of the copy, and - is standard output, for a file.
/// Existing files are not replaced without --overwrite.
///
/// A file appears under its name when it is complete. After an interruption, the same command
/// copies the rest: it accepts existing files that have the type, size and modification time of
/// those in the image.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  uext4 get disk.img /etc/fstab .
  uext4 get disk.img /home ./home-of-the-image
  sudo uext4 get disk.img / /mnt/restored")]
pub struct GetArgs {
    #[command(flatten)]
    image: ImageArgs,
    /// File or directory in the image
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// Destination
    #[arg(value_name = "DEST")]
    dest: PathBuf,
    /// Replace files that exist
    #[arg(long)]
    overwrite: bool,
    /// Print one JSON object about what was copied
    #[arg(long)]
    json: bool,
}

/// Copies; what cannot be copied is reported and left out.
pub fn run(args: &GetArgs, out: &mut Output) -> Result<Exit, Failure> {
    let fs = open::open(&args.image)?;
    if args.dest.as_os_str() == "-" {
        return to_standard_output(args, &fs, out);
    }
    let path = &*paths::meant(&fs, bytes(args.path.as_os_str()));
    let top = paths::resolve(&fs, path, FollowLast::No)?;
    let what = Get {
        path,
        top: &top,
        dest: &args.dest,
        existing: match args.overwrite {
            true => Existing::Replace,
            false => Existing::Refuse,
        },
        unreadable: Unreadable::LeaveOut,
    };
    let (report, exit) = copy(&fs, &what, &mut Missing::default())?;
    if args.json {
        let mut json = Json::new();
        json.open_object();
        json.key("image")
            .text(bytes(args.image.place.image.as_os_str()));
        json.key("path").text(path);
        json.key("entries").number(report.entries);
        json.key("xattrs_refused").number(report.refused.xattrs);
        json.key("owners_refused").number(report.refused.owners);
        json.key("set_ids_dropped").number(report.refused.set_ids);
        json.close_object();
        json.end_line();
        out.write_all(json.as_bytes())?;
    }
    Ok(exit)
}

/// Prints the file, which a directory cannot be.
fn to_standard_output(args: &GetArgs, fs: &Image, out: &mut Output) -> Result<Exit, Failure> {
    let usage = |what: &str| Failure::new(Exit::Usage, what);
    if args.json {
        return Err(usage(
            "--json: standard output has the contents of the file",
        ));
    }
    let path = bytes(args.path.as_os_str());
    if paths::resolve(fs, path, FollowLast::Yes)?.file_type == FileType::Directory {
        let what = format!(
            "{}: a directory is not written to standard output",
            escaped(path)
        );
        return Err(usage(&what).hint("`uext4 tar IMAGE PATH` writes it as an archive"));
    }
    cat::print(fs, path, out)?;
    Ok(Exit::Success)
}

/// Copies a tree; what cannot be copied is reported and left out, or noted as missing.
///
/// # Errors
/// Exit 8 if nothing can be copied.
pub fn copy(fs: &Image, what: &Get<'_>, missing: &mut Missing) -> Result<(Report, Exit), Failure> {
    let mut shown = Shown {
        progress: Progress::new("copied", fs, what.top),
        complaints: Complaints::new(),
        missing,
        unreadable: what.unreadable,
    };
    let report = uext4_image::get(fs, what, &mut shown).map_err(|error| match error {
        GetError::Host { path, source } => {
            Failure::io(escaped(path.as_os_str().as_bytes()), &source)
        }
        error => Failure::new(Exit::CouldNot, error),
    })?;
    let exit = warn(&report.refused).max(shown.complaints.exit());
    Ok((report, exit))
}

/// What is shown while it copies.
struct Shown<'a> {
    progress: Progress,
    complaints: Complaints,
    missing: &'a mut Missing,
    unreadable: Unreadable,
}

impl Watcher for Shown<'_> {
    fn copied(&mut self, bytes: u64) {
        self.progress.add(bytes);
    }

    fn failed(&mut self, error: GetError) {
        let path = |path: PathBuf| escaped(path.as_os_str().as_bytes());
        match error {
            GetError::Problem { path: of, problem } => {
                let shown = format!("{}: {problem}", path(of));
                self.complaints.report(Exit::Damaged, shown);
            }
            GetError::Image { path: of, source } if self.unreadable == Unreadable::Hole => {
                let shown = format!("{}: {source}", path(of));
                self.complaints.report(Exit::Incomplete, shown);
            }
            GetError::Image { path: of, source } => self.complaints.engine(path(of), &source),
            GetError::Host { path: of, source } => {
                let (exit, hint) = match source.kind() {
                    ErrorKind::AlreadyExists => (Exit::Incomplete, " (see --overwrite)"),
                    ErrorKind::PermissionDenied => (Exit::Incomplete, ""),
                    _ => (Exit::CouldNot, ""),
                };
                let shown = format!("{}: {source}{hint}", path(of));
                self.complaints.report(exit, shown);
            }
            GetError::Attributes { path: of, source } => {
                let shown = format!("{}: {source}", path(of));
                self.complaints.report(Exit::Incomplete, shown);
            }
            error => self.complaints.report(Exit::CouldNot, error),
        }
    }

    fn missing(&mut self, file: &Inode, bytes: Range<u64>) {
        self.missing.add(file.ino, bytes);
    }
}

/// One line on standard error for each kind of thing that was not restored; and how the copy ends
/// for it. Set-id bits are dropped on purpose, and are as good as restored.
fn warn(refused: &Refused) -> Exit {
    if refused.xattrs > 0 {
        let count = counted(refused.xattrs, "extended attribute");
        let was = if refused.xattrs == 1 { "was" } else { "were" };
        messages::warning(format_args!("{count} {was} refused by the destination"));
    }
    if refused.owners > 0 {
        let count = counted(refused.owners, "owner");
        messages::warning(format_args!("{count} could not be set"));
    }
    if refused.set_ids > 0 {
        let (count, they) = match refused.set_ids {
            1 => ("1 file".to_owned(), "it has"),
            count => (format!("{count} files"), "they have"),
        };
        messages::warning(format_args!(
            "{count} lost set-user-id or set-group-id, as {they} another owner here"
        ));
    }
    let exit = match refused.xattrs + refused.owners {
        0 => Exit::Success,
        _ => Exit::Incomplete,
    };
    failure::note(exit);
    exit
}
