//! The kernel's table of mounts, as far as ours are in it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The type that the table shows.
pub const TYPE: &str = "fuse.uext4";

/// The number of a mounted file system's device, which no other has as long as it is mounted
/// anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    /// 0 for all that lie on no device of their own.
    pub major: u32,
    /// Which of them.
    pub minor: u32,
}

/// One of our mounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Its number.
    pub number: Number,
    /// The image.
    pub source: PathBuf,
    /// The directory of the file system that is shown: not its root where a part of it is bound
    /// elsewhere.
    pub root: PathBuf,
    /// The user who mounted it.
    pub owner: u32,
    /// Not one byte of the image is written.
    pub is_read_only: bool,
}

/// Our mount that is on top at `dir`, if one is.
///
/// # Errors
/// Those of reading the table.
pub fn at(dir: &Path) -> io::Result<Option<Shown>> {
    Ok(find(&fs::read("/proc/self/mountinfo")?, dir))
}

/// All mounts of uext4 that this process can see, with the directories, in the order of the table.
///
/// # Errors
/// Those of reading the table.
pub fn all() -> io::Result<Vec<(PathBuf, Shown)>> {
    let table = fs::read("/proc/self/mountinfo")?;
    let ours = lines(&table).filter_map(|line| {
        let place = OsString::from_vec(line.place).into();
        Some((place, line.shown?))
    });
    Ok(ours.collect())
}

/// Whether a file system of this number is mounted anywhere.
///
/// # Errors
/// Those of reading the table.
pub fn has(number: Number) -> io::Result<bool> {
    let table = fs::read("/proc/self/mountinfo")?;
    let mut lines = lines(&table);
    Ok(lines.any(|line| line.shown.is_some_and(|shown| shown.number == number)))
}

/// Directories of the file system of this number at which something is mounted, as paths from its
/// root: as this process sees them, or the one with the number `process`.
///
/// # Errors
/// Those of reading the table.
pub fn mounted_on(number: Number, process: Option<u32>) -> io::Result<Vec<Vec<u8>>> {
    let table = match process {
        Some(process) => fs::read(format!("/proc/{process}/mountinfo"))?,
        None => fs::read("/proc/self/mountinfo")?,
    };
    Ok(points(&table, number))
}

fn points(table: &[u8], number: Number) -> Vec<Vec<u8>> {
    let all: Vec<Line> = lines(table).collect();
    let ours: Vec<&Line> = all.iter().filter(|line| line.number == number).collect();
    if ours.is_empty() {
        return Vec::new();
    }
    let point = |line: &Line| {
        let below = ours.iter().find(|ours| ours.id == line.parent)?;
        let place = Path::new(OsStr::from_bytes(&line.place));
        let within = place.strip_prefix(OsStr::from_bytes(&below.place)).ok()?;
        let root = Path::new(OsStr::from_bytes(&below.root));
        let path = match within.as_os_str().is_empty() {
            true => root.to_owned(),
            false => root.join(within),
        };
        // The root itself can be neither moved nor removed.
        (path != Path::new("/")).then(|| path.into_os_string().into_vec())
    };
    all.iter().filter_map(point).collect()
}

/// A line of the table.
struct Line {
    /// The number of this mount, and of the one that it is mounted on.
    id: u64,
    parent: u64,
    number: Number,
    root: Vec<u8>,
    place: Vec<u8>,
    /// What it shows, if it is one of ours.
    shown: Option<Shown>,
}

fn lines(table: &[u8]) -> impl Iterator<Item = Line> {
    table.split(|byte| *byte == b'\n').filter_map(line)
}

/// The last one at a place is on top.
fn find(table: &[u8], dir: &Path) -> Option<Shown> {
    let place = dir.as_os_str().as_bytes();
    let here = lines(table).filter(|line| line.place == place);
    here.last()?.shown
}

