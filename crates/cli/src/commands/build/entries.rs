//! Single entries of an image, as options: `--file PATH=SOURCE,mode=755,owner=0:0`.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use clap::Args;
use uext4_image::{DeviceNumber, SingleEntry, SingleKind, Source};

use crate::owner;

/// Entries beyond those of the sources.
#[derive(Args, Debug, Default)]
#[command(
    next_help_heading = "Single entries, above all sources: removed first, then made in \
                               this order"
)]
pub struct EntryArgs {
    /// Leave out what the sources have at PATH, and all below it
    #[arg(long, value_name = "PATH")]
    remove: Vec<OsString>,
    /// Make a directory; its mode is 755 and its owner root unless stated
    #[arg(long, value_name = "PATH[,mode=MODE][,owner=UID:GID]")]
    mkdir: Vec<OsString>,
    /// Make a file with contents, mode and time of SOURCE
    #[arg(long, value_name = "PATH=SOURCE[,mode=MODE][,owner=UID:GID]")]
    file: Vec<OsString>,
    /// Make a symbolic link
    #[arg(long, value_name = "PATH=TARGET[,owner=UID:GID]")]
    symlink: Vec<OsString>,
    /// Make a device node (c or b, with its numbers) or a fifo (p)
    #[arg(long, value_name = "PATH=c:MAJOR:MINOR[,mode=MODE][,owner=UID:GID]")]
    mknod: Vec<OsString>,
}

impl EntryArgs {
    /// The entries, in the order in which they are put.
    ///
    /// # Errors
    /// A sentence about the option that cannot be understood.
    pub fn sources(&self) -> Result<Vec<Source>, String> {
        let mut sources = Vec::new();
        let lists: [(&str, &[OsString], Parse); 5] = [
            ("--remove", &self.remove, removed),
            ("--mkdir", &self.mkdir, directory),
            ("--file", &self.file, file),
            ("--symlink", &self.symlink, symlink),
            ("--mknod", &self.mknod, node),
        ];
        for (option, list, parse) in lists {
            for text in list {
                let entry = parse(text.as_bytes()).map_err(|why| {
                    let text = text.to_string_lossy();
                    format!("{option} {text}: {why}")
                })?;
                sources.push(Source::Single(entry));
            }
        }
        Ok(sources)
    }
}

type Parse = fn(&[u8]) -> Result<SingleEntry, String>;

fn removed(text: &[u8]) -> Result<SingleEntry, String> {
    Ok(SingleEntry {
        path: text.to_vec(),
        kind: SingleKind::Removed,
        mode: None,
        uid: 0,
        gid: 0,
    })
}

fn directory(text: &[u8]) -> Result<SingleEntry, String> {
    let fields = Fields::read(text)?;
    fields.entry(fields.text, SingleKind::Directory)
}

fn file(text: &[u8]) -> Result<SingleEntry, String> {
    let fields = Fields::read(text)?;
    let (path, source) = fields.pair()?;
    let source = PathBuf::from(OsString::from_vec(source.to_vec()));
    fields.entry(path, SingleKind::File(source))
}

fn symlink(text: &[u8]) -> Result<SingleEntry, String> {
    let fields = Fields::read(text)?;
    let (path, target) = fields.pair()?;
    if fields.mode.is_some() {
        return Err("a symbolic link has no mode of its own".to_owned());
    }
    fields.entry(path, SingleKind::Symlink(target.to_vec()))
}

fn node(text: &[u8]) -> Result<SingleEntry, String> {
    let fields = Fields::read(text)?;
    let (path, node) = fields.pair()?;
    let node = String::from_utf8_lossy(node);
    let parts: Vec<&str> = node.split(':').collect();
    let number = |major: &str, minor: &str| {
        let major = major.parse().ok().filter(|&n| n <= 0xFFF);
        let minor = minor.parse().ok().filter(|&n| n <= 0xF_FFFF);
        let both = major.zip(minor);
        let (major, minor) = both.ok_or_else(|| "a number of a device is wrong".to_owned())?;
        Ok::<_, String>(DeviceNumber { major, minor })
    };
    let kind = match parts.as_slice() {
        ["c", major, minor] => SingleKind::CharDevice(number(major, minor)?),
        ["b", major, minor] => SingleKind::BlockDevice(number(major, minor)?),
        ["p"] => SingleKind::Fifo,
        _ => return Err("must be c:MAJOR:MINOR, b:MAJOR:MINOR or p".to_owned()),
    };
    fields.entry(path, kind)
}

/// What is before the attributes, and these.
struct Fields<'a> {
    text: &'a [u8],
    mode: Option<u16>,
    owner: owner::Owner,
}

impl<'a> Fields<'a> {
    /// Takes attributes off the end; all else may have commas.
    fn read(text: &'a [u8]) -> Result<Self, String> {
        let mut fields = Self {
            text,
            mode: None,
            owner: owner::Owner {
                uid: None,
                gid: None,
            },
        };
        while let Some(comma) = fields.text.iter().rposition(|&byte| byte == b',') {
            let (before, last) = fields.text.split_at(comma);
            let last = String::from_utf8_lossy(last.get(1..).unwrap_or_default());
            if let Some(mode) = last.strip_prefix("mode=") {
                let mode = u16::from_str_radix(mode, 8).ok().filter(|&m| m <= 0o7777);
                let mode = mode.ok_or_else(|| "a mode is 0 to 7777, in octal".to_owned())?;
                fields.mode = Some(mode);
            } else if let Some(owner) = last.strip_prefix("owner=") {
                fields.owner = owner::parse(owner)?;
            } else {
                break;
            }
            fields.text = before;
        }
        Ok(fields)
    }

    /// What is before and after the first equals sign.
    fn pair(&self) -> Result<(&'a [u8], &'a [u8]), String> {
        let equals = self.text.iter().position(|&byte| byte == b'=');
        let equals = equals.ok_or_else(|| "has no \"=\" after the path".to_owned())?;
        let (path, rest) = self.text.split_at(equals);
        Ok((path, rest.get(1..).unwrap_or_default()))
    }

    fn entry(&self, path: &[u8], kind: SingleKind) -> Result<SingleEntry, String> {
        Ok(SingleEntry {
            path: path.to_vec(),
            kind,
            mode: self.mode,
            uid: self.owner.uid.unwrap_or(0),
            gid: self.owner.gid.unwrap_or(0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_stand_at_the_end_and_paths_may_have_commas() {
        let entry = file(b"etc/a,b=src=x,mode=4755,owner=5:6").unwrap();
        assert_eq!(entry.path, b"etc/a,b");
        assert_eq!(entry.kind, SingleKind::File("src=x".into()));
        assert_eq!((entry.mode, entry.uid, entry.gid), (Some(0o4755), 5, 6));
        let entry = symlink(b"l=../t,mode").unwrap();
        assert_eq!(entry.kind, SingleKind::Symlink(b"../t,mode".to_vec()));
        let number = DeviceNumber { major: 1, minor: 3 };
        let entry = node(b"dev/null=c:1:3,mode=666").unwrap();
        assert_eq!(entry.kind, SingleKind::CharDevice(number));
        assert_eq!(node(b"f=p").unwrap().kind, SingleKind::Fifo);
        for bad in ["x", "x=c:1", "x=c:1:-3", "x=c:4096:1", "x=q:1:1"] {
            assert!(node(bad.as_bytes()).is_err(), "{bad}");
        }
        for bad in ["x", "x=y,mode=9", "x=y,owner=root"] {
            assert!(file(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(symlink(b"x=y,mode=777").is_err());
    }
}
