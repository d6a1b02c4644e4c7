//! Flags of mke2fs that change nothing here, or that cannot be had: real scripts pass them, so they
//! are accepted where that is harmless, with a note on standard error, and refused with the reason
//! where ignoring one could cost data.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::failure::{Exit, Failure};

/// The flags.
#[derive(Args, Debug)]
#[command(next_help_heading = "Accepted for compatibility with mke2fs")]
pub struct CompatArgs {
    /// Verbose: accepted without effect
    #[arg(short = 'v', action = clap::ArgAction::Count)]
    verbose: u8,
    /// Direct I/O: accepted without effect
    #[arg(short = 'D')]
    direct: bool,
    /// Keep the blocks of the device: the same as -E nodiscard
    #[arg(short = 'K')]
    keep: bool,
    /// Search for bad blocks: accepted without effect
    #[arg(short = 'c', action = clap::ArgAction::Count)]
    check: u8,
    /// File of bad blocks: accepted if it lists none
    #[arg(short = 'l', value_name = "FILE")]
    bad_blocks: Option<PathBuf>,
    /// Operating system that the file system is for: Linux
    #[arg(short = 'o', value_name = "OS")]
    creator: Option<String>,
    /// Revision of the format: 1, or 0, which has no features
    #[arg(short = 'r', value_name = "REVISION")]
    revision: Option<u32>,
    /// Undo file: accepted for an image that does not exist yet
    #[arg(short = 'z', value_name = "FILE")]
    undo: Option<PathBuf>,
}

impl CompatArgs {
    /// True with `-K`.
    pub fn keeps_blocks(&self) -> bool {
        self.keep
    }

    /// True with `-r 0`.
    pub fn is_revision_0(&self) -> bool {
        self.revision == Some(0)
    }

    /// Checks the flags for an image, and returns what to note about them.
    ///
    /// # Errors
    /// Exit 2 for a value that does not exist, 8 for one that cannot be had.
    pub fn notes(&self, image: &Path) -> Result<Vec<&'static str>, Failure> {
        let mut notes = Vec::new();
        if self.check > 0 {
            notes.push("-c: the device is not searched for bad blocks; its firmware remaps them");
        }
        if self.direct {
            notes.push("-D: the page cache of the host is used, and flushed at the end");
        }
        if let Some(list) = &self.bad_blocks {
            let text = fs::read_to_string(list).map_err(|e| Failure::io(list.display(), &e))?;
            if !text.trim().is_empty() {
                let what = format!("-l {}: lists bad blocks", list.display());
                return Err(Failure::new(Exit::CouldNot, what)
                    .hint("an image can avoid no blocks; replace the device, or use mke2fs"));
            }
        }
        match self.creator.as_deref() {
            None | Some("0") => {}
            Some(name) if name.eq_ignore_ascii_case("linux") => {}
            Some(name) => {
                let what = format!("-o {name}: the file system can only be made for Linux");
                return Err(Failure::new(Exit::Usage, what));
            }
        }
        if let Some(revision) = self.revision.filter(|revision| *revision > 1) {
            let what = format!("-r {revision}: there are revisions 0 and 1 of the format");
            return Err(Failure::new(Exit::Usage, what));
        }
        if let Some(undo) = &self.undo {
            if fs::metadata(image).is_ok_and(|found| !found.is_file() || found.len() > 0) {
                let what = format!("-z {}: no undo file can be written", undo.display());
                return Err(Failure::new(Exit::CouldNot, what)
                    .hint("copy the image first: `cp --reflink=auto IMAGE COPY`"));
            }
            notes.push("-z: no undo file is written; there is nothing to restore");
        }
        Ok(notes)
    }
}

/// The items of `-E` lists that concern the command rather than the file system.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Extended {
    /// The other items, as a list.
    pub rest: String,
    /// What to note about them.
    pub notes: Vec<&'static str>,
}

/// Takes these items out of a list. `root_owner` alone stands for `UID:GID` as `owner` has it.
///
/// # Errors
/// Exit 2 for a value that makes no sense.
pub fn extended(list: &str, owner: &str) -> Result<Extended, Failure> {
    let mut taken = Extended::default();
    let mut rest: Vec<String> = Vec::new();
    for item in list.split(',').filter(|item| !item.is_empty()) {
        match item.split_once('=').unwrap_or((item, "")) {
            ("root_owner", "") => rest.push(format!("root_owner={owner}")),
            ("android_sparse", _) => taken.notes.push(
                "-E android_sparse: a raw image is written; img2simg makes a sparse one of it",
            ),
            ("desc_size", "32" | "64") => taken
                .notes
                .push("-E desc_size: follows from the feature 64bit (64 bytes with it, else 32)"),
            ("desc_size", value) => {
                let what = format!("-E desc_size={value}: descriptors have 32 or 64 bytes");
                return Err(Failure::new(Exit::Usage, what));
            }
            _ => rest.push(item.to_owned()),
        }
    }
    taken.rest = rest.join(",");
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags() -> CompatArgs {
        CompatArgs {
            verbose: 0,
            direct: false,
            keep: false,
            check: 0,
            bad_blocks: None,
            creator: None,
            revision: None,
            undo: None,
        }
    }

    #[test]
    fn items_of_the_command_are_taken_out() {
        let taken = extended("stride=4,root_owner,android_sparse", "5:6").unwrap();
        assert_eq!(taken.rest, "stride=4,root_owner=5:6");
        assert_eq!(taken.notes.len(), 1);
        assert_eq!(extended("desc_size=64", "0:0").unwrap().rest, "");
        assert!(extended("desc_size=48", "0:0").is_err());
    }

    #[test]
    fn what_could_cost_data_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let new = Path::new("/no/such/image");
        let with = |change: &dyn Fn(&mut CompatArgs)| {
            let mut flags = flags();
            change(&mut flags);
            flags
        };
        let list = with(&|flags| flags.bad_blocks = Some(file.path().to_owned()));
        assert_eq!(list.notes(new).unwrap(), [""; 0]);
        fs::write(file.path(), "17\n").unwrap();
        assert!(list.notes(new).is_err());
        let undo = with(&|flags| flags.undo = Some("undo".into()));
        assert_eq!(undo.notes(new).unwrap().len(), 1);
        assert!(undo.notes(file.path()).is_err());
        assert!(with(&|flags| flags.revision = Some(2)).notes(new).is_err());
        assert!(
            with(&|flags| flags.creator = Some("hurd".into()))
                .notes(new)
                .is_err()
        );
        assert!(
            with(&|flags| flags.creator = Some("linux".into()))
                .notes(new)
                .is_ok()
        );
    }
}
