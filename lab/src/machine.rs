//! The machine's page of a folder of records: what ran, on what, and how noisy it was.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::experiment::Failure;
use crate::noise::Noise;
use crate::record::{FORMAT, Folder};

/// The file of a folder of records that holds the machine's page.
pub const FILE: &str = "machine.json";
/// What a difference must exceed, as a part of one, where no noise was measured.
pub const NOISE_IF_UNKNOWN: f64 = 0.05;

/// What is known of this machine and of the program, with the noise measured.
pub fn page(noise: &Noise) -> Value {
    json!({
        "format": FORMAT,
        "date": date(),
        "machine": name(),
        "processors": processors(),
        "model": model(),
        "memory_kb": memory_kb(),
        "kernel": read("/proc/sys/kernel/osrelease"),
        "governor": read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "commit": commit(),
        "version": env!("CARGO_PKG_VERSION"),
        "rustc": env!("LAB_RUSTC"),
        "profile": env!("LAB_PROFILE"),
        "mke2fs": first_line("mke2fs", &["-V"]),
        "noise": noise,
    })
}

/// What a difference of the samples in a folder must exceed, as a part of one.
///
/// # Errors
/// [`Failure::Run`] for a page that cannot be read.
pub fn noise_floor(folder: &Folder) -> Result<f64, Failure> {
    let page = folder.json(FILE)?;
    let floor = page.and_then(|page| page.pointer("/noise/floor").and_then(Value::as_f64));
    Ok(floor.unwrap_or(NOISE_IF_UNKNOWN))
}

/// The name of the folder that records of today and of this machine belong into.
pub fn folder_name() -> String {
    format!("{}-{}", date(), name())
}

/// The source that is run, as git names it; `+` marks changes that are not committed.
pub fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return String::new();
    };
    match git(&["status", "--porcelain", "--untracked-files=no"]).as_deref() {
        Some("") => commit,
        _ => format!("{commit}+"),
    }
}

/// Today, as `2014-06-30`.
fn date() -> String {
    let now = std::time::SystemTime::now();
    let today = jiff::Timestamp::try_from(now).map(|now| now.to_string());
    today.map_or_else(|_| "unknown".to_owned(), |text| text[..10].to_owned())
}

/// How many processors and of which make: `2x-amd-epyc`.
fn name() -> String {
    let model = model();
    let words = model.split(|c: char| !c.is_ascii_alphanumeric());
    let is_name = |word: &&str| word.len() > 2 && word.chars().all(|c| c.is_ascii_alphabetic());
    let mut name = format!("{}x", processors());
    for word in words.filter(is_name).take(2) {
        name.push('-');
        name.push_str(&word.to_ascii_lowercase());
    }
    name
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn model() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    field(&text, "model name").to_owned()
}

fn memory_kb() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    field(&text, "MemTotal").split(' ').next()?.parse().ok()
}

/// What stands after `name` and a colon in a text of such lines.
fn field<'a>(text: &'a str, name: &str) -> &'a str {
    let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
    let found = pairs.find(|(key, _)| key.trim() == name);
    found.map_or("", |(_, value)| value.trim())
}

/// A file of one line, if it can be read.
fn read(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned())
}

/// The first line that a program prints, on either output.
fn first_line(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let all = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&all);
    text.lines().next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_named_by_day_and_machine() {
        let name = folder_name();
        assert_eq!(name.as_bytes()[4], b'-');
        assert!(name.contains("x") && !name.contains(['/', ' ']), "{name}");
    }

    #[test]
    fn a_field_is_what_stands_after_the_colon() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n";
        assert_eq!(field(text, "model name"), "Some CPU @ 2 GHz");
        assert_eq!(field(text, "MemTotal"), "");
    }
}
