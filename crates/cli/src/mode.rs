//! Modes as chmod takes them: octal, or clauses of letters.

use uext4::FileType;

/// What to make of a mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModeChange(Vec<Step>);

/// One sign of one clause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    /// All bits that the clause speaks of.
    who: u16,
    sign: Sign,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    Add,
    Remove,
    Set,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// Bits for all three, and set-id and sticky; those of directories and executables (`X`) apart.
    Bits { bits: u16, x_if_any: bool },
    /// Those that owner (6), group (3) or others (0) have.
    CopyOf(u8),
    /// All twelve, as a number.
    All(u16),
}

const USER: u16 = 0o4700;
const GROUP: u16 = 0o2070;
const OTHERS: u16 = 0o1007;
const EVERYBODY: u16 = 0o7777;

/// Reads `755`, `u+x`, `g=u,o-rwx`. Without a letter for whom, every user is meant: there is no
/// umask.
///
/// # Errors
/// What is wrong with it.
pub fn parse(text: &str) -> Result<ModeChange, String> {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        let mode = u16::from_str_radix(text, 8).ok().filter(|m| *m <= 0o7777);
        let mode = mode.ok_or_else(|| "an octal mode is 0 to 7777".to_owned())?;
        return Ok(ModeChange(vec![Step {
            who: EVERYBODY,
            sign: Sign::Set,
            what: What::All(mode),
        }]));
    }
    let mut steps = Vec::new();
    for clause in text.split(',') {
        let signs = clause.find(['+', '-', '=']);
        let signs = signs.ok_or_else(|| format!("{clause:?} has no +, - or ="))?;
        let mut who = 0;
        for letter in clause[..signs].chars() {
            who |= match letter {
                'u' => USER,
                'g' => GROUP,
                'o' => OTHERS,
                'a' => EVERYBODY,
                _ => return Err(format!("{letter:?} is not one of u, g, o, a")),
            };
        }
        let who = if who == 0 { EVERYBODY } else { who };
        let mut rest = &clause[signs..];
        while let Some(first) = rest.chars().next() {
            let sign = match first {
                '+' => Sign::Add,
                '-' => Sign::Remove,
                _ => Sign::Set,
            };
            let end = rest[1..]
                .find(['+', '-', '='])
                .map_or(rest.len(), |at| at + 1);
            let what = parse_what(&rest[1..end])?;
            steps.push(Step { who, sign, what });
            rest = &rest[end..];
        }
    }
    Ok(ModeChange(steps))
}

fn parse_what(letters: &str) -> Result<What, String> {
    match letters {
        "u" => return Ok(What::CopyOf(6)),
        "g" => return Ok(What::CopyOf(3)),
        "o" => return Ok(What::CopyOf(0)),
        _ => {}
    }
    let (mut bits, mut x_if_any) = (0, false);
    for letter in letters.chars() {
        match letter {
            'r' => bits |= 0o444,
            'w' => bits |= 0o222,
            'x' => bits |= 0o111,
            'X' => x_if_any = true,
            's' => bits |= 0o6000,
            't' => bits |= 0o1000,
            _ => return Err(format!("{letter:?} is not one of r, w, x, X, s, t")),
        }
    }
    Ok(What::Bits { bits, x_if_any })
}

impl ModeChange {
    /// The new mode of a file of this type that has `mode`.
    pub fn apply(&self, mode: u16, file_type: FileType) -> u16 {
        let is_dir = file_type == FileType::Directory;
        let mut mode = mode & 0o7777;
        for step in &self.0 {
            let bits = match step.what {
                What::All(bits) => bits,
                What::Bits { bits, x_if_any } => {
                    let x = x_if_any && (is_dir || mode & 0o111 != 0);
                    bits | if x { 0o111 } else { 0 }
                }
                What::CopyOf(shift) => (mode >> shift & 7) * 0o111,
            } & step.who;
            // As with the tool: a directory keeps its set-id bits unless they are named.
            let keep = match step.what {
                What::All(_) => 0,
                _ if is_dir => 0o6000,
                _ => 0,
            };
            mode = match step.sign {
                Sign::Add => mode | bits,
                Sign::Remove => mode & !bits,
                Sign::Set => mode & (!step.who | keep) | bits,
            };
        }
        mode
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_what_chmod_makes_of_them() {
        let all: [(&str, u16, bool, u16); 14] = [
            ("755", 0o4600, false, 0o755),
            ("7777", 0, true, 0o7777),
            ("u+x", 0o644, false, 0o744),
            ("+x", 0o644, false, 0o755),
            ("go-rwx", 0o777, false, 0o700),
            ("a=r,u+w", 0o777, false, 0o644),
            ("g=u", 0o640, false, 0o660),
            ("o=g-w", 0o660, false, 0o664),
            ("a+X", 0o644, false, 0o644),
            ("a+X", 0o744, false, 0o755),
            ("a+X", 0o644, true, 0o755),
            ("u+s,g+s,+t", 0o755, false, 0o7755),
            ("g=rx", 0o2775, true, 0o2755),
            ("u=", 0o4755, false, 0o055),
        ];
        for (text, mode, is_dir, expected) in all {
            let file_type = match is_dir {
                true => FileType::Directory,
                false => FileType::Regular,
            };
            let got = parse(text).unwrap().apply(mode, file_type);
            assert_eq!(got, expected, "{text} of {mode:o}: {got:o}");
        }
        for bad in ["", "u", "8", "10000", "z+r", "u+q", "u+x,"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
