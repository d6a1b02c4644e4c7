//! The examination before the first change: growing and shrinking believe descriptors, bitmaps and
//! maps, and move by them. What is damaged would be moved to where it destroys something, and a
//! repair could no longer find out how it was.
//!
//! resize2fs asks for `e2fsck -f` where the file system was mounted since the last one. Here the
//! passes of the check are run, whatever the superblock says of earlier ones: a superblock that is
//! damaged says nothing that counts.

use std::sync::Arc;

use uext4_blockdev::BlockDevice;
use uext4_fsck::{Finding, Observer, Options, examine};

use crate::{Error, Result};

/// What is done before the first change.
#[derive(Clone, Copy)]
pub enum Examination<'a> {
    /// The file system is examined, as by `uext4 check`, and refused if it is damaged. Nothing is
    /// written before. The observer follows, and may stop it.
    First(&'a dyn Observer),
    /// It is taken for sound: what its journal and its limits forbid is still refused.
    Skipped,
}

impl Examination<'_> {
    pub(crate) fn run(self, device: &Arc<dyn BlockDevice>) -> Result<()> {
        match self {
            Self::First(observer) => must_be_sound(device, observer),
            Self::Skipped => Ok(()),
        }
    }
}

/// Fails if an examination of the file system on `device` finds anything that is more than a note.
///
/// # Errors
/// [`Error::Damaged`]; [`Error::Stopped`] if the observer stops it; [`Error::Examination`] if it
/// cannot be done.
pub fn must_be_sound(device: &Arc<dyn BlockDevice>, observer: &dyn Observer) -> Result<()> {
    let outcome = examine(device, &Options::default(), observer);
    let outcome = outcome.map_err(|error| match error {
        uext4_fsck::Error::Cancelled => Error::Stopped,
        error => Error::Examination(error),
    })?;
    if outcome.is_clean {
        return Ok(());
    }
    // A repair that was cut off is read through here, and finished before the first change.
    let is_cut = |finding: &Finding| finding.problem.info().name == "unfinished-repair";
    let is_cut = outcome.findings.iter().any(|(_, finding)| is_cut(finding));
    // Not all findings are kept.
    let summary = &outcome.summary;
    let findings = summary.findings.saturating_sub(summary.notes);
    match findings.saturating_sub(is_cut.into()) {
        0 if is_cut => Ok(()),
        findings => Err(Error::Damaged {
            findings: usize::try_from(findings).unwrap_or(usize::MAX).max(1),
        }),
    }
}
