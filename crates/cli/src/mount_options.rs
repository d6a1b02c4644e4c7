//! What `mount -o` takes: options of every mount, of ext4, and of this program.
//!
//! Those with an effect are tables of [`Tunable`](uext4_tunables::Tunable)s, here (`tables`) and in
//! the engine; `names` lists the options of ext4 that have none, or are refused with the reason.

pub mod default_options;
mod names;
mod options;
mod tables;
#[cfg(test)]
mod tests;

use uext4::OpenOptions;
use uext4::tuning::AccessTimes;
use uext4_tunables::{Subject, TunableError, describe, set};

use crate::failure::{Exit, Failure};
use names::{OF_OTHERS, Refused};

pub use names::{NOTED, REFUSED, WITHOUT_EFFECT};
pub use options::{MountOptions, Xattrs};

/// What mount(8) copies from the kernel's options of a mount.
const SHOWN_BY_THE_KERNEL: [&str; 4] = ["user_id", "group_id", "max_read", "blksize"];

/// Reads lists of options, separated by commas; later ones win.
///
/// # Errors
/// A wrong command line: an unknown or refused option, a value out of its range, two options that
/// exclude each other.
pub fn parse(lists: &[String]) -> Result<MountOptions, Failure> {
    let mut options = MountOptions::default();
    let all = lists.iter().flat_map(|list| list.split(','));
    options.remount = all.clone().any(|option| option == "remount");
    for option in all.filter(|option| !option.is_empty()) {
        set_one(&mut options, option)?;
    }
    if options.owners.fakeroot && options.allow_other {
        return wrong("fakeroot", "with allow_other everybody could do everything");
    }
    if options.superblock_kib.is_some() && !options.read_only {
        return wrong(
            "sb",
            "only with ro: `uext4 repair` restores a lost superblock",
        );
    }
    if !options.opens && options.access_times() == AccessTimes::Strict {
        return wrong(
            "noopen",
            "with strictatime each file that is opened is a request",
        );
    }
    let together = options.engine.check();
    together.map_err(|error| Failure::new(Exit::Usage, format_args!("-o {error}")))?;
    Ok(options)
}

/// All options with an effect, with their defaults, by subject.
pub fn subjects() -> Vec<Subject> {
    let defaults = MountOptions::default();
    let own = tables::ALL.iter().map(|(title, table)| Subject {
        title,
        rows: describe(table, &defaults),
    });
    own.chain(OpenOptions::describe()).collect()
}

fn set_one(options: &mut MountOptions, option: &str) -> Result<(), Failure> {
    if set_of_mount(options, option)? || WITHOUT_EFFECT.contains(&option) {
        return Ok(());
    }
    // It has no value, or one.
    let option = match option {
        "noxattr" => "noxattr=yes",
        option => option,
    };
    let name = option.split_once('=').map_or(option, |(name, _)| name);
    if options.remount && SHOWN_BY_THE_KERNEL.contains(&name) {
        return Ok(());
    }
    let refused = REFUSED
        .iter()
        .find(|refused| [option, name].contains(&refused.name));
    if let Some(refused) = refused {
        return wrong(option, refused.why);
    }
    let is_it = |noted: &&Refused| [option, name].contains(&noted.name);
    if let Some(noted) = NOTED.iter().find(is_it) {
        let note = format!("-o {option} has no effect: {}", noted.why);
        options.notes.push(note);
        return Ok(());
    }
    if OF_OTHERS.contains(&name) || option.starts_with("x-") || option.starts_with("X-") {
        return Ok(());
    }
    for (_, table) in tables::ALL {
        if set(table, options, option).or_else(failed)? {
            return Ok(());
        }
    }
    match options.engine.option(option) {
        Ok(()) => Ok(()),
        Err(uext4::Error::UnknownOption { .. }) => wrong(
            option,
            "no such option; `uext4 mount --help-options` lists them",
        ),
        Err(error) => Err(Failure::new(Exit::Usage, format_args!("-o {error}"))),
    }
}

/// What mount(8) does for other file systems: `X-mount.mkdir[=MODE]`. Returns whether it is that.
///
/// Fails for a mode that is none.
fn set_of_mount(options: &mut MountOptions, option: &str) -> Result<bool, Failure> {
    let (name, value) = option.split_once('=').unwrap_or((option, "755"));
    if !["X-mount.mkdir", "x-mount.mkdir"].contains(&name) {
        return Ok(false);
    }
    match u32::from_str_radix(value.trim_matches('"'), 8) {
        Ok(mode) if mode <= 0o7777 => options.make_directory = Some(mode),
        _ => wrong(option, "must be a mode in octal digits")?,
    }
    Ok(true)
}

/// A failure of the command line.
fn wrong<T>(option: &str, why: &str) -> Result<T, Failure> {
    failed(TunableError::new(option, why))
}

fn failed<T>(error: TunableError) -> Result<T, Failure> {
    Err(Failure::new(Exit::Usage, format_args!("-o {error}")))
}
