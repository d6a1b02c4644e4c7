//! What the parser of the command line guesses that an option might mean, where there is none of
//! the name: only what is near to what was typed is worth a sentence.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};

/// Changed, added, left out or swapped letters that a slip of the fingers makes.
const SLIP_MAX: usize = 2;
/// Fewest letters that a shortened or lengthened option shares with the one it stands for.
const SHARED_MIN: usize = 4;

/// Takes away what is no guess worth making, and the guess that stands in the line of usage as if
/// it were required. `command` is the whole command line, `words` what was typed.
pub fn without_far_guesses(mut error: Error, mut command: Command, words: &[String]) -> Error {
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    let (typed, guess) = (
        text(ContextKind::InvalidArg),
        text(ContextKind::SuggestedArg),
    );
    let is_near = |guess: &String| typed.as_ref().is_some_and(|typed| is_near(typed, guess));
    if guess.is_some_and(|guess| !is_near(&guess)) {
        error.remove(ContextKind::SuggestedArg);
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

/// Whether one option may have been typed for the other.
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
        ] {
            assert!(is_near(typed, guess), "{typed} {guess}");
        }
        for (typed, guess) in [
            ("--partition", "--max-ratio"),
            ("--selinux", "--symlink"),
            ("--ab", "--xy"),
        ] {
            assert!(!is_near(typed, guess), "{typed} {guess}");
        }
    }
}
