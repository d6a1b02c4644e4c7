//! One problem at one place, with the numbers that show it.

use std::fmt;

use uext4_ondisk::{GroupNr, Ino, Lblk, Pblk};

use crate::problem::Problem;

/// Where a problem is. Each part is there if it says something.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The block group.
    pub group: Option<GroupNr>,
    /// The inode; for a problem of an entry, its directory.
    pub ino: Option<Ino>,
    /// The logical block of the inode.
    pub lblk: Option<Lblk>,
    /// The physical block.
    pub block: Option<Pblk>,
    /// The byte offset in that block.
    pub offset: Option<u32>,
    /// The name of the entry or attribute as stored, or of a field.
    pub name: Option<Vec<u8>>,
}

impl Place {
    /// The file system as a whole.
    pub fn whole() -> Self {
        Self::default()
    }

    /// A block group.
    pub fn group(group: GroupNr) -> Self {
        Self {
            group: Some(group),
            ..Self::default()
        }
    }

    /// An inode.
    pub fn inode(ino: Ino) -> Self {
        Self {
            ino: Some(ino),
            ..Self::default()
        }
    }

    /// At this logical block.
    #[must_use]
    pub fn lblk(mut self, lblk: Lblk) -> Self {
        self.lblk = Some(lblk);
        self
    }

    /// In this physical block.
    #[must_use]
    pub fn block(mut self, block: Pblk) -> Self {
        self.block = Some(block);
        self
    }

    /// At this byte of the block.
    #[must_use]
    pub fn offset(mut self, offset: u32) -> Self {
        self.offset = Some(offset);
        self
    }

    /// The entry, attribute or field of this name.
    #[must_use]
    pub fn name(mut self, name: &[u8]) -> Self {
        self.name = Some(name.to_vec());
        self
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        let mut part = |f: &mut fmt::Formatter<'_>, text: fmt::Arguments<'_>| {
            f.write_str(std::mem::replace(&mut between, ", "))?;
            f.write_fmt(text)
        };
        if let Some(group) = self.group {
            part(f, format_args!("group {group}"))?;
        }
        if let Some(ino) = self.ino {
            part(f, format_args!("inode {ino}"))?;
        }
        if let Some(lblk) = self.lblk {
            part(f, format_args!("logical block {lblk}"))?;
        }
        if let Some(block) = self.block {
            part(f, format_args!("block {block}"))?;
        }
        if let Some(offset) = self.offset {
            part(f, format_args!("byte {offset}"))?;
        }
        if let Some(name) = &self.name {
            part(f, format_args!("\"{}\"", name.escape_ascii()))?;
        }
        Ok(())
    }
}

/// One problem found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Finding {
    /// Where.
    pub place: Place,
    /// What.
    pub problem: Problem,
    /// The number found there.
    pub found: Option<u64>,
    /// The number that should be there.
    pub right: Option<u64>,
}

impl Finding {
    /// A finding without numbers.
    pub fn new(problem: impl Into<Problem>, place: Place) -> Self {
        Self {
            place,
            problem: problem.into(),
            found: None,
            right: None,
        }
    }

    /// With the number found.
    #[must_use]
    pub fn found(mut self, number: impl Into<u64>) -> Self {
        self.found = Some(number.into());
        self
    }

    /// With the number that should be there.
    #[must_use]
    pub fn right(mut self, number: impl Into<u64>) -> Self {
        self.right = Some(number.into());
        self
    }

    /// What its remedy does, with the numbers of this finding.
    pub fn remedy(&self) -> String {
        self.expanded(self.problem.info().remedy)
    }

    /// A text of the tables with the numbers in it; "?" stands for those there are none of.
    fn expanded(&self, text: &str) -> String {
        let shown = |number: Option<u64>| number.map_or("?".to_owned(), |n| n.to_string());
        text.replace("{found}", &shown(self.found))
            .replace("{right}", &shown(self.right))
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.place == Place::default() {
            write!(f, "{}: ", self.problem.structure())?;
        } else {
            write!(f, "{}: ", self.place)?;
        }
        f.write_str(&self.expanded(self.problem.info().text))
    }
}
