//! `put`: copies files and directories of this machine into the image.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use clap::Args;
use uext4::{FileType, FollowLast};
use uext4_image::{Attributes, Error as PutError, Existing, PutOptions, SourceOptions};

use super::build::{MORE_MEMORY, SPLIT_LINKS, is_of_archive, warn};
use super::bytes;
use super::change::{Operands, Operation, Target, about, about_new, by_root, last_name};
use crate::failure::{Exit, Failure, exit_of};
use crate::json::Json;
use crate::memory;
use crate::messages;
use crate::mode::{self, ModeChange};
use crate::owner::{self, Owner};
use crate::paths;
use crate::phase_bar::PhaseBar;
use crate::show::escaped;
use uext4_image::walk::joined;
use uext4_remote::Node;

/// Copy files and directories into the image
///
/// Copies modes, owners, times to the nanosecond, xattrs, ACLs, hard links, holes, symbolic
/// links, devices, fifos and sockets. If PATH is a directory, the copy is made inside it under
/// its own name (the contents of "DIR/." directly in it); otherwise PATH is the name of the copy.
/// Existing directories are merged; existing files are not replaced without --overwrite. SRC "-"
/// is standard input: the file appears when all of it is written.
///
/// With --atomic, PATH gets one file in one step: a reader, also one after a crash or a power cut,
/// finds the old file or all of the new one. The new file is an inode without a name until its
/// data is durable, so that an interruption leaves nothing of it. As with mv(1), other hard links
/// of the old file keep it, and a symbolic link is replaced itself, not what it points to.
///
/// Whatever interrupts the command, the image stays consistent: the next program that opens it
/// replays the journal. Files of the last seconds may be missing or short. An image without a
/// journal (ext2, or made with -O ^has_journal) has no such safety: after an interruption it needs
/// e2fsck.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  uext4 put disk.img ./app /opt
  uext4 put --owner 0:0 disk.img ./rootfs/. /
  date | uext4 put --overwrite disk.img - /etc/built-at
  uext4 put --atomic --like disk.img ./shadow /etc/shadow")]
pub struct PutArgs {
    /// File or directory, or - for standard input
    #[arg(value_name = "SRC")]
    source: PathBuf,
    /// Destination in the image
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// Replace existing files, each atomically
    #[arg(long)]
    overwrite: bool,
    /// Put one file, or replace it, in one step
    #[arg(long)]
    atomic: bool,
    /// With --atomic, keep owner, mode, xattrs, ACL, project and flags of the file that is replaced
    #[arg(long, requires = "atomic", conflicts_with_all = ["owner", "no_xattrs", "mode"])]
    like: bool,
    /// Owner and group of every copied file, instead of those of SRC
    #[arg(long, value_name = "UID[:GID]", value_parser = owner::parse)]
    owner: Option<Owner>,
    /// Do not copy extended attributes and ACLs
    #[arg(long)]
    no_xattrs: bool,
    /// Make several files, with a copy of the contents each, of one with more than 65,000 names
    #[arg(long)]
    split_links: bool,
    /// Permissions of a file from standard input, instead of 644; not for other sources
    #[arg(short, long, value_name = "MODE", value_parser = mode::parse)]
    mode: Option<ModeChange>,
    /// Print one JSON object about what was copied
    #[arg(long)]
    json: bool,
}

impl Operands for PutArgs {
    fn operands(&mut self) -> Vec<&mut PathBuf> {
        vec![&mut self.source, &mut self.path]
    }
}

impl Operation for PutArgs {
    fn apply(&self, target: &mut Target<'_>) -> Result<(), Failure> {
        let path = &*paths::meant_new(target.fs, bytes(self.path.as_os_str()));
        let source = bytes(self.source.as_os_str());
        if source == b"-" {
            return self.stream(target, path);
        }
        if self.mode.is_some() {
            let what = "--mode is for standard input; what is copied has the permissions of SRC";
            return Err(Failure::new(Exit::Usage, what).hint("`uext4 chmod` changes them"));
        }
        // Named as it was given, before its directory is listed.
        let metadata = fs::symlink_metadata(&self.source);
        let metadata = metadata.map_err(|error| Failure::io(escaped(source), &error))?;
        if self.atomic && metadata.is_dir() {
            let what = "--atomic is for one file, and SRC is a directory";
            let hint = "--overwrite replaces all files of a directory, each atomically";
            return Err(Failure::new(Exit::Usage, what).hint(hint));
        }
        let (into, name) = destination(target, source, path)?;
        self.check_like(&into, name.unwrap_or_default(), path)?;
        let image = fs::metadata(target.image).ok();
        let options = PutOptions {
            source: SourceOptions {
                uid: self.owner.and_then(|owner| owner.uid),
                gid: self.owner.and_then(|owner| owner.gid),
                limits: memory::of_put_source(),
                split_links: self.split_links,
                ..SourceOptions::default()
            },
            existing: self.existing(),
            whole: self.atomic,
            attributes: self.attributes(),
            no_xattrs: self.no_xattrs,
            leave_out: image.map(|image| (image.dev(), image.ino())),
        };
        let complaints = &mut *target.complaints;
        let (mut has_existing, mut has_many) = (false, false);
        let bar = PhaseBar::new(true);
        let report = uext4_image::put(
            target.fs,
            &self.source,
            &into,
            name,
            &options,
            &bar,
            &mut |error| {
                has_existing |= is_exists(error);
                has_many |= has_too_many_names(error);
                complaints.report(exit(error), shown(error));
            },
        );
        bar.clear();
        let report = report.map_err(failure)?;
        if has_many {
            messages::warning(SPLIT_LINKS);
        }
        if has_existing && !self.overwrite {
            messages::warning("--overwrite replaces files that exist");
        }
        warn(&report.warnings);
        self.report(target, path, report.entries)
    }
}

