//! The value of `-O`: a list of features to set or, with `^`, to clear.

use uext4_ondisk::features::{Compat, FeatureBit, Features, Incompat, RoCompat, feature_by_name};

use crate::Error;

/// One item of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureEdit {
    /// `none`: clears everything.
    Clear,
    /// Sets the bit (`true`) or clears it.
    Set(FeatureBit, bool),
}

/// What can be set at creation; everything else in the feature table comes and goes by itself.
pub(crate) const SETTABLE: Features = Features {
    compat: Compat::HAS_JOURNAL
        .union(Compat::RESIZE_INODE)
        .union(Compat::DIR_INDEX)
        .union(Compat::EXT_ATTR)
        .union(Compat::SPARSE_SUPER2)
        .union(Compat::FAST_COMMIT)
        .union(Compat::STABLE_INODES)
        .union(Compat::ORPHAN_FILE),
    incompat: Incompat::FILETYPE
        .union(Incompat::EXTENTS)
        .union(Incompat::META_BG)
        .union(Incompat::FLEX_BG)
        .union(Incompat::EA_INODE)
        .union(Incompat::MMP)
        .union(Incompat::BIT64)
        .union(Incompat::INLINE_DATA)
        .union(Incompat::ENCRYPT)
        .union(Incompat::CASEFOLD)
        .union(Incompat::CSUM_SEED)
        .union(Incompat::LARGEDIR),
    ro_compat: RoCompat::LARGE_FILE
        .union(RoCompat::HUGE_FILE)
        .union(RoCompat::DIR_NLINK)
        .union(RoCompat::EXTRA_ISIZE)
        .union(RoCompat::SPARSE_SUPER)
        .union(RoCompat::GDT_CSUM)
        .union(RoCompat::BIGALLOC)
        .union(RoCompat::QUOTA)
        .union(RoCompat::METADATA_CSUM)
        .union(RoCompat::PROJECT)
        .union(RoCompat::VERITY),
};

impl FeatureEdit {
    /// Applies the edit.
    pub fn apply(self, features: &mut Features) {
        match self {
            Self::Clear => *features = Features::default(),
            Self::Set(bit, true) => bit.insert_into(features),
            Self::Set(bit, false) => bit.remove_from(features),
        }
    }
}

/// Parses the value of `-O`: names separated by commas or blanks, `^` before those to clear.
///
/// # Errors
/// [`Error::UnknownName`] for a name that is not a feature, or one that cannot be set at creation.
pub fn parse_features(list: &str) -> Result<Vec<FeatureEdit>, Error> {
    let names = list.split([',', ' ']).filter(|name| !name.is_empty());
    names.map(parse_one).collect()
}

fn parse_one(item: &str) -> Result<FeatureEdit, Error> {
    if item == "none" {
        return Ok(FeatureEdit::Clear);
    }
    let (name, on) = match item.strip_prefix(['^', '-']) {
        Some(name) => (name, false),
        None => (item.strip_prefix('+').unwrap_or(item), true),
    };
    let bit = feature_by_name(name).map(|feature| feature.bit);
    bit.filter(|bit| bit.is_in(SETTABLE))
        .map(|bit| FeatureEdit::Set(bit, on))
        .ok_or_else(|| Error::UnknownName {
            flag: "-O",
            name: item.to_owned(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_edits_in_order() {
        let mut features = Features::default();
        for edit in parse_features("extents,64bit ^extent").unwrap() {
            edit.apply(&mut features);
        }
        assert_eq!(features.incompat, Incompat::BIT64);
        for edit in parse_features("none").unwrap() {
            edit.apply(&mut features);
        }
        assert_eq!(features, Features::default());
    }

    #[test]
    fn unknown_and_unsettable_names_are_refused() {
        for name in ["nonsense", "needs_recovery", "compression", "journal_dev"] {
            let err = parse_features(name).unwrap_err();
            assert!(err.to_string().contains(name), "{err}");
        }
    }
}
