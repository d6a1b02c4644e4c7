//! What `find` asks of each file, in the habit of find(1).

use std::cmp::Ordering;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::str::FromStr;

use clap::Args;
use globset::{GlobBuilder, GlobMatcher};
use uext4::{Error, Image, Inode};
use uext4_blockdev::{Clock, SystemClock};
use uext4_ondisk::Ino;
use uext4_ondisk::inode::{FileType, Timestamp};

use crate::args::parse_size;
use crate::record::stat_size;
use crate::{mode, when};

/// Seconds of a day, in which `--mtime` counts.
const DAY: i64 = 86_400;

/// The conditions; a file must meet all of them.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Conditions")]
pub struct FilterArgs {
    /// The last part of the path matches GLOB (*, ?, [...], {a,b})
    #[arg(long, value_name = "GLOB")]
    name: Option<String>,
    /// The same, without regard to case
    #[arg(long, value_name = "GLOB")]
    iname: Option<String>,
    /// The whole path matches GLOB, whose * and ? also match a slash
    #[arg(long, value_name = "GLOB")]
    path: Option<String>,
    /// One of these types: f, d, l (symbolic link), b, c, p, s
    #[arg(long = "type", value_name = "TYPE,…", value_delimiter = ',')]
    #[arg(value_parser = parse_type)]
    types: Vec<FileType>,
    /// More than (+), less than (-) or exactly SIZE bytes; units as in `uext4 help sizes`
    #[arg(long, value_name = "[+-]SIZE", allow_hyphen_values = true)]
    #[arg(value_parser = |text: &str| Bound::parse(text, parse_size))]
    size: Option<Bound<u64>>,
    /// Data changed more than (+), less than (-) or exactly N whole days ago
    #[arg(long, value_name = "[+-]N", allow_hyphen_values = true)]
    #[arg(value_parser = |text: &str| Bound::parse(text, number::<i64>))]
    mtime: Option<Bound<i64>>,
    /// Data changed after TIME (@SECONDS, YYYY-MM-DD [HH:MM[:SS]], UTC)
    #[arg(long, value_name = "TIME", value_parser = when::parse)]
    changed_after: Option<Timestamp>,
    /// Data changed before TIME
    #[arg(long, value_name = "TIME", value_parser = when::parse)]
    changed_before: Option<Timestamp>,
    /// The number of the owner
    #[arg(long, value_name = "UID")]
    user: Option<u32>,
    /// The number of the group
    #[arg(long, value_name = "GID")]
    group: Option<u32>,
    /// Permissions are exactly MODE; -MODE: have all its bits; /MODE: have one of them
    #[arg(long, value_name = "[-/]MODE", allow_hyphen_values = true)]
    #[arg(value_parser = Permissions::parse)]
    perm: Option<Permissions>,
    /// Has the extended attribute NAME (user.comment, security.capability, …)
    #[arg(long, value_name = "NAME")]
    xattr: Option<String>,
    /// The inode number
    #[arg(long, value_name = "N")]
    inum: Option<u32>,
    /// More than (+), less than (-) or exactly N hard links
    #[arg(long, value_name = "[+-]N", allow_hyphen_values = true)]
    #[arg(value_parser = |text: &str| Bound::parse(text, number::<u16>))]
    links: Option<Bound<u16>>,
    /// A file of no bytes, or a directory without names
    #[arg(long)]
    empty: bool,
}

/// A number, and on which side of it the values lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bound<T> {
    side: Ordering,
    of: T,
}

impl<T: Ord> Bound<T> {
    /// Reads `+N`, `-N`, `N` or `=N`.
    fn parse(text: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<Self, String> {
        let (side, number) = match text.split_at_checked(1) {
            Some(("+", rest)) => (Ordering::Greater, rest),
            Some(("-", rest)) => (Ordering::Less, rest),
            Some(("=", rest)) => (Ordering::Equal, rest),
            _ => (Ordering::Equal, text),
        };
        let of = read(number)?;
        Ok(Self { side, of })
    }

    fn holds(&self, value: &T) -> bool {
        value.cmp(&self.of) == self.side
    }
}

/// Permission bits, and how many of them are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Permissions {
    Exactly(u16),
    All(u16),
    Any(u16),
}

impl Permissions {
    fn parse(text: &str) -> Result<Self, String> {
        let bits = |text: &str| Ok(mode::parse(text)?.apply(0, FileType::Regular));
        let first = text.split_at_checked(1);
        match first {
            Some(("-", rest)) => bits(rest).map(Self::All),
            Some(("/", rest)) => bits(rest).map(Self::Any),
            _ => bits(text).map(Self::Exactly),
        }
    }

    fn hold(self, mode: u16) -> bool {
        let mode = mode & 0o7777;
        match self {
            Self::Exactly(bits) => mode == bits,
            Self::All(bits) => mode & bits == bits,
            // As with find(1): no bits are met by all files.
            Self::Any(bits) => bits == 0 || mode & bits != 0,
        }
    }
}

fn number<T: FromStr>(text: &str) -> Result<T, String> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = is_plain.then(|| text.parse().ok()).flatten();
    number.ok_or_else(|| format!("{text:?} is no number, or too large"))
}

