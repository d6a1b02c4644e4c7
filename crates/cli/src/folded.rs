//! Lines folded at words, for terminals that are narrower than the text.

use std::borrow::Cow;
use std::io::IsTerminal;
use std::os::fd::AsFd;

use rustix::termios::tcgetwinsize;

/// Fewest columns that text is folded for.
const WIDTH_MIN: usize = 30;

/// A text for the terminal that `stream` is; as it is for all else.
pub fn for_terminal<'a>(text: &'a str, stream: &(impl AsFd + IsTerminal)) -> Cow<'a, str> {
    match columns(stream) {
        Some(width) => Cow::Owned(folded(text, width)),
        None => Cow::Borrowed(text),
    }
}

/// Whether `stream` is a terminal that has fewer columns than a line of the text.
pub fn is_too_narrow(text: &str, stream: &(impl AsFd + IsTerminal)) -> bool {
    let is_longer = |width| text.lines().any(|line| line.chars().count() > width);
    columns(stream).is_some_and(is_longer)
}

/// The columns of a terminal; `None` for what is none.
pub fn columns(stream: &(impl AsFd + IsTerminal)) -> Option<usize> {
    if !stream.is_terminal() {
        return None;
    }
    let columns = tcgetwinsize(stream).ok()?.ws_col;
    Some(usize::from(columns).max(WIDTH_MIN)).filter(|_| columns > 0)
}

/// Folds all lines that are longer than `width` characters. What continues a line begins where its
/// text does: behind its first gap of two blanks, as in a table, or else behind its indentation.
/// Lines of a paragraph become one first.
pub fn folded(text: &str, width: usize) -> String {
    let mut out = String::with_capacity(text.len());
    let mut lines = text.split_inclusive('\n').peekable();
    while let Some(line) = lines.next() {
        let mut paragraph = line.to_owned();
        let mut is_longer = line.trim_end().chars().count() > width;
        let mut rest = lines.clone();
        while let Some(next) = rest.next_if(|next| is_prose(&paragraph) && is_prose(next)) {
            is_longer |= next.trim_end().chars().count() > width;
            paragraph.truncate(paragraph.trim_end().len());
            paragraph.push(' ');
            paragraph.push_str(next);
        }
        match is_longer {
            true => {
                fold(&paragraph, width, &mut out);
                lines = rest;
            }
            false => out.push_str(line),
        }
    }
    out
}

/// Whether it may be a line of a paragraph, and not of a table, a list or a heading.
fn is_prose(line: &str) -> bool {
    let text = line.trim_end();
    !text.is_empty() && leading(text) == 0 && !text.contains("  ") && !text.ends_with(':')
}

fn fold(line: &str, width: usize, out: &mut String) {
    let (text, end) = match line.strip_suffix('\n') {
        Some(text) => (text, "\n"),
        None => (line, ""),
    };
    let mut rest = text;
    let hanging = hanging(text);
    let indent = match hanging > width / 2 {
        true => leading(text).min(width / 4),
        false => hanging,
    };
    let mut room = width;
    while rest.chars().count() > room {
        let Some(at) = last_blank(rest, room) else {
            break;
        };
        out.push_str(rest[..at].trim_end());
        out.push('\n');
        out.extend(std::iter::repeat_n(' ', indent));
        rest = rest[at..].trim_start();
        room = width - indent;
    }
    out.push_str(rest);
    out.push_str(end);
}

/// Where the line may be cut: at the last blank before the column `room`, or else the first one.
fn last_blank(text: &str, room: usize) -> Option<usize> {
    let from = leading(text);
    let blanks = text.char_indices().enumerate();
    let mut blanks = blanks.filter(|&(_, (at, c))| c == ' ' && at > from);
    let first = blanks.clone().next();
    let before = blanks
        .by_ref()
        .take_while(|&(column, _)| column <= room)
        .last();
    before.or(first).map(|(_, (at, _))| at)
}

/// Blanks at the beginning.
fn leading(text: &str) -> usize {
    text.len() - text.trim_start_matches(' ').len()
}

/// The column of what follows the first gap, or of the beginning.
fn hanging(text: &str) -> usize {
    let from = leading(text);
    let Some(gap) = text[from..].find("  ") else {
        return from;
    };
    let gap = from + gap;
    text[..gap + leading(&text[gap..])].chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_folded_at_words_below_their_text() {
        let text = "  cat            Print the contents of files\n\nA sentence that is too long.\n";
        let expected = "  cat            Print the contents\n                 of files\n\n\
                        A sentence that is too long.\n";
        assert_eq!(folded(text, 36), expected);
        assert_eq!(
            folded("  -> one two three four", 12),
            "  -> one two\n  three four"
        );
        assert_eq!(folded("short\n", 30), "short\n");
        assert_eq!(
            folded("One two three four\nfive six\n\nseven eight\n", 12),
            "One two\nthree four\nfive six\n\nseven eight\n"
        );
        // What has no blank stays whole.
        assert_eq!(folded("abcdefghij klm", 5), "abcdefghij\nklm");
        assert_eq!(folded("äöü äöü äöü", 8), "äöü äöü\näöü");
    }

    #[test]
    fn a_second_column_that_leaves_no_room_is_given_up() {
        let text = "  uext4 ls -l disk.img /etc      list a directory";
        assert!(
            folded(text, 30)
                .lines()
                .all(|line| line.chars().count() <= 30)
        );
    }
}
