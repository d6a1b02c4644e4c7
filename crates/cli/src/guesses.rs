//! What the parser of the command line guesses that an option might mean, where there is none of
//! the name: only what is near to what was typed is worth a sentence.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};

/// Changed, added, left out or swapped letters that a slip of the fingers makes.
const SLIP_MAX: usize = 2;
/// Fewest letters that a shortened or lengthened option shares with the one it stands for.
const SHARED_MIN: usize = 4;

/// What other programs call what a command does, and the commands.
const OTHER_NAMES: [(&str, &[&str]); 9] = [
    ("cp", &["put", "get"]),
    ("copy", &["put", "get", "clone"]),
    ("create", &["build", "mkfs"]),
    ("df", &["info", "stats"]),
    ("dump", &["info", "get"]),
    ("extract", &["get", "untar"]),
    ("pull", &["get"]),
    ("push", &["put"]),
    ("resize", &["grow", "shrink"]),
];

/// Takes away what is no guess worth making, and what stands in the line of usage as if it were
/// required: the guess, or options that were typed. `command` is the whole command line, `words`
/// what was typed.
pub fn without_far_guesses(mut error: Error, mut command: Command, words: &[String]) -> Error {
    match error.kind() {
        ErrorKind::UnknownArgument => keep_near(
            &mut error,
            ContextKind::InvalidArg,
            ContextKind::SuggestedArg,
        ),
        ErrorKind::InvalidSubcommand => keep_near(
            &mut error,
            ContextKind::InvalidSubcommand,
            ContextKind::SuggestedSubcommand,
        ),
        _ => {}
    }
    if error.get(ContextKind::Usage).is_none() {
        return error;
    }
    command.build();
    let subcommand = words
        .get(1)
        .and_then(|name| command.find_subcommand_mut(name));
    if let Some(subcommand) = subcommand {
        let usage = ContextValue::StyledStr(subcommand.render_usage());
        error.insert(ContextKind::Usage, usage);
    }
    error
}

/// Takes away the guesses that are not near to what was typed.
fn keep_near(error: &mut Error, typed: ContextKind, guessed: ContextKind) {
    let Some(ContextValue::String(typed)) = error.get(typed).cloned() else {
        return;
    };
    let other = OTHER_NAMES.iter().find(|(name, _)| *name == typed);
    let other = other.filter(|_| guessed == ContextKind::SuggestedSubcommand);
    let near: Vec<String> = match (other, error.get(guessed)) {
        (Some((_, commands)), _) => commands.iter().map(ToString::to_string).collect(),
        (None, Some(ContextValue::String(guess))) if !is_near(&typed, guess) => Vec::new(),
        (None, Some(ContextValue::Strings(guesses))) => {
            let near = guesses.iter().filter(|guess| is_near(&typed, guess));
            near.cloned().collect()
        }
        _ => return,
    };
    error.remove(guessed);
    if !near.is_empty() {
        error.insert(guessed, ContextValue::Strings(near));
    }
}

/// Whether one option or command may have been typed for the other.
fn is_near(typed: &str, guess: &str) -> bool {
    let name = |option: &str| {
        let name = option.trim_start_matches('-');
        name.split(['=', ' ']).next().unwrap_or_default().to_owned()
    };
    let (typed, guess) = (name(typed), name(guess));
    let shorter = typed.len().min(guess.len());
    let is_part = typed.starts_with(&guess) || guess.starts_with(&typed);
    is_part && shorter >= SHARED_MIN
        || strsim::damerau_levenshtein(&typed, &guess) <= SLIP_MAX.min(shorter / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_slips_and_parts_are_near() {
        for (typed, guess) in [
            ("--exlude", "--exclude"),
            ("--onwer", "--owner"),
            ("--recursive-all", "--recursive"),
            ("--quie", "--quiet"),
            ("lss", "ls"),
            ("umonut", "umount"),
        ] {
            assert!(is_near(typed, guess), "{typed} {guess}");
        }
        for (typed, guess) in [
            ("--partition", "--max-ratio"),
            ("--selinux", "--symlink"),
            ("--ab", "--xy"),
            ("frobnicate", "fallocate"),
        ] {
            assert!(!is_near(typed, guess), "{typed} {guess}");
        }
    }
}