fn parse_type(letter: &str) -> Result<FileType, String> {
    Ok(match letter {
        "f" => FileType::Regular,
        "d" => FileType::Directory,
        "l" => FileType::Symlink,
        "b" => FileType::BlockDevice,
        "c" => FileType::CharDevice,
        "p" => FileType::Fifo,
        "s" => FileType::Socket,
        _ => return Err(format!("{letter:?} is not one of f, d, l, b, c, p, s")),
    })
}

/// The conditions, ready to be asked.
#[derive(Debug)]
pub struct Filter<'a> {
    args: &'a FilterArgs,
    names: Vec<GlobMatcher>,
    path: Option<GlobMatcher>,
    /// Seconds since 1970.
    now: i64,
}

impl<'a> Filter<'a> {
    /// Reads the globs and the clock.
    ///
    /// # Errors
    /// What is wrong with a glob.
    pub fn new(args: &'a FilterArgs) -> Result<Self, String> {
        let name = args.name.iter().map(|name| glob(name, false));
        let iname = args.iname.iter().map(|name| glob(name, true));
        Ok(Self {
            names: name.chain(iname).collect::<Result<_, _>>()?,
            path: args.path.as_deref().map(|p| glob(p, false)).transpose()?,
            now: SystemClock.now().0,
            args,
        })
    }

    /// Whether a file meets all conditions.
    ///
    /// # Errors
    /// Extended attributes or a directory cannot be read.
    pub fn holds(&self, fs: &Image, inode: &Inode, path: &[u8]) -> Result<bool, Error> {
        if !(self.holds_name(path) && self.holds_inode(inode)) {
            return Ok(false);
        }
        if self.args.empty && !is_empty(fs, inode)? {
            return Ok(false);
        }
        let Some(name) = &self.args.xattr else {
            return Ok(true);
        };
        let xattrs = fs.xattrs(inode)?;
        Ok(xattrs.iter().any(|xattr| xattr.name == name.as_bytes()))
    }

    fn holds_name(&self, path: &[u8]) -> bool {
        let whole = Path::new(OsStr::from_bytes(path));
        let name = path.strip_suffix(b"/").unwrap_or(path);
        let name = match name.rsplit(|&byte| byte == b'/').next() {
            // The root is called so by find(1), too.
            None | Some(b"") => b"/",
            Some(name) => name,
        };
        let name = Path::new(OsStr::from_bytes(name));
        self.names.iter().all(|glob| glob.is_match(name))
            && self.path.as_ref().is_none_or(|glob| glob.is_match(whole))
    }

    fn holds_inode(&self, inode: &Inode) -> bool {
        let args = self.args;
        let changed = (inode.mtime.sec, inode.mtime.nsec);
        let days = self.now.saturating_sub(inode.mtime.sec).div_euclid(DAY);
        (args.types.is_empty() || args.types.contains(&inode.file_type))
            && args.size.is_none_or(|size| size.holds(&stat_size(inode)))
            && args.mtime.is_none_or(|age| age.holds(&days))
            && args
                .changed_after
                .is_none_or(|after| changed > (after.sec, after.nsec))
            && args
                .changed_before
                .is_none_or(|before| changed < (before.sec, before.nsec))
            && args.user.is_none_or(|uid| inode.uid == uid)
            && args.group.is_none_or(|gid| inode.gid == gid)
            && args.perm.is_none_or(|perm| perm.hold(inode.mode))
            && args.inum.is_none_or(|ino| inode.ino == Ino(ino))
            && args.links.is_none_or(|links| links.holds(&inode.links))
    }
}

/// A glob in which `*` and `?` match every byte, as in find(1).
///
/// # Errors
/// What is wrong with it.
pub fn glob(text: &str, any_case: bool) -> Result<GlobMatcher, String> {
    let mut builder = GlobBuilder::new(text);
    builder.case_insensitive(any_case).literal_separator(false);
    let glob = builder.build().map_err(|error| error.to_string())?;
    Ok(glob.compile_matcher())
}

/// Whether a file has no bytes, or a directory no names.
fn is_empty(fs: &Image, inode: &Inode) -> Result<bool, Error> {
    match inode.file_type {
        FileType::Regular => Ok(inode.size == 0),
        FileType::Directory => {
            let mut is_empty = true;
            fs.list(inode, 0, &mut |listed| {
                is_empty = matches!(listed.name, b"." | b"..");
                is_empty
            })?;
            Ok(is_empty)
        }
        _ => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_lie_on_the_side_of_their_sign() {
        let holds = |text: &str, value: u64| {
            let bound = Bound::parse(text, parse_size).unwrap();
            bound.holds(&value)
        };
        assert!(holds("+1K", 1025) && !holds("+1K", 1024));
        assert!(holds("-1K", 1023) && !holds("-1K", 1024));
        assert!(holds("1K", 1024) && holds("=1K", 1024) && !holds("=1K", 1025));
        for bad in ["", "+", "--1", "x", "+-1"] {
            assert!(Bound::parse(bad, number::<i64>).is_err(), "{bad}");
        }
    }

    #[test]
    fn permissions_are_compared_as_find_does_it() {
        let hold = |text: &str, mode| Permissions::parse(text).unwrap().hold(mode);
        assert!(hold("644", 0o100_644) && !hold("644", 0o100_744));
        assert!(hold("-022", 0o666) && !hold("-022", 0o646));
        assert!(hold("/022", 0o646) && !hold("/022", 0o644) && hold("/000", 0));
        assert!(hold("-u+s", 0o4755) && !hold("-u+s", 0o755));
        assert!(Permissions::parse("9").is_err());
    }
}
