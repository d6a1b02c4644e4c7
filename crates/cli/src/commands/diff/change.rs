//! What became of an entry, and what differs.

use std::fmt;

use clap::ValueEnum;
use uext4::Inode;

/// What became of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing that is compared differs.
    Same,
    /// Only the new tree has it.
    Added,
    /// Only the old tree has it.
    Removed,
    /// It has the same type in both.
    Changed,
    /// It has different types.
    Type,
}

/// An entry, and what became of it.
pub struct Change<'a> {
    pub kind: Kind,
    /// Below the tops.
    pub path: &'a [u8],
    /// `None` also where it cannot be read.
    pub old: Option<&'a Inode>,
    pub new: Option<&'a Inode>,
    pub differences: &'a [Difference],
    /// Neither is a directory that cannot be read wholly.
    pub is_whole: bool,
}

/// What may differ between two inodes of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum What {
    Content,
    #[value(skip)]
    Size,
    Target,
    Device,
    Mode,
    Owner,
    #[value(skip)]
    Mtime,
    Links,
    Xattrs,
    Flags,
    Project,
}

impl What {
    /// Its name in lines and objects.
    pub fn name(self) -> &'static str {
        match self {
            Self::Content => "content",
            Self::Size => "size",
            Self::Target => "target",
            Self::Device => "device",
            Self::Mode => "mode",
            Self::Owner => "owner",
            Self::Mtime => "mtime",
            Self::Links => "links",
            Self::Xattrs => "xattrs",
            Self::Flags => "flags",
            Self::Project => "project",
        }
    }
}

/// One thing that differs.
#[derive(Clone, Debug)]
pub struct Difference {
    pub what: What,
    /// How, for a line of text; may be empty.
    pub how: String,
    /// The extended attributes that differ.
    pub names: Vec<Vec<u8>>,
}

impl Difference {
    /// Of anything but extended attributes.
    pub fn new(what: What, how: String) -> Self {
        let names = Vec::new();
        Self { what, how, names }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what.name())?;
        match self.how.is_empty() {
            true => Ok(()),
            false => write!(f, " {}", self.how),
        }
    }
}
