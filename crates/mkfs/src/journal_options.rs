//! The values of `-j` and `-J`.

use crate::Error;
use crate::size::{Size, parse_size};

/// What was said about the journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalOptions {
    /// `-j`: a journal of the default size, whatever the type.
    pub wanted: bool,
    /// `size=`: MiB, the fast-commit area not included.
    pub size_mib: Option<u64>,
    /// `location=`.
    pub location: Option<Size>,
    /// `fast_commit_size=`: KiB.
    pub fast_commit_kib: Option<u64>,
}

impl JournalOptions {
    /// True if anything said implies a journal.
    pub(crate) fn wished(&self) -> bool {
        self.wanted || self.size_mib.is_some()
    }
}

/// Parses the value of `-J` over what was said before.
///
/// # Errors
/// [`Error::UnknownName`]; [`Error::Option`], also for an external journal (`device=`).
pub fn parse_journal(list: &str, options: &mut JournalOptions) -> Result<(), Error> {
    for item in list.split(',').filter(|item| !item.is_empty()) {
        let (name, value) = item.split_once('=').unwrap_or((item, ""));
        let number = |flag: &'static str| {
            value.parse::<u64>().map_err(|_| Error::Option {
                flag,
                value: value.to_owned(),
                why: "not a number",
            })
        };
        match name {
            "size" => options.size_mib = Some(number("-J size")?),
            "fast_commit_size" => {
                options.fast_commit_kib = Some(number("-J fast_commit_size")?);
            }
            "location" => options.location = Some(parse_size("-J location", value)?),
            "device" => {
                return Err(Error::Option {
                    flag: "-J device",
                    value: value.to_owned(),
                    why: "an external journal is not supported; leave it out for one in the image",
                });
            }
            _ => {
                return Err(Error::UnknownName {
                    flag: "-J",
                    name: name.to_owned(),
                });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_places() {
        let mut options = JournalOptions::default();
        parse_journal("size=4,location=1M", &mut options).unwrap();
        assert_eq!(options.size_mib, Some(4));
        assert_eq!(options.location, Some(Size::Bytes(1 << 20)));
        assert!(parse_journal("device=/dev/x", &mut options).is_err());
        assert!(parse_journal("size=x", &mut options).is_err());
    }
}
