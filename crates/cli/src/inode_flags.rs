//! Inode flags as the letters of chattr(1) and the names of lsattr(1).

use uext4::format::VISIBLE_FLAGS;
use uext4::{Inode, InodeFlags};

/// A flag that has a letter.
#[derive(Debug)]
pub struct Letter {
    /// The letter.
    pub letter: char,
    /// The flag.
    pub flag: InodeFlags,
    /// Its name, as `lsattr -l` prints it.
    pub name: &'static str,
    /// Why chattr cannot change it; `None` if it can.
    pub fixed: Option<&'static str>,
}

const fn free(letter: char, flag: InodeFlags, name: &'static str) -> Letter {
    Letter {
        letter,
        flag,
        name,
        fixed: None,
    }
}

const fn fixed(letter: char, flag: InodeFlags, name: &'static str, why: &'static str) -> Letter {
    Letter {
        letter,
        flag,
        name,
        fixed: Some(why),
    }
}

/// No copy-on-write, which ext4 has not.
const NOCOW: InodeFlags = InodeFlags::from_bits_retain(0x80_0000);

/// All letters, in the order of lsattr.
pub const LETTERS: [Letter; 22] = [
    free('s', InodeFlags::SECRM, "Secure_Deletion"),
    free('u', InodeFlags::UNRM, "Undelete"),
    free('S', InodeFlags::SYNC, "Synchronous_Updates"),
    free('D', InodeFlags::DIRSYNC, "Synchronous_Directory_Updates"),
    free('i', InodeFlags::IMMUTABLE, "Immutable"),
    free('a', InodeFlags::APPEND, "Append_Only"),
    free('d', InodeFlags::NODUMP, "No_Dump"),
    free('A', InodeFlags::NOATIME, "No_Atime"),
    free('c', InodeFlags::COMPR, "Compression_Requested"),
    fixed(
        'E',
        InodeFlags::ENCRYPT,
        "Encrypted",
        "only encryption sets it",
    ),
    free('j', InodeFlags::JOURNAL_DATA, "Journaled_Data"),
    fixed(
        'I',
        InodeFlags::INDEX,
        "Indexed_directory",
        "directories have it that have an index",
    ),
    free('t', InodeFlags::NOTAIL, "No_Tailmerging"),
    free('T', InodeFlags::TOPDIR, "Top_of_Directory_Hierarchies"),
    free('e', InodeFlags::EXTENTS, "Extents"),
    fixed('C', NOCOW, "No_COW", "ext4 never copies on write"),
    free('x', InodeFlags::DAX, "DAX"),
    fixed(
        'F',
        InodeFlags::CASEFOLD,
        "Casefold",
        "uext4 does not change casefolded directories",
    ),
    fixed(
        'N',
        InodeFlags::INLINE_DATA,
        "Inline_Data",
        "files have it whose data is in the inode",
    ),
    free('P', InodeFlags::PROJINHERIT, "Project_Hierarchy"),
    fixed('V', InodeFlags::VERITY, "Verity", "only fs-verity sets it"),
    fixed(
        'm',
        InodeFlags::NOCOMPR,
        "Dont_Compress",
        "ext4 has no compression to leave out",
    ),
];

/// The flags of an inode that lsattr shows.
pub fn shown(inode: &Inode) -> InodeFlags {
    inode
        .flags
        .intersection(VISIBLE_FLAGS.union(InodeFlags::CASEFOLD))
}

/// The letters of flags, with a dash in place of each that is not there.
pub fn letters(flags: InodeFlags) -> String {
    let letter = |known: &Letter| match flags.contains(known.flag) {
        true => known.letter,
        false => '-',
    };
    LETTERS.iter().map(letter).collect()
}

/// The names of flags.
pub fn names(flags: InodeFlags) -> Vec<&'static str> {
    let known = LETTERS.iter().filter(|known| flags.contains(known.flag));
    known.map(|known| known.name).collect()
}

/// What the modes of a command line ask for together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlagChange {
    add: InodeFlags,
    remove: InodeFlags,
    /// All others that can be changed are removed, but for `e`.
    is_set: bool,
}

impl FlagChange {
    /// Adds what `mode` asks for: `+ai`, `-i`, `=A`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(&mut self, mode: &str) -> Result<(), String> {
        let mut letters = mode.chars();
        let sign = letters.next();
        let mut flags = InodeFlags::default();
        for letter in letters {
            let known = LETTERS.iter().find(|known| known.letter == letter);
            let known = known.ok_or_else(|| format!("{letter:?} is no letter of a flag"))?;
            match known.fixed {
                Some(why) => return Err(format!("{letter} cannot be changed: {why}")),
                None if sign == Some('-') && known.flag == InodeFlags::EXTENTS => {
                    return Err("uext4 does not convert files that have extents (e)".to_owned());
                }
                None => flags |= known.flag,
            }
        }
        match sign {
            Some('=') => {
                self.is_set = true;
                self.add |= flags;
            }
            _ if flags.is_empty() => return Err(format!("{mode:?} has no letter")),
            Some('-') => self.remove |= flags,
            _ => self.add |= flags,
        }
        if self.is_set && !self.remove.is_empty() || self.add.intersects(self.remove) {
            return Err("a flag cannot be both set and removed".to_owned());
        }
        Ok(())
    }

    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The flags of an inode after the change, as the engine takes them.
    pub fn apply(&self, flags: InodeFlags) -> InodeFlags {
        let flags = flags.intersection(VISIBLE_FLAGS);
        let changeable = LETTERS.iter().filter(|known| known.fixed.is_none());
        let changeable = changeable.fold(InodeFlags::default(), |all, known| all | known.flag);
        let removed = match self.is_set {
            true => changeable.difference(InodeFlags::EXTENTS),
            false => self.remove,
        };
        flags.difference(removed) | self.add
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(modes: &[&str]) -> Result<FlagChange, String> {
        let mut change = FlagChange::default();
        modes.iter().try_for_each(|mode| change.read(mode))?;
        Ok(change)
    }

    #[test]
    fn modes_are_those_of_chattr() {
        let (i, a, e, d) = (
            InodeFlags::IMMUTABLE,
            InodeFlags::APPEND,
            InodeFlags::EXTENTS,
            InodeFlags::NODUMP,
        );
        for (modes, before, after) in [
            (&["+i"][..], e, e | i),
            (&["-i"], e | i, e),
            (&["+a", "-i"], e | i, e | a),
            (&["+a", "+d"], e, e | a | d),
            (&["=d"], e | i | a, e | d),
            (&["="], e | i, e),
            (&["+e"], e, e),
            // What cannot be changed stays.
            (&["="], InodeFlags::INDEX | d, InodeFlags::INDEX),
        ] {
            assert_eq!(change(modes).unwrap().apply(before), after, "{modes:?}");
        }
        for (modes, why) in [
            (&["+"][..], "no letter"),
            (&["+i", "-i"], "both"),
            (&["=a", "-i"], "both"),
            (&["+q"], "'q' is no letter"),
            (&["+E"], "E cannot be changed: only encryption"),
            (&["-e"], "does not convert"),
        ] {
            let error = change(modes).unwrap_err();
            assert!(error.contains(why), "{modes:?}: {error}");
        }
        assert_eq!(letters(i | a | e), "----ia--------e-------");
        assert_eq!(names(i | e), ["Immutable", "Extents"]);
    }
}
