//! What a repair takes out of the tree, in words.

use std::io::{self, Write};

use uext4_fsck::Lost;

use crate::examination::counted;
use crate::show::escaped;

/// What to do where a repair that may not ask would lose too much.
pub const REFUSED_HINT: &str = "`uext4 salvage IMAGE -o DIR` reads out what can be read; `uext4 \
    repair IMAGE` asks, `--accept-loss` or `--accept-loss=N` goes with -y";

/// Why such a repair is refused.
pub fn refusal(lost: u64) -> String {
    let lost = match lost {
        u64::MAX => "an unknown number of files".to_owned(),
        lost => counted(lost, "file"),
    };
    format!(
        "{lost} would be lost with structures that were found nowhere and are made anew, empty: \
         nothing was written"
    )
}

/// "; loses 2 files, 3 names": for the end of a line. Nothing if it is not known.
pub fn in_words(lost: Option<&Lost>) -> String {
    let Some(lost) = lost else {
        return String::new();
    };
    if lost.is_nothing() && lost.with_structures == 0 {
        return "; loses nothing that can be read".to_owned();
    }
    let attributes = format!("attributes of {}", counted(lost.attributes, "file"));
    let parts = [
        (lost.files, counted(lost.files, "file")),
        (lost.names, counted(lost.names, "name")),
        (lost.bytes, counted(lost.bytes, "byte")),
        (lost.attributes, attributes),
        (
            lost.with_structures,
            format!(
                "{} with structures made anew",
                counted(lost.with_structures, "file")
            ),
        ),
        (
            lost.journal_blocks,
            format!("{} of the journal", counted(lost.journal_blocks, "block")),
        ),
    ];
    let parts = parts.into_iter().filter(|(count, _)| *count != 0);
    let parts: Vec<_> = parts.map(|(_, words)| words).collect();
    format!("; loses {}", parts.join(", "))
}

/// A line for each name that is lost, of the first ones.
pub fn print_names(lost: Option<&Lost>, out: &mut dyn Write) -> io::Result<()> {
    let Some(lost) = lost else {
        return Ok(());
    };
    for name in &lost.shown {
        let (directory, ino) = (name.directory, name.ino);
        let name = escaped(&name.name);
        writeln!(
            out,
            "loses the name \"{name}\" of inode {ino}, in the directory of inode {directory}"
        )?;
    }
    match lost.names.saturating_sub(lost.shown.len() as u64) {
        0 => Ok(()),
        more => writeln!(out, "… and {}", counted(more, "more name")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_lost_is_named() {
        let mut lost = Lost::default();
        assert_eq!(in_words(None), "");
        assert_eq!(in_words(Some(&lost)), "; loses nothing that can be read");
        (lost.files, lost.names, lost.bytes) = (1, 2, 705);
        assert_eq!(in_words(Some(&lost)), "; loses 1 file, 2 names, 705 bytes");
    }
}
