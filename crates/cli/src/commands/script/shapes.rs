//! Lines of one shape: a script is mostly thousands of lines that differ in their paths alone.
//!
//! The words before the paths are a line's shape. The first line of a shape is parsed with paths
//! that stand for any; where these come back as the paths of the command, and nothing else, lines
//! of the shape are that one with their own paths. All others are parsed word by word.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::Line;
use crate::commands::change::Operands;

/// Shapes that are remembered: a script that has more of them gains nothing by them.
const SHAPES_MAX: usize = 256;
/// The paths that stand for any.
const EXAMPLES: [&str; 2] = ["/\u{1}first", "/\u{1}second"];

/// Where a line's paths begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Index of the first of them, at least 1.
    pub(super) at: usize,
}

impl Shape {
    /// The words of a line of this shape.
    pub(super) fn example(self, words: &[OsString]) -> Vec<OsString> {
        let paths = words[self.at..].iter().zip(EXAMPLES);
        let shape = words[..self.at].iter().cloned();
        shape.chain(paths.map(|(_, path)| path.into())).collect()
    }
}

/// The shapes met so far, and a line of each whose paths may be replaced.
#[derive(Debug, Default)]
pub(super) struct Shapes(HashMap<Vec<OsString>, Option<Line>>);

impl Shapes {
    /// The shape of a line; `None` where its last words may be something other than paths.
    pub(super) fn of(words: &[OsString]) -> Option<Shape> {
        let paths = paths(words.first()?)?;
        let at = words.len().checked_sub(paths).filter(|at| *at > 0)?;
        let is_path = |word: &OsString| !matches!(word.as_encoded_bytes(), [] | [b'-', ..]);
        words[at..].iter().all(is_path).then_some(Shape { at })
    }

    /// Whether a shape is new, and there is room for it.
    pub(super) fn wants(&self, shape: &[OsString]) -> bool {
        self.0.len() < SHAPES_MAX && !self.0.contains_key(shape)
    }

    /// Adds a shape, with the line that its example gave.
    pub(super) fn add(&mut self, shape: &[OsString], line: Option<Line>) {
        let line = line.filter(|line| {
            let mut line = line.clone();
            let paths = line.operands();
            let paths = paths.iter().map(|path| path.as_path());
            let examples = EXAMPLES.iter().map(Path::new);
            let count = shape.first().and_then(self::paths).unwrap_or(0);
            paths.eq(examples.take(count))
        });
        self.0.insert(shape.to_vec(), line);
    }

    /// The line that these words are, if its shape says so. Takes the paths out of the words then.
    pub(super) fn line(&self, words: &mut Vec<OsString>, shape: Shape) -> Option<Line> {
        let mut line = self.0.get(&words[..shape.at])?.clone()?;
        for (operand, path) in line.operands().into_iter().zip(words.drain(shape.at..)) {
            *operand = path.into();
        }
        Some(line)
    }
}

/// How many paths a line of a command ends with.
fn paths(command: &OsString) -> Option<usize> {
    match command.to_str()? {
        "put" | "mv" | "ln" => Some(2),
        "mkdir" | "rm" | "chmod" | "chown" | "setfattr" | "touch" => Some(1),
        _ => None,
    }
}

impl Operands for Line {
    fn operands(&mut self) -> Vec<&mut PathBuf> {
        match self {
            Self::Put(line) => line.operands(),
            Self::Untar(line) => line.operands(),
            Self::Mkdir(line) => line.operands(),
            Self::Rm(line) => line.operands(),
            Self::Mv(line) => line.operands(),
            Self::Ln(line) => line.operands(),
            Self::Chmod(line) => line.operands(),
            Self::Chown(line) => line.operands(),
            Self::Setfattr(line) => line.operands(),
            Self::Touch(line) => line.operands(),
            _ => Vec::new(),
        }
    }
}
