//! What became of the figures that the five threads print: each is in a claim, or says why not.
//!
//! `lab/threads/*.toml` has every number of a thread by its place among all of them. The texts
//! themselves are not part of the repository.

use serde::Deserialize;

use crate::experiment::Failure;

/// The threads by their numbers in claims.
const FILES: [(&str, &str); 5] = [
    ("000", include_str!("../threads/000.toml")),
    ("001", include_str!("../threads/001.toml")),
    ("002", include_str!("../threads/002.toml")),
    ("003", include_str!("../threads/003.toml")),
    ("004", include_str!("../threads/004.toml")),
];
/// How the reason begins where a claim would be possible.
const NOT_TRIED: &str = "not tried";

/// A thread.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Thread {
    /// What it is about.
    pub subject: String,
    /// How many numbers it has.
    pub numbers: u32,
    figures: Vec<Figures>,
}

/// Some of its numbers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Figures {
    /// Their places, from 1: `1-4, 7`.
    at: String,
    /// The claim that has them.
    claim: Option<String>,
    /// As they are printed.
    #[serde(default)]
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "a test compares them with the claim")
    )]
    printed: String,
    /// Why no claim has them.
    why: Option<String>,
}

/// How many figures of a thread there are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Count {
    /// In claims.
    pub in_claims: u32,
    /// Those that could have one.
    pub not_tried: u32,
    /// Dates, code, machines, quotations.
    pub without: u32,
}

/// The thread of a number.
///
/// # Errors
/// [`Failure::Run`] for a file that says something else.
pub fn thread(number: &str) -> Result<Option<Thread>, Failure> {
    let Some((_, text)) = FILES.iter().find(|(name, _)| *name == number) else {
        return Ok(None);
    };
    let read = toml::from_str(text);
    read.map(Some)
        .map_err(|error| Failure::Run(format!("lab/threads/{number}.toml: {error}")))
}

/// All threads by number.
///
/// # Errors
/// [`Failure::Run`] for a file that says something else.
pub fn all() -> Result<Vec<(&'static str, Thread)>, Failure> {
    let mut all = Vec::new();
    for (number, _) in FILES {
        all.extend(thread(number)?.map(|thread| (number, thread)));
    }
    Ok(all)
}

impl Figures {
    /// The places, in the order in which they are written.
    fn places(&self) -> Result<Vec<u32>, String> {
        let mut places = Vec::new();
        for part in self.at.split(',').map(str::trim) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| text.parse::<u32>().map_err(|_| format!("{part:?}"));
            let (first, last) = (number(first)?, number(last)?);
            // More numbers than any thread has.
            if last < first || last - first > 100_000 {
                return Err(format!("{part:?}"));
            }
            places.extend(first..=last);
        }
        Ok(places)
    }
}

impl Thread {
    /// How many figures have a claim.
    ///
    /// # Errors
    /// [`Failure::Run`] for places that are no numbers.
    pub fn count(&self) -> Result<Count, Failure> {
        let mut count = Count::default();
        for figures in &self.figures {
            let places = figures.places().map_err(Failure::Run)?;
            let number = u32::try_from(places.len()).unwrap_or(u32::MAX);
            let kind = match (&figures.claim, &figures.why) {
                (Some(_), _) => &mut count.in_claims,
                (None, Some(why)) if why.starts_with(NOT_TRIED) => &mut count.not_tried,
                _ => &mut count.without,
            };
            *kind = kind.saturating_add(number);
        }
        Ok(count)
    }

    /// The reasons of the figures that have no claim, and how many they are.
    ///
    /// # Errors
    /// [`Failure::Run`] for places that are no numbers.
    pub fn reasons(&self) -> Result<Vec<(&str, usize)>, Failure> {
        let mut reasons = Vec::new();
        for figures in &self.figures {
            if let Some(why) = &figures.why {
                let places = figures.places().map_err(Failure::Run)?;
                reasons.push((why.as_str(), places.len()));
            }
        }
        Ok(reasons)
    }
}

