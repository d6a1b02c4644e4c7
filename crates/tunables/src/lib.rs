//! Options that a user sets by name, as behind `mount -o`: numbers, switches, words and texts.
//!
//! A subsystem declares one table of [`Tunable`]s over its options: name, range or words, unit and
//! one line of help. [`set`] is the only parser and [`TunableError`] the only error; [`describe`]
//! makes the rows that help texts and documents show.

use std::fmt;
use std::ops::RangeInclusive;

/// Most characters of a user's text that an error repeats.
const SHOWN_MAX: usize = 64;

/// An option of `T`.
#[derive(Debug)]
pub struct Tunable<T: 'static> {
    /// As users write it.
    pub name: &'static str,
    /// What it may be, and where it is stored.
    pub value: Value<T>,
    /// Unit of a number, in the plural; empty if it has none.
    pub unit: &'static str,
    /// What it does, in one line.
    pub help: &'static str,
}

/// What an option may be. A `get` that returns `None` stands for a default that depends on the file
/// system or the machine.
#[derive(Debug)]
pub enum Value<T: 'static> {
    /// `name=NUMBER`.
    Number {
        /// What it may be, both ends included.
        range: RangeInclusive<u64>,
        /// 0 is accepted although it lies outside of the range.
        or_zero: bool,
        /// Reads it.
        get: fn(&T) -> Option<u64>,
        /// Stores it.
        set: fn(&mut T, u64),
    },
    /// `name`, `noname`, `name=1` and `name=0`.
    Switch {
        /// Reads it.
        get: fn(&T) -> bool,
        /// Stores it.
        set: fn(&mut T, bool),
    },
    /// `name=WORD`.
    Word {
        /// What it may be.
        words: &'static [&'static str],
        /// Reads it.
        get: fn(&T) -> Option<&'static str>,
        /// Stores the word of this index.
        set: fn(&mut T, usize),
    },
    /// `name` alone.
    Flag {
        /// Does what it stands for.
        set: fn(&mut T),
    },
    /// `name=TEXT`, in a form of its own.
    Text {
        /// The form, as a help text shows it.
        form: &'static str,
        /// Stores it, or says what is wrong with it.
        set: fn(&mut T, &str) -> Result<(), String>,
    },
}

/// An option cannot have this value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{option}: {why}")]
pub struct TunableError {
    /// The option as the user wrote it, cut to 64 characters.
    pub option: String,
    /// What is wrong, or what it may be.
    pub why: String,
}

impl TunableError {
    /// An error that repeats the beginning of a user's option.
    pub fn new(option: &str, why: impl fmt::Display) -> Self {
        Self {
            option: shown(option),
            why: why.to_string(),
        }
    }
}

/// The beginning of a user's text, short enough for an error: 64 characters.
pub fn shown(text: &str) -> String {
    text.chars().take(SHOWN_MAX).collect()
}

/// Sets one option as users write it. Returns false if the table has none of this name.
///
/// # Errors
/// [`TunableError`], which says what the option may be; then nothing has changed.
pub fn set<T>(table: &[Tunable<T>], options: &mut T, option: &str) -> Result<bool, TunableError> {
    let (name, value) = match option.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (option, None),
    };
    if let Some(tunable) = table.iter().find(|tunable| tunable.name == name) {
        let stored = tunable.store(options, value);
        return stored.map_or_else(|why| Err(TunableError::new(option, why)), |()| Ok(true));
    }
    let off = option.strip_prefix("no").and_then(|off| {
        table.iter().find_map(|tunable| match tunable.value {
            Value::Switch { set, .. } if tunable.name == off => Some(set),
            _ => None,
        })
    });
    if let Some(set) = off {
        set(options, false);
    }
    Ok(off.is_some())
}

/// Refuses the numbers that a program stored out of their ranges.
///
/// # Errors
/// [`TunableError`] for the first of them.
pub fn check<T>(table: &[Tunable<T>], options: &T) -> Result<(), TunableError> {
    table.iter().try_for_each(|tunable| match &tunable.value {
        Value::Number { get, .. } => match get(options) {
            Some(number) if !tunable.value.has(number) => {
                let option = format!("{}={number}", tunable.name);
                Err(TunableError::new(&option, tunable.must()))
            }
            _ => Ok(()),
        },
        _ => Ok(()),
    })
}

/// What a help text or a document shows of one option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// As users write it: `name=N`, `[no]name`, `name=WORD`, `name`.
    pub usage: String,
    /// The name alone.
    pub name: &'static str,
    /// What it may be, with the unit; empty for what has no value.
    pub values: String,
    /// The unit of a number; empty if it has none.
    pub unit: &'static str,
    /// What it is by default; `None`: that depends on the file system or the machine.
    pub default: Option<String>,
    /// What it does, in one line.
    pub help: &'static str,
}

/// The options of one subject, as a help text or a document shows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// What they are about.
    pub title: &'static str,
    /// One row an option.
    pub rows: Vec<Row>,
}

