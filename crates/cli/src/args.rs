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

Exit codes:
  0  done; for check: clean
  1  a path does not exist in the image, or part of the work could not be done
  2  the command line makes no sense
  4  the image is damaged, or the archive it should be made of
  8  could not: no such image, no permission, no space, I/O error, unsupported feature";

/// Ext2, ext3 and ext4 images: make, list, read, export, describe and check them, without root
///
/// Images are raw files, partitioned disks or block devices. They are opened for reading only
/// except by mkfs and build; a journal that needs recovery is replayed in memory, and the image
/// stays as it is.
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
    Ls(commands::ls::LsArgs),
    Tree(commands::tree::TreeArgs),
    Cat(commands::cat::CatArgs),
    Stat(commands::stat::StatArgs),
    Get(commands::get::GetArgs),
    Tar(commands::tar::TarArgs),
    Manifest(commands::manifest::ManifestArgs),
    Frag(commands::frag::FragArgs),
    Check(commands::check::CheckArgs),
}

/// The image, and where in it the file system lies.
#[derive(Args, Debug)]
pub struct ImageArgs {
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
    /// Read the backup superblock in this block (32768 on most file systems)
    #[arg(long, value_name = "BLOCK", help_heading = "Image options")]
    pub superblock: Option<u64>,
    /// Look at the file system as it lies there, without replaying its journal
    #[arg(long, help_heading = "Image options")]
    pub no_replay: bool,
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
