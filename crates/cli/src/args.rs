//! What the command line says: the subcommands, and the options all readers of images share.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::commands;

const EXAMPLES: &str = "\
Examples:
  uext4 ls -l disk.img /etc             list a directory
  uext4 tree disk.img | less            everything, as a tree
  uext4 cat disk.img /etc/os-release    a file to standard output
  uext4 get disk.img /home ./home       copy a directory out
  uext4 tar disk.img > disk.tar         all of it, with xattrs, hard links and holes
  uext4 build ./rootfs -o disk.img      an image from a directory or a tar
  uext4 mkfs disk.img 1G                an empty file system, as mke2fs would make it
  uext4 check disk.img                  is it sound?
  uext4 put disk.img ./site /srv        copy files and directories in
  uext4 rm -r disk.img /var/cache       mkdir, mv, ln, chmod, chown, touch, truncate: as always
  uext4 script disk.img < commands      many changes at once
  uext4 mount disk.img ~/mnt            as a directory, to every program; uext4 umount ~/mnt

Exit codes:
  0  done; for check: clean
  1  a path does not exist in the image, or part of the work could not be done
  2  the command line makes no sense
  4  the image is damaged, or the archive it should be made of
  8  could not: no such image, no ext file system in it, no permission, no space, I/O error,
     unsupported feature
mount and umount have those of mount(8): `uext4 mount --help`";

/// Ext2, ext3 and ext4 images: make, read, change, export, describe and check them, without root
///
/// Images are raw files, partitioned disks or block devices. Commands that only read never write:
/// a journal that needs recovery is replayed in memory, and the image stays as it is. Commands that
/// change go through the journal: interrupted at any point, the image is consistent.
#[derive(Debug, Parser)]
#[command(name = "uext4", version, max_term_width = 100, after_help = EXAMPLES)]
#[command(disable_help_subcommand = true, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    Build(Box<commands::build::BuildArgs>),
    Mkfs(Box<commands::mkfs::MkfsArgs>),
    Info(commands::info::InfoArgs),
    Ls(View<commands::ls::LsArgs>),
    Tree(commands::tree::TreeArgs),
    Cat(View<commands::cat::CatArgs>),
    Stat(View<commands::stat::StatArgs>),
    Get(commands::get::GetArgs),
    Tar(commands::tar::TarArgs),
    Manifest(commands::manifest::ManifestArgs),
    Frag(commands::frag::FragArgs),
    Stats(commands::stats::StatsArgs),
    Check(commands::check::CheckArgs),
    Put(Change<commands::put::PutArgs>),
    Mkdir(Change<commands::mkdir::MkdirArgs>),
    Rm(Change<commands::rm::RmArgs>),
    Mv(Change<commands::mv::MvArgs>),
    Ln(Change<commands::ln::LnArgs>),
    Chmod(Change<commands::chmod::ChmodArgs>),
    Chown(Change<commands::chown::ChownArgs>),
    Setfattr(Change<commands::setfattr::SetfattrArgs>),
    Getfattr(View<commands::getfattr::GetfattrArgs>),
    Truncate(Change<commands::truncate::TruncateArgs>),
    Fallocate(Change<commands::fallocate::FallocateArgs>),
    Touch(Change<commands::touch::TouchArgs>),
    Sync(commands::sync::SyncArgs),
    DedupXattrs(commands::dedup_xattrs::DedupXattrsArgs),
    Trim(commands::trim::TrimArgs),
    Script(commands::script::ScriptArgs),
    Mount(commands::mount::MountArgs),
    Umount(commands::umount::UmountArgs),
    #[command(hide = true)]
    Man(commands::man::ManArgs),
}

// No doc comments on the two: they would be taken for the subcommands' own.

// A command that reads an image.
#[derive(Args, Debug)]
pub struct View<A: Args> {
    #[command(flatten)]
    pub image: ImageArgs,
    #[command(flatten)]
    pub what: A,
}

// A command that changes an image.
#[derive(Args, Debug)]
pub struct Change<A: Args> {
    #[command(flatten)]
    pub image: WriteArgs,
    #[command(flatten)]
    pub what: A,
}

/// The image, and where in it the file system lies.
#[derive(Args, Clone, Debug)]
pub struct PlaceArgs {
    /// Image file, disk image or block device
    #[arg(value_name = "IMAGE")]
    pub image: PathBuf,
    /// The file system starts this many bytes into the image (1048576, 1M, 2048s)
    #[arg(long, value_name = "BYTES", value_parser = parse_size, conflicts_with = "partition")]
    #[arg(help_heading = "Image options")]
    pub offset: Option<u64>,
    /// Number of the partition to use; found by itself where only one holds such a file system
    #[arg(long, value_name = "N", help_heading = "Image options")]
    pub partition: Option<u32>,
}

/// What is read, and how.
#[derive(Args, Debug)]
pub struct ImageArgs {
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Read the backup superblock in this block (32768 on most file systems)
    #[arg(long, value_name = "BLOCK", help_heading = "Image options")]
    pub superblock: Option<u64>,
    /// Look at the file system as it lies there, without replaying its journal
    #[arg(long, help_heading = "Image options")]
    pub no_replay: bool,
}

/// What is written, and how.
#[derive(Args, Clone, Debug)]
pub struct WriteArgs {
    #[command(flatten)]
    pub place: PlaceArgs,
    /// How it is written, as behind mount -o: stripe=N, discard, mb_normalize=, dirty_ratio=, …
    #[arg(long, value_name = "NAME[=VALUE],…", help_heading = "Image options")]
    pub options: Vec<String>,
}

/// `--help` alone, for commands where `-h` means something else, as in coreutils.
pub fn long_help() -> clap::Arg {
    let help = clap::Arg::new("help").long("help");
    help.action(clap::ArgAction::Help).help("Print help")
}

/// Bytes: a number with an optional unit (s for 512-byte sectors, K, M, G, T for powers of 1024).
pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit: u64 = match text[digits.len()..].trim_end_matches(['i', 'B']) {
        "" => 1,
        "s" => 512,
        "k" | "K" => 1 << 10,
        "m" | "M" => 1 << 20,
        "g" | "G" => 1 << 30,
        "t" | "T" => 1 << 40,
        unit => return Err(format!("unknown unit {unit:?}; use K, M, G, T or s")),
    };
    let number: u64 = digits.parse().map_err(|e| format!("{e}"))?;
    number
        .checked_mul(unit)
        .ok_or_else(|| "too large".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_size("1024"), Ok(1024));
        assert_eq!(parse_size("2048s"), Ok(1 << 20));
        assert_eq!(parse_size("1M"), Ok(1 << 20));
        assert_eq!(parse_size("3GiB"), Ok(3 << 30));
        assert!(parse_size("1x").is_err());
        assert!(parse_size("").is_err());
        assert!(parse_size("99999999T").is_err());
    }
}
