//! Which kind of preallocation serves a request: none, the file's own, or that for small files.

use crate::normalize::Rule;
use crate::{DataRequest, Options, Search};

/// What a request is served from, beyond what is kept for the file already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strategy {
    /// Taken as it is; nothing is kept.
    Exact,
    /// A window of its own; the rest is kept for the file.
    File,
    /// What is kept for small files.
    Locality,
}

impl Strategy {
    /// That of a request on a device whose free runs have `average_run` blocks on average.
    pub(crate) fn of(request: &DataRequest, options: &Options, average_run: u64) -> Self {
        if !options.preallocate || options.normalize.rule == Rule::Exact {
            return Self::Exact;
        }
        if request.unwritten {
            // Windows of such requests are their own matter; nothing small is fallocated.
            return Self::File;
        }
        let end = u64::from(request.lblk.0) + u64::from(request.len);
        let size = request.size.max(end);
        let is_small = match options.normalize.rule {
            // All of what it still needs at once, or else a window for it.
            Rule::Predict if request.closed => end >= size && size <= options.group_prealloc.into(),
            _ => size <= options.stream_req.into(),
        };
        if options.normalize.rule == Rule::Predict {
            // What a closed file still needs is known: all that is small lies side by side.
            // Where free runs are short, it fills those that fit it.
            return if is_small && request.closed && average_run < options.group_prealloc.into() {
                Self::Exact
            } else if is_small && options.group_prealloc > 0 {
                Self::Locality
            } else {
                Self::File
            };
        }
        // The last part of a file that nobody can write to.
        let is_last = request.closed && end >= size;
        match options.search {
            // 3.15 kept nothing for these, small or not; since 2022 small ones lie side by side.
            Search::Linear if is_last => Self::Exact,
            _ if is_small && options.group_prealloc > 0 => Self::Locality,
            _ if is_last => Self::Exact,
            _ => Self::File,
        }
    }
}