/// A row for each option of a table; `defaults` are the options as they are if none is set.
pub fn describe<T>(table: &[Tunable<T>], defaults: &T) -> Vec<Row> {
    table.iter().map(|tunable| tunable.row(defaults)).collect()
}

impl<T> Value<T> {
    /// Whether a number may have this value.
    fn has(&self, number: u64) -> bool {
        match self {
            Self::Number { range, or_zero, .. } => {
                range.contains(&number) || *or_zero && number == 0
            }
            _ => false,
        }
    }
}

impl<T> Tunable<T> {
    /// A number.
    pub const fn number(
        name: &'static str,
        range: RangeInclusive<u64>,
        unit: &'static str,
        help: &'static str,
        get: fn(&T) -> Option<u64>,
        set: fn(&mut T, u64),
    ) -> Self {
        let value = Value::Number {
            range,
            or_zero: false,
            get,
            set,
        };
        Self {
            name,
            value,
            unit,
            help,
        }
    }

    /// The same number, which may be 0 as well.
    pub const fn or_zero(mut number: Self) -> Self {
        if let Value::Number { or_zero, .. } = &mut number.value {
            *or_zero = true;
        }
        number
    }

    /// A switch.
    pub const fn switch(
        name: &'static str,
        help: &'static str,
        get: fn(&T) -> bool,
        set: fn(&mut T, bool),
    ) -> Self {
        Self {
            name,
            value: Value::Switch { get, set },
            unit: "",
            help,
        }
    }

    /// One of several words.
    pub const fn word(
        name: &'static str,
        words: &'static [&'static str],
        help: &'static str,
        get: fn(&T) -> Option<&'static str>,
        set: fn(&mut T, usize),
    ) -> Self {
        Self {
            name,
            value: Value::Word { words, get, set },
            unit: "",
            help,
        }
    }

    /// A name without a value.
    pub const fn flag(name: &'static str, help: &'static str, set: fn(&mut T)) -> Self {
        Self {
            name,
            value: Value::Flag { set },
            unit: "",
            help,
        }
    }

    /// A text in a form of its own.
    pub const fn text(
        name: &'static str,
        form: &'static str,
        help: &'static str,
        set: fn(&mut T, &str) -> Result<(), String>,
    ) -> Self {
        Self {
            name,
            value: Value::Text { form, set },
            unit: "",
            help,
        }
    }

    fn store(&self, options: &mut T, value: Option<&str>) -> Result<(), String> {
        match (&self.value, value) {
            (Value::Number { set, .. }, Some(text)) => match text.parse() {
                Ok(number) if self.value.has(number) => set(options, number),
                _ => return Err(self.must()),
            },
            (Value::Switch { set, .. }, None | Some("1")) => set(options, true),
            (Value::Switch { set, .. }, Some("0")) => set(options, false),
            (Value::Word { words, set, .. }, Some(text)) => {
                let index = words.iter().position(|word| *word == text);
                set(options, index.ok_or_else(|| self.must())?);
            }
            (Value::Flag { set }, None) => set(options),
            (Value::Text { set, .. }, Some(text)) => set(options, text)?,
            _ => return Err(self.must()),
        }
        Ok(())
    }

    fn must(&self) -> String {
        match &self.value {
            Value::Flag { .. } => "takes no value".to_owned(),
            _ => format!("must be {}", self.values()),
        }
    }

    /// What it may be, in words.
    fn values(&self) -> String {
        match &self.value {
            Value::Number {
                range,
                or_zero: zero,
                ..
            } => {
                let zero = if *zero { "0, or " } else { "" };
                let space = if self.unit.is_empty() { "" } else { " " };
                let (min, max) = (range.start(), range.end());
                format!("{zero}{min} to {max}{space}{}", self.unit)
            }
            Value::Switch { .. } => "0 or 1".to_owned(),
            Value::Word { words, .. } => match words.split_last() {
                Some((last, [])) => (*last).to_owned(),
                Some((last, others)) => format!("{} or {last}", others.join(", ")),
                None => String::new(),
            },
            Value::Flag { .. } => String::new(),
            Value::Text { form, .. } => (*form).to_owned(),
        }
    }

    fn row(&self, defaults: &T) -> Row {
        let name = self.name;
        let (usage, default) = match &self.value {
            Value::Number { get, .. } => {
                (format!("{name}=N"), get(defaults).map(|n| n.to_string()))
            }
            Value::Switch { get, .. } => {
                let default = if get(defaults) { "on" } else { "off" };
                (format!("[no]{name}"), Some(default.to_owned()))
            }
            Value::Word { get, .. } => {
                let default = get(defaults).map(str::to_owned);
                (format!("{name}=WORD"), default)
            }
            Value::Flag { .. } => (name.to_owned(), None),
            Value::Text { form, .. } => (format!("{name}={form}"), None),
        };
        Row {
            usage,
            name,
            values: self.values(),
            unit: self.unit,
            default,
            help: self.help,
        }
    }
}