impl PutArgs {
    fn existing(&self) -> Existing {
        match self.overwrite || self.atomic {
            true => Existing::Replace,
            false => Existing::Refuse,
        }
    }

    fn attributes(&self) -> Attributes {
        match self.like {
            true => Attributes::OfReplaced,
            false => Attributes::OfSource,
        }
    }

    /// Whether there is something that the new file can be like.
    fn check_like(&self, into: &Node, name: &[u8], path: &[u8]) -> Result<(), Failure> {
        if !self.like {
            return Ok(());
        }
        let old = into.lookup(name).and_then(|old| old.view());
        let old = old.map_err(about(path))?.file_type();
        let is_special = |source: fs::Metadata| !source.is_file();
        let source = match self.source.as_os_str() == "-" {
            true => None,
            false => fs::symlink_metadata(&self.source).ok(),
        };
        if old != FileType::Regular || source.is_some_and(is_special) {
            let what = format_args!("{}: --like is for regular files", escaped(path));
            let hint = "instead of a symbolic link, give the file that it points to";
            return Err(Failure::new(Exit::Incomplete, what).hint(hint));
        }
        Ok(())
    }

    fn stream(&self, target: &Target<'_>, path: &[u8]) -> Result<(), Failure> {
        if target.is_script_on_stdin {
            let what = "put - would read the script itself";
            return Err(Failure::new(Exit::Usage, what).hint("give the script with -f FILE"));
        }
        if target.is_dir(path) {
            let failure = about(path)(uext4::Error::IsDirectory);
            let named = joined(path, b"NAME");
            return Err(failure.hint(format!(
                "standard input has no name: give one, as in {}",
                escaped(&named)
            )));
        }
        let (into, name) = target.fs.open_parent(path).map_err(about_new(path))?;
        let mode = self
            .mode
            .as_ref()
            .map_or(0o644, |mode| mode.apply(0o644, FileType::Regular));
        let mut how = by_root(mode);
        how.uid = self.owner.and_then(|owner| owner.uid).unwrap_or(0);
        how.gid = self.owner.and_then(|owner| owner.gid).unwrap_or(0);
        self.check_like(&into, name, path)?;
        let mut input = std::io::stdin().lock();
        let attributes = self.attributes();
        let put =
            uext4_image::put_stream(&mut input, &into, name, &how, self.existing(), attributes);
        put.map_err(|error| match error {
            PutError::Entry { source, .. } if matches!(source, uext4::Error::Exists) => {
                about(path)(source).hint("--overwrite replaces it")
            }
            PutError::Entry { source, .. } => about(path)(source),
            error => failure(error),
        })?;
        self.report(target, path, 1)
    }

    fn report(&self, target: &Target<'_>, path: &[u8], entries: u64) -> Result<(), Failure> {
        match self.json {
            true => print_json(target, path, entries),
            false => Ok(()),
        }
    }
}

/// Prints how many names were made below a path.
pub fn print_json(target: &Target<'_>, path: &[u8], entries: u64) -> Result<(), Failure> {
    let mut json = Json::new();
    json.open_object();
    json.key("image").text(bytes(target.image.as_os_str()));
    json.key("path").text(path);
    json.key("entries").number(entries);
    json.close_object();
    json.end_line();
    Ok(std::io::stdout().lock().write_all(json.as_bytes())?)
}

/// The directory that the copy is made in, and its name there; without one, the contents of
/// `source` are copied.
fn destination<'a>(
    target: &Target<'_>,
    source: &'a [u8],
    path: &'a [u8],
) -> Result<(Node, Option<&'a [u8]>), Failure> {
    let is_dir = |node: &Node| {
        let view = node.view();
        view.is_ok_and(|view| view.file_type() == FileType::Directory)
    };
    let exists = target
        .fs
        .open_path(path, FollowLast::Yes)
        .ok()
        .filter(is_dir);
    let contents = source.ends_with(b"/.") || matches!(source, b"." | b"/");
    match exists {
        Some(dir) if contents => Ok((dir, None)),
        Some(dir) => Ok((dir, Some(last_name(source)))),
        None => {
            let (dir, name) = target.fs.open_parent(path).map_err(about_new(path))?;
            Ok((dir, Some(name)))
        }
    }
}

/// The failure that an error leads to.
pub fn failure(error: PutError) -> Failure {
    match error {
        PutError::Entry { path, source } => about(bytes(path.as_os_str()))(source),
        error @ PutError::DecompressorMemory { .. } => {
            Failure::new(exit(&error), shown(&error)).hint(MORE_MEMORY)
        }
        error => Failure::new(exit(&error), shown(&error)),
    }
}

fn is_exists(error: &PutError) -> bool {
    matches!(
        error,
        PutError::Entry {
            source: uext4::Error::Exists,
            ..
        }
    )
}

/// Whether a file has no room for a further name.
pub fn has_too_many_names(error: &PutError) -> bool {
    matches!(
        error,
        PutError::Entry {
            source: uext4::Error::TooManyLinks,
            ..
        }
    )
}

pub fn exit(error: &PutError) -> Exit {
    match error {
        PutError::Entry { source, .. } => exit_of(source).max(Exit::Incomplete),
        PutError::Source { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            Exit::Incomplete
        }
        PutError::Changed { .. } => Exit::Incomplete,
        error if is_of_archive(error) => Exit::Damaged,
        _ => Exit::CouldNot,
    }
}

pub fn shown(error: &PutError) -> String {
    escaped(error.to_string().as_bytes())
}
