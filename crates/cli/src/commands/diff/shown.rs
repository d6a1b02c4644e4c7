//! Differences on standard output: lines, JSON objects, or their numbers.

use std::io::Write;

use uext4::{FileType, Inode};
use uext4_image::walk::{InodeSet, joined};

use super::change::{Change, Kind, What};
use super::side::Side;
use crate::commands::Output;
use crate::failure::{Complaints, Failure};
use crate::json::Json;
use crate::record::{self, stat_size};
use crate::show::{escaped, size_text, type_word};

/// In which form differences are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A line each.
    Lines,
    /// A JSON object each.
    Json,
    /// How many there are.
    Stat,
    /// The same as a JSON object.
    StatJson,
}

/// Shows differences.
pub struct Shown<'a> {
    /// `None` if nothing is to be shown.
    out: Option<&'a mut Output>,
    form: Form,
    sides: [&'a Side; 2],
    json: Json,
    counts: [Count; 5],
    /// Files of each side whose bytes were counted.
    counted: [InodeSet; 2],
}

/// Entries of a kind.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    entries: u64,
    /// Bytes of files, of a file with several names once.
    bytes: u64,
}

/// The kinds in the order of their counts, with their letters and names.
const KINDS: [(Kind, &str, &str); 5] = [
    (Kind::Added, "A", "added"),
    (Kind::Removed, "D", "removed"),
    (Kind::Changed, "M", "changed"),
    (Kind::Type, "T", "type"),
    (Kind::Same, "", "same"),
];

impl<'a> Shown<'a> {
    /// Shows differences of these two trees.
    pub fn new(out: Option<&'a mut Output>, form: Form, sides: [&'a Side; 2]) -> Self {
        Self {
            out,
            form,
            sides,
            json: Json::new(),
            counts: [Count::default(); 5],
            counted: <[InodeSet; 2]>::default(),
        }
    }

    /// Shows an entry unless it is the same, or counts it.
    ///
    /// # Errors
    /// Those of writing.
    pub fn take(
        &mut self,
        change: &Change<'_>,
        complaints: &mut Complaints,
    ) -> Result<(), Failure> {
        let Some(at) = KINDS.iter().position(|(kind, ..)| *kind == change.kind) else {
            return Ok(());
        };
        match self.form {
            Form::Stat | Form::StatJson => self.count(at, change),
            _ if self.out.is_none() || change.kind == Kind::Same => {}
            Form::Lines => self.line(KINDS[at].1, change)?,
            Form::Json => self.object(KINDS[at].2, change, complaints)?,
        }
        Ok(())
    }

    /// Shows what was counted.
    ///
    /// # Errors
    /// Those of writing.
    pub fn end(&mut self) -> Result<(), Failure> {
        let Some(out) = &mut self.out else {
            return Ok(());
        };
        let counts = KINDS.iter().zip(&self.counts);
        if self.form == Form::Stat {
            for ((.., name), Count { entries, bytes }) in counts {
                writeln!(out, "{name:8} {entries:>10} entries, {}", size_text(*bytes))?;
            }
        } else if self.form == Form::StatJson {
            self.json.open_object();
            for ((.., name), count) in counts {
                self.json.key(name).open_object();
                self.json.key("entries").number(count.entries);
                self.json.key("bytes").number(count.bytes);
                self.json.close_object();
            }
            self.json.close_object();
            self.json.end_line();
            out.write_all(self.json.as_bytes())?;
        }
        Ok(())
    }

    fn count(&mut self, at: usize, change: &Change<'_>) {
        let count = &mut self.counts[at];
        count.entries += 1;
        let side = usize::from(change.kind != Kind::Removed);
        let is_read = |what| change.differences.iter().any(|found| found.what == what);
        let inode = [change.old, change.new][side];
        let files = inode.filter(|inode| inode.file_type == FileType::Regular);
        if let Some(inode) = files
            && (change.kind != Kind::Changed || is_read(What::Content))
            && self.counted[side].insert(inode.ino)
        {
            count.bytes = count.bytes.saturating_add(stat_size(inode));
        }
    }

    fn path(&self, change: &Change<'_>) -> Vec<u8> {
        joined(&self.sides[0].path, change.path)
    }

    /// `M /path (mode 0644 -> 0600, content)`
    fn line(&mut self, letter: &str, change: &Change<'_>) -> Result<(), Failure> {
        let path = escaped(&self.path(change));
        let Some(out) = &mut self.out else {
            return Ok(());
        };
        write!(out, "{letter} {path}")?;
        let details: Vec<String> = match (change.kind, change.old, change.new) {
            (Kind::Type, Some(old), Some(new)) => {
                let [old, new] = [old, new].map(|inode| type_word(inode.file_type));
                vec![format!("{old} -> {new}")]
            }
            _ => change.differences.iter().map(ToString::to_string).collect(),
        };
        match details.is_empty() {
            true => writeln!(out)?,
            false => writeln!(out, " ({})", details.join(", "))?,
        }
        Ok(())
    }

    fn object(
        &mut self,
        word: &str,
        change: &Change<'_>,
        complaints: &mut Complaints,
    ) -> Result<(), Failure> {
        let path = self.path(change);
        let json = &mut self.json;
        json.clear();
        json.open_object();
        json.key("path").text(&path);
        json.key("change").string(word);
        if !change.differences.is_empty() {
            json.key("differs").open_array();
            for difference in change.differences {
                json.string(difference.what.name());
            }
            json.close_array();
        }
        for difference in change.differences {
            if difference.what == What::Xattrs {
                json.key("xattrs").open_array();
                difference.names.iter().for_each(|name| json.text(name));
                json.close_array();
            }
        }
        for (at, key, inode) in [(0, "old", change.old), (1, "new", change.new)] {
            if let Some(inode) = inode {
                self.json.key(key).open_object();
                self.inode(self.sides[at], change, inode, complaints);
                self.json.close_object();
            }
        }
        self.json.close_object();
        self.json.end_line();
        if let Some(out) = &mut self.out {
            out.write_all(self.json.as_bytes())?;
        }
        Ok(())
    }

    fn inode(
        &mut self,
        side: &Side,
        change: &Change<'_>,
        inode: &Inode,
        complaints: &mut Complaints,
    ) {
        let written = record::write(&mut self.json, &side.fs, inode);
        self.json.key("project").number(inode.projid);
        if let Err(error) = written {
            // Of others it was reported when they were compared.
            if !matches!(change.kind, Kind::Same | Kind::Changed) {
                complaints.engine(side.place(change.path), &error);
            }
            self.json.key("error").string(&error.to_string());
        }
    }
}