/// A [`Tunable::number`] that a field of an unsigned type holds.
#[macro_export]
macro_rules! number {
    ($name:literal, $field:ident, $range:expr, $unit:literal, $help:literal $(,)?) => {
        $crate::Tunable::number(
            $name,
            $range,
            $unit,
            $help,
            |options| Some(options.$field.into()),
            // Fits: the range is within the field's type.
            |options, value| options.$field = value.try_into().unwrap_or_default(),
        )
    };
}

/// A [`Tunable::switch`] that a field of type `bool` holds.
#[macro_export]
macro_rules! switch {
    ($name:literal, $field:ident, $help:literal $(,)?) => {
        $crate::Tunable::switch(
            $name,
            $help,
            |options| options.$field,
            |options, on| options.$field = on,
        )
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq)]
    struct Options {
        few: u32,
        many: u32,
        rare: u64,
        fast: bool,
        color: usize,
        path: String,
    }

    const COLORS: &[&str] = &["red", "green", "blue"];
    const TABLE: &[Tunable<Options>] = &[
        number!("few", few, 1..=8, "pages", "A few pages"),
        number!("many", many, 0..=u32::MAX as u64, "", "Many"),
        Tunable::or_zero(Tunable::number(
            "rare",
            100..=200,
            "ms",
            "Rare",
            |_| None,
            |options, value| options.rare = value,
        )),
        switch!("fast", fast, "Fast"),
        Tunable::word(
            "color",
            COLORS,
            "The color",
            |options| COLORS.get(options.color).copied(),
            |options, index| options.color = index,
        ),
        Tunable::flag("reset", "Everything again", |options| {
            *options = Options::default();
        }),
        Tunable::text("path", "PATH", "Where", |options, text| {
            if text.is_empty() {
                return Err("an empty path".to_owned());
            }
            options.path = text.to_owned();
            Ok(())
        }),
    ];

    #[test]
    fn options_are_set_by_name() {
        let mut options = Options::default();
        let list = "few=8,many=4294967295,rare=0,rare=100,fast,color=blue,path=/a=b";
        for option in list.split(',') {
            assert_eq!(set(TABLE, &mut options, option), Ok(true), "{option}");
        }
        let path = "/a=b".to_owned();
        let expected = Options {
            few: 8,
            many: u32::MAX,
            rare: 100,
            fast: true,
            color: 2,
            path,
        };
        assert_eq!(options, expected);
        check(TABLE, &options).unwrap();
        for (option, is_fast) in [("nofast", false), ("fast=1", true), ("fast=0", false)] {
            assert_eq!(set(TABLE, &mut options, option), Ok(true));
            assert_eq!(options.fast, is_fast);
        }
        for unknown in ["fewer=1", "nofew", "nofast=1", "noreset", ""] {
            assert_eq!(set(TABLE, &mut options, unknown), Ok(false), "{unknown}");
        }
        assert_eq!(set(TABLE, &mut options, "reset"), Ok(true));
        assert_eq!(options, Options::default());
    }

    #[test]
    fn an_error_says_what_the_option_may_be_and_changes_nothing() {
        let mut options = Options::default();
        for (option, says) in [
            ("few=0", "few=0: must be 1 to 8 pages"),
            ("few=9", "few=9: must be 1 to 8 pages"),
            ("few", "few: must be 1 to 8 pages"),
            ("few=", "few=: must be 1 to 8 pages"),
            ("few=-1", "few=-1: must be 1 to 8 pages"),
            (
                "many=4294967296",
                "many=4294967296: must be 0 to 4294967295",
            ),
            ("rare=99", "rare=99: must be 0, or 100 to 200 ms"),
            ("fast=2", "fast=2: must be 0 or 1"),
            ("color=pink", "color=pink: must be red, green or blue"),
            ("reset=1", "reset=1: takes no value"),
            ("path=", "path=: an empty path"),
            ("path", "path: must be PATH"),
        ] {
            let error = set(TABLE, &mut options, option).unwrap_err();
            assert_eq!(error.to_string(), says);
        }
        assert_eq!(options, Options::default());
        let long = format!("few={}", "x".repeat(1000));
        let error = set(TABLE, &mut options, &long).unwrap_err().to_string();
        assert!(error.len() < 120, "{error}");
        let error = check(TABLE, &options).unwrap_err().to_string();
        assert_eq!(error, "few=0: must be 1 to 8 pages");
    }

    #[test]
    fn a_row_has_what_a_help_text_shows() {
        let rows = describe(TABLE, &Options::default());
        let shown: Vec<String> = rows
            .into_iter()
            .map(|row| {
                let default = row.default.unwrap_or_default();
                format!("{} | {} | {default} | {}", row.usage, row.values, row.help)
            })
            .collect();
        assert_eq!(
            shown,
            [
                "few=N | 1 to 8 pages | 0 | A few pages",
                "many=N | 0 to 4294967295 | 0 | Many",
                "rare=N | 0, or 100 to 200 ms |  | Rare",
                "[no]fast | 0 or 1 | off | Fast",
                "color=WORD | red, green or blue | red | The color",
                "reset |  |  | Everything again",
                "path=PATH | PATH |  | Where",
            ]
        );
    }
}
