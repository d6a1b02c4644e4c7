//! `truncate`: changes the size of files.

use std::path::PathBuf;

use clap::Args;
use uext4::{Error, FileType, FollowLast, Invalid, SetAttributes};

use super::change::{Missing, Operation, Target};
use crate::args::parse_size;
use crate::failure::Failure;

/// Change the size of files
///
/// Data beyond a smaller size are lost; a larger size adds a hole. A file that does not exist is
/// created, with a hole of that size.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  uext4 truncate -s 0 disk.img /var/log/syslog
  uext4 truncate -s 4G disk.img /swapfile
  uext4 truncate -s +1M disk.img /data    also -1M, <1M (at most), >1M (at least)")]
pub struct TruncateArgs {
    /// Files to change
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// New size in bytes (K, M, G, T), or with + - < > a change, as in truncate(1)
    #[arg(short, long, value_name = "SIZE", value_parser = parse_change, allow_hyphen_values = true)]
    size: SizeChange,
    /// Do not create files
    #[arg(short = 'c', long)]
    no_create: bool,
}

/// A change of a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SizeChange {
    To(u64),
    Grow(u64),
    Shrink(u64),
    AtMost(u64),
    AtLeast(u64),
}

fn parse_change(text: &str) -> Result<SizeChange, String> {
    let kind: fn(u64) -> SizeChange = match text.as_bytes().first() {
        Some(b'+') => SizeChange::Grow,
        Some(b'-') => SizeChange::Shrink,
        Some(b'<') => SizeChange::AtMost,
        Some(b'>') => SizeChange::AtLeast,
        _ => return parse_size(text).map(SizeChange::To),
    };
    parse_size(&text[1..]).map(kind)
}

impl SizeChange {
    /// The new size of a file that has this one.
    fn apply(self, size: u64) -> u64 {
        match self {
            Self::To(to) => to,
            Self::Grow(by) => size.saturating_add(by),
            Self::Shrink(by) => size.saturating_sub(by),
            Self::AtMost(most) => size.min(most),
            Self::AtLeast(least) => size.max(least),
        }
    }
}

impl Operation for TruncateArgs {
    fn apply(&self, target: &mut Target<'_>) -> Result<(), Failure> {
        let missing = match self.no_create {
            true => Missing::Skip,
            false => Missing::Make,
        };
        target.each(&self.paths, |target, path| {
            target.file(path, FollowLast::Yes, missing, |file| {
                let inode = file.view()?;
                match inode.file_type() {
                    FileType::Regular => file.set_attributes(&SetAttributes {
                        size: Some(self.size.apply(inode.size)),
                        ..SetAttributes::default()
                    }),
                    FileType::Directory => Err(Error::IsDirectory),
                    _ => Err(Error::Invalid(Invalid::NotRegularFile)),
                }
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_absolute_or_relative() {
        let all = [
            ("7", 7),
            ("1K", 1024),
            ("+1K", 1124),
            ("-10", 90),
            ("-1M", 0),
            ("<50", 50),
            ("<500", 100),
            (">500", 500),
            (">50", 100),
        ];
        for (text, expected) in all {
            assert_eq!(parse_change(text).unwrap().apply(100), expected, "{text}");
        }
        for bad in ["", "+", "x", "--1"] {
            assert!(parse_change(bad).is_err(), "{bad}");
        }
    }
}