/// `36 35 0:41 / /mnt rw,noatime shared:1 - fuse.uext4 /disk.img rw,user_id=0,…`, where there may
/// be any number of fields before the `-`.
fn line(line: &[u8]) -> Option<Line> {
    let mut fields = line.split(|byte| *byte == b' ');
    let mut id = || std::str::from_utf8(fields.next()?).ok()?.parse().ok();
    let (id, parent) = (id()?, id()?);
    let number = std::str::from_utf8(fields.next()?).ok()?;
    let (major, minor) = number.split_once(':')?;
    let number = Number {
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
    };
    let root = unescaped(fields.next()?);
    let place = unescaped(fields.next()?);
    let flags = fields.next()?;
    let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
    let is_ours = fields.next()? == TYPE.as_bytes();
    let source = OsString::from_vec(unescaped(fields.next()?));
    let options = std::str::from_utf8(fields.next()?).ok()?;
    let mut owner = options
        .split(',')
        .filter_map(|option| option.strip_prefix("user_id="));
    let shown = is_ours.then(|| Shown {
        number,
        source: source.into(),
        root: OsString::from_vec(root.clone()).into(),
        owner: owner.next().and_then(|id| id.parse().ok()).unwrap_or(0),
        is_read_only: flags.split(|byte| *byte == b',').any(|flag| flag == b"ro"),
    });
    Some(Line {
        id,
        parent,
        number,
        root,
        place,
        shown,
    })
}

/// A field of the table: spaces and the like are written as a backslash and three octal digits.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, after @ ..] = rest {
        let code = after.get(..3).filter(|_| *first == b'\\');
        let code = code.and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"25 1 254:0 / / rw shared:1 - ext4 /dev/root rw\n\
        36 25 0:41 / /a\\040b ro,nosuid,relatime shared:7 master:2 - fuse.uext4 /x\\134\xFF.img \
        rw,user_id=1000,group_id=100,default_permissions\n\
        37 36 0:42 / /twice rw,relatime - fuse.uext4 /y.img rw,user_id=0,group_id=0\n\
        38 37 0:43 / /twice rw,relatime - tmpfs none rw\n\
        nonsense\n";

    #[test]
    fn the_topmost_mount_is_found() {
        let shown = find(TABLE, Path::new("/a b")).unwrap();
        assert_eq!(
            shown.number,
            Number {
                major: 0,
                minor: 41
            }
        );
        // No path need be text.
        assert_eq!(shown.source.as_os_str().as_bytes(), b"/x\\\xFF.img");
        assert_eq!((shown.owner, shown.is_read_only), (1000, true));
        for none in ["/", "/twice", "/none"] {
            assert_eq!(find(TABLE, Path::new(none)), None, "{none}");
        }
        let numbers: Vec<u32> = lines(TABLE)
            .filter_map(|line| Some(line.shown?.number.minor))
            .collect();
        assert_eq!(numbers, [41, 42]);
        assert_eq!(at(Path::new("/proc")).unwrap(), None);
    }

    #[test]
    fn mount_points_are_found_by_their_mount() {
        let table = b"25 1 254:0 / / rw - ext4 /dev/root rw\n\
            36 25 0:41 / /m rw - fuse.uext4 /x.img rw,user_id=0\n\
            37 36 0:42 / /m/a/b\\040c rw - tmpfs none rw\n\
            38 25 0:43 / /m2 rw - tmpfs none rw\n\
            39 25 0:41 /a /bound rw - fuse.uext4 /x.img rw,user_id=0\n\
            40 39 0:44 / /bound/d rw - tmpfs none rw\n\
            41 39 0:45 / /bound rw - tmpfs none rw\n\
            42 36 0:46 / /m rw - tmpfs none rw\n";
        let number = |minor| Number { major: 0, minor };
        let found = points(table, number(41));
        assert_eq!(found, [&b"/a/b c"[..], b"/a/d", b"/a"]);
        assert!(points(table, number(42)).is_empty());
        let here = mounted_on(number(u32::MAX), None).unwrap();
        assert_eq!(
            here,
            mounted_on(number(u32::MAX), Some(std::process::id())).unwrap()
        );
    }

    #[test]
    fn fields_of_the_table() {
        assert_eq!(unescaped(br"/a\040b\134c"), b"/a b\\c");
        assert_eq!(unescaped(br"\0"), br"\0");
        assert_eq!(unescaped(br"\999"), br"\999");
    }
}