/// One line for all threads.
///
/// # Errors
/// [`Failure::Run`] for a file that says something else.
pub fn summary() -> Result<String, Failure> {
    let (mut sum, mut numbers) = (Count::default(), 0);
    for (_, thread) in all()? {
        let count = thread.count()?;
        numbers += thread.numbers;
        sum.in_claims += count.in_claims;
        sum.not_tried += count.not_tried;
        sum.without += count.without;
    }
    Ok(format!(
        "{numbers} numbers are printed in five threads: {} are in claims, {} are not tried, \
         {} are no results (dates, code, machines, set-up, quotations)",
        sum.in_claims, sum.not_tried, sum.without
    ))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::PathBuf;

    use super::*;
    use crate::registry;

    /// The numbers of a text: digits, with points and commas between digits.
    fn numbers(text: &str) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        let mut now = String::new();
        let mut chars = text.chars().peekable();
        while let Some(char) = chars.next() {
            let next_is_digit = chars.peek().is_some_and(char::is_ascii_digit);
            let is_inside = matches!(char, '.' | ',') && !now.is_empty() && next_is_digit;
            if char.is_ascii_digit() || is_inside {
                now.push(char);
            } else if !now.is_empty() {
                all.push(std::mem::take(&mut now));
            }
        }
        all.extend((!now.is_empty()).then_some(now));
        all
    }

    fn plain(number: &str) -> String {
        number.replace([',', '.'], "")
    }

    #[test]
    fn every_number_is_in_a_claim_or_says_why_not() {
        for (number, thread) in all().unwrap() {
            let mut seen = BTreeSet::new();
            for figures in &thread.figures {
                for place in figures.places().unwrap() {
                    assert!(seen.insert(place), "{number}: {place} is there twice");
                }
                let is_one = figures.claim.is_some() != figures.why.is_some();
                assert!(is_one, "{number}: {}", figures.at);
            }
            assert_eq!(seen, (1..=thread.numbers).collect(), "{number}");
        }
    }

    #[test]
    fn a_claim_has_the_figures_that_are_said_to_be_in_it() {
        let claims = registry::claims().unwrap();
        for (number, thread) in all().unwrap() {
            for figures in &thread.figures {
                let Some(name) = &figures.claim else { continue };
                let claim = claims.iter().find(|claim| claim.name == *name).unwrap();
                assert_eq!(claim.thread.as_deref(), Some(number), "{name}");
                let file = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
                let file = file.join(format!("claims/{name}.toml"));
                let text = fs::read_to_string(file).unwrap();
                let has: BTreeSet<_> = numbers(&text).iter().map(|n| plain(n)).collect();
                let printed = numbers(&figures.printed.replace(' ', ";"));
                assert_eq!(printed.len(), figures.places().unwrap().len(), "{name}");
                for figure in printed {
                    assert!(has.contains(&plain(&figure)), "{name} lacks {figure}");
                }
            }
        }
    }

    /// The texts themselves, where a machine has them: the variable names their folder.
    #[test]
    fn the_numbers_are_those_of_the_texts() {
        let Some(folder) = std::env::var_os("UEXT4_THREADS") else {
            println!("skipped: UEXT4_THREADS names no folder");
            return;
        };
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let number = name.get(..3).unwrap_or_default();
            let Some(thread) = thread(number).unwrap() else {
                continue;
            };
            let bytes = fs::read(&path).unwrap();
            let text = String::from_utf8_lossy(&bytes);
            let all = numbers(&text);
            assert_eq!(all.len(), thread.numbers as usize, "{name}");
            for figures in thread.figures.iter().filter(|f| f.claim.is_some()) {
                let places = figures.places().unwrap();
                let found: Vec<_> = places.iter().map(|at| &all[*at as usize - 1]).collect();
                let printed: Vec<_> = figures.printed.split_whitespace().collect();
                assert_eq!(found, printed, "{name}");
            }
        }
    }

    #[test]
    fn numbers_are_found_in_any_text() {
        assert_eq!(
            numbers("a1.5, 2,000/s. ext4 3.x ---,7"),
            ["1.5", "2,000", "4", "3", "7"]
        );
    }
}
