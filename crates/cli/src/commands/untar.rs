//! `untar`: extracts an archive into the image.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use clap::Args;
use uext4::FileType;
use uext4_image::{Attributes, Existing, PutOptions, Source, SourceOptions};

use super::build::{SPLIT_LINKS, warn};
use super::bytes;
use super::change::{Operands, Operation, Target, about, by_root};
use super::put::{exit, failure, has_too_many_names, print_json, shown};
use crate::failure::{Exit, Failure};
use crate::memory;
use crate::messages;
use crate::paths;
use crate::phase_bar::PhaseBar;

/// Extract a tar archive into the image
///
/// The archive is read from standard input, or from FILE: tar, plain or compressed with gzip,
/// zstd, xz or bzip2. It is extracted as tar does it as root with --numeric-owner and
/// --same-permissions, with extended attributes and ACLs. Without PATH it goes into the root
/// directory. Existing directories stay as they are and get more names; existing files are
/// replaced.
///
/// Where the image is mounted by uext4, or a directory of such a mount is given in its place, the
/// mount's daemon does it: faster than tar could through the mount, and programs that use it see
/// the files at once. Everything is durable when the command returns.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  uext4 untar disk.img < rootfs.tar
  uext4 untar disk.img /srv -f site.tar.zst
  uext4 untar ~/mnt < linux.tar
  uext4 tar old.img /etc | uext4 untar new.img /etc")]
pub struct UntarArgs {
    /// Directory in the image; it is made if it is not there
    #[arg(value_name = "PATH", default_value = "/")]
    path: PathBuf,
    /// Read the archive from this file instead of standard input
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Report files that exist instead of replacing them
    #[arg(short, long)]
    keep_old_files: bool,
    /// Take owners by their names on this machine, where it knows them
    #[arg(long)]
    owner_names: bool,
    /// Do not set extended attributes and ACLs
    #[arg(long)]
    no_xattrs: bool,
    /// Make several files, with a copy of the contents each, of one with more than 65,000 names
    #[arg(long)]
    split_links: bool,
    /// Print one JSON object about what was extracted
    #[arg(long)]
    json: bool,
}

impl Operands for UntarArgs {
    fn operands(&mut self) -> Vec<&mut PathBuf> {
        vec![&mut self.path]
    }
}

impl Operation for UntarArgs {
    fn apply(&self, target: &mut Target<'_>) -> Result<(), Failure> {
        if self.file.is_none() && target.is_script_on_stdin {
            let what = "untar would read the script itself";
            return Err(Failure::new(Exit::Usage, what).hint("give the archive with -f FILE"));
        }
        let path = &*paths::meant_new(target.fs, bytes(self.path.as_os_str()));
        let into = target
            .fs
            .create_dir_all(path, &by_root(0o755))
            .map_err(about(path))?;
        if into.view().map_err(about(path))?.file_type() != FileType::Directory {
            return Err(about(path)(uext4::Error::NotDirectory));
        }
        let options = PutOptions {
            source: SourceOptions {
                owner_names: self.owner_names,
                limits: memory::of_put_source(),
                split_links: self.split_links,
                ..SourceOptions::default()
            },
            existing: match self.keep_old_files {
                true => Existing::Refuse,
                false => Existing::Remove,
            },
            whole: false,
            attributes: Attributes::OfSource,
            no_xattrs: self.no_xattrs,
            leave_out: None,
        };
        let complaints = &mut *target.complaints;
        let mut has_many = false;
        let bar = PhaseBar::new(true);
        let archive = self.archive();
        let report = uext4_image::untar(
            target.fs,
            &archive,
            &tempfile::env::temp_dir(),
            &into,
            &options,
            &bar,
            &mut |error| {
                has_many |= has_too_many_names(error);
                complaints.report(exit(error), shown(error));
            },
        );
        bar.clear();
        if has_many {
            messages::warning(SPLIT_LINKS);
        }
        let report = report.map_err(failure)?;
        warn(&report.warnings);
        match self.json {
            true => print_json(target, path, report.entries),
            false => Ok(()),
        }
    }
}

impl UntarArgs {
    /// Standard input that is a file is read where its contents lie, as any other file.
    fn archive(&self) -> Source {
        let stdin = std::io::stdin();
        let is_file = rustix::fs::fstat(stdin.as_fd()).is_ok_and(|stat| {
            rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::RegularFile
        });
        match &self.file {
            Some(file) => Source::from_argument(file),
            None if is_file => Source::TarFile(Path::new("/proc/self/fd/0").to_path_buf()),
            None => Source::Stdin,
        }
    }
}
