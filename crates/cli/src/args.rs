//! Options that subcommands share: the image, and how it is read and written.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::{Arg, ArgAction, Args};
use uext4_blockdev::partition::Name;
use uext4_mkfs::Size;

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

// The options of these are hidden in the help of each command: `uext4 help image` explains them
// once. The manual pages and the completions have them everywhere.

/// The image, and where in it the file system starts.
#[derive(Args, Clone, Debug)]
pub struct PlaceArgs {
    /// Image file, disk image or block device
    #[arg(value_name = "IMAGE")]
    pub image: PathBuf,
    /// The file system starts this many bytes into the image (1048576, 0x100000, 1M, 2048s)
    #[arg(long, value_name = "BYTES", value_parser = parse_size, conflicts_with = "partition")]
    #[arg(
        help_heading = "Image options",
        hide_short_help = true,
        hide_long_help = true
    )]
    pub offset: Option<u64>,
    /// Use this partition, by its number, label or UUID; needed only if several hold an ext file
    /// system
    #[arg(
        long,
        value_name = "N|LABEL|UUID",
        help_heading = "Image options",
        hide_short_help = true,
        hide_long_help = true
    )]
    pub partition: Option<Name>,
    /// Change what a dm-verity hash tree or a footer of Android Verified Boot covers, or a
    /// partition marked as read-only: the tree, the footer and the mark are given up
    #[arg(
        long,
        help_heading = "Image options",
        hide_short_help = true,
        hide_long_help = true
    )]
    pub drop_verity: bool,
}

/// What is read, and how.
#[derive(Args, Clone, Debug)]
pub struct ImageArgs {
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Read the backup superblock in this block (32768 on most file systems)
    #[arg(
        long,
        value_name = "BLOCK",
        help_heading = "Image options",
        hide_short_help = true,
        hide_long_help = true
    )]
    pub superblock: Option<u64>,
    /// Read the file system as it is on disk, without replaying its journal
    #[arg(
        long,
        help_heading = "Image options",
        hide_short_help = true,
        hide_long_help = true
    )]
    pub no_replay: bool,
}

/// Several images that are read one after the other, each in the same way.
#[derive(Args, Debug)]
pub struct ImagesArgs {
    #[command(flatten)]
    first: ImageArgs,
    /// More images
    #[arg(value_name = "IMAGE")]
    more: Vec<PathBuf>,
}

impl ImagesArgs {
    /// Each image, as commands that read one take it.
    pub fn each(&self) -> impl Iterator<Item = ImageArgs> {
        let more = self.more.iter().map(|image| {
            let mut args = self.first.clone();
            args.place.image.clone_from(image);
            args
        });
        std::iter::once(self.first.clone()).chain(more)
    }

    /// What stands before the paths of an image: its name and a colon if there are several.
    pub fn prefix(&self, image: &ImageArgs) -> Vec<u8> {
        match self.more.is_empty() {
            true => Vec::new(),
            false => [image.place.image.as_os_str().as_bytes(), b":"].concat(),
        }
    }
}

/// What is written, and how.
#[derive(Args, Clone, Debug)]
pub struct WriteArgs {
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Options of the engine: stripe=N, discard, dirty_ratio=N, …; see `uext4 mount --help-options`
    #[arg(
        long,
        value_name = "NAME[=VALUE],…",
        help_heading = "Image options",
        hide_short_help = true,
        hide_long_help = true
    )]
    pub options: Vec<String>,
    /// Print trace events of the engine to standard error: by name (ext4_mballoc_alloc), or all of
    /// ext4 (the allocator), extent_status, mbcache, writeback or uext4 (errors)
    #[arg(
        long,
        value_name = "EVENT,…",
        value_delimiter = ',',
        help_heading = "Image options",
        hide_short_help = true,
        hide_long_help = true
    )]
    pub trace: Vec<String>,
    /// Wait until other programs have ended that use the image, at most SECONDS
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "4294967295",
        help_heading = "Image options",
        hide_short_help = true,
        hide_long_help = true
    )]
    pub wait: Option<u32>,
}

/// `--help` alone, for commands where `-h` means something else, as in coreutils.
pub fn long_help() -> Arg {
    let help = Arg::new("help").long("help");
    help.action(ArgAction::Help).help("Print help")
}

/// Bytes: a number with an optional unit, as `uext4 help sizes` explains them.
pub fn parse_size(text: &str) -> Result<u64, String> {
    parse_suffixed(text).map(Size::bytes_plain)
}

/// A number with such a unit or none, which then means what the option says.
pub fn parse_suffixed(text: &str) -> Result<Size, String> {
    let size = uext4_mkfs::parse_size("size", text);
    size.map_err(|error| match error {
        uext4_mkfs::Error::Option { why, .. } => why.to_owned(),
        error => error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_size("1024"), Ok(1024));
        assert_eq!(parse_size("2048s"), Ok(1 << 20));
        assert_eq!(parse_size("1M"), Ok(1 << 20));
        assert_eq!(parse_size("3GiB"), Ok(3 << 30));
        assert_eq!(parse_size("0xBDC0B"), Ok(0xB_DC0B));
        assert_eq!(parse_size("1.5MB"), Ok(1_500_000));
        assert!(parse_size("1x").is_err());
        assert!(parse_size("").is_err());
        assert!(parse_size("99999999T").is_err());
    }
}
