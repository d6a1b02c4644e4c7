//! Sets of extended attributes, each stored once: most files of a tree have none or share theirs.

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::Error;

/// One attribute: full name and value, both as `getxattr` has them.
pub type Xattr = (Vec<u8>, Vec<u8>);

/// Number of a set in `XattrSets`; 0 is the empty one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct XattrSet(u32);

/// All sets of a tree.
#[derive(Debug)]
pub struct XattrSets {
    sets: Vec<Arc<[Xattr]>>,
    numbers: HashMap<Arc<[Xattr]>, u32>,
}

impl Default for XattrSets {
    fn default() -> Self {
        let empty: Arc<[Xattr]> = Arc::from([]);
        Self {
            sets: vec![Arc::clone(&empty)],
            numbers: HashMap::from([(empty, 0)]),
        }
    }
}

impl XattrSets {
    /// The number of this set; the order given does not matter, and of equal names the last counts.
    pub fn intern(&mut self, mut xattrs: Vec<Xattr>) -> Result<XattrSet, Error> {
        if xattrs.is_empty() {
            return Ok(XattrSet::default());
        }
        // Reversed, so that the stable sort and dedup keep the last of equal names.
        xattrs.reverse();
        xattrs.sort_by(|a, b| a.0.cmp(&b.0));
        xattrs.dedup_by(|a, b| a.0 == b.0);
        if let Some(&number) = self.numbers.get(xattrs.as_slice()) {
            return Ok(XattrSet(number));
        }
        let number = u32::try_from(self.sets.len()).map_err(|_| Error::TooMany {
            what: "different sets of extended attributes",
            limit: u64::from(u32::MAX),
        })?;
        let set: Arc<[Xattr]> = xattrs.into();
        self.sets.push(Arc::clone(&set));
        self.numbers.insert(set, number);
        Ok(XattrSet(number))
    }

    /// Number of different sets.
    pub fn len(&self) -> usize {
        self.sets.len()
    }

    /// The attributes of a set, sorted by name.
    pub fn get(&self, set: XattrSet) -> &[Xattr] {
        // OK to index: only `intern` makes numbers, and sets are never removed.
        &self.sets[set.0 as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn x(name: &str, value: &str) -> Xattr {
        (name.into(), value.into())
    }

    #[test]
    fn equal_sets_are_one() {
        let mut sets = XattrSets::default();
        let a = sets
            .intern(vec![x("user.b", "2"), x("user.a", "1")])
            .unwrap();
        let b = sets
            .intern(vec![x("user.a", "1"), x("user.b", "2")])
            .unwrap();
        assert_eq!(a, b);
        assert_eq!(sets.intern(vec![]).unwrap(), XattrSet::default());
        assert_eq!(sets.get(a), [x("user.a", "1"), x("user.b", "2")]);
        assert!(sets.get(XattrSet::default()).is_empty());
    }

    #[test]
    fn the_last_of_equal_names_counts() {
        let mut sets = XattrSets::default();
        let set = sets
            .intern(vec![x("user.a", "1"), x("user.a", "2")])
            .unwrap();
        assert_eq!(sets.get(set), [x("user.a", "2")]);
    }
}
