//! Equal names in one directory.
//!
//! The keys of all names are sorted; where two are equal, and only then, the directory is read
//! again and the names of these keys are compared. The first of equal names stays. A second one
//! that names the same inode goes; one that names another gets a new name when the directory is
//! written anew, see [`crate::rebuild`].

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use rustc_hash::FxBuildHasher;
use uext4_ondisk::Ino;
use uext4_ondisk::inode::InodeFlags;

use super::entries::is_dot;
use super::index::Index;
use super::reread::{self, Seen, Spot};
use super::{Dir, Worker};
use crate::directory_list::Run;
use crate::error::Result;
use crate::finding::Finding;
use crate::problem::DirectoryProblem;

/// A name that was there before.
#[derive(Clone, Debug)]
struct Double {
    spot: Spot,
    ino: Ino,
    name: Vec<u8>,
    is_same_inode: bool,
}

impl Worker<'_, '_> {
    /// Looks for equal names in the directory whose keys were collected.
    pub(super) fn duplicates(&mut self, dir: &Dir, index: &Index, runs: &[Run]) -> Result<()> {
        self.keys.sort_unstable();
        if self.keys.windows(2).all(|pair| pair.first() != pair.last()) {
            return Ok(());
        }
        self.compare(dir, index, runs)
    }

    #[cold]
    fn compare(&mut self, dir: &Dir, index: &Index, runs: &[Run]) -> Result<()> {
        let twice: Vec<u64> = self
            .keys
            .chunk_by(|a, b| a == b)
            .filter(|equal| equal.len() > 1)
            .filter_map(|equal| equal.first().copied())
            .collect();
        let mut first: HashMap<Vec<u8>, Ino, FxBuildHasher> = HashMap::default();
        let mut doubles: Vec<Double> = Vec::new();
        reread::for_each(self.state, dir.ino, dir.source(runs), |seen: Seen<'_>| {
            let key = index.key(dir, seen.name, seen.suffix).key;
            if is_dot(seen.name) || twice.binary_search(&key).is_err() {
                return Ok(());
            }
            match first.entry(dir.folded(seen.name)) {
                Entry::Vacant(place) => {
                    place.insert(seen.ino);
                }
                Entry::Occupied(before) => doubles.push(Double {
                    spot: seen.spot,
                    ino: seen.ino,
                    name: seen.name.to_vec(),
                    is_same_inode: *before.get() == seen.ino,
                }),
            }
            Ok(())
        })?;
        for double in &doubles {
            let place = double.spot.place(dir.ino).name(&double.name);
            let finding = Finding::new(DirectoryProblem::DuplicateName, place);
            let cause = self.state.report(finding.found(double.ino.0));
            // A new name cannot be encrypted without the key.
            if double.is_same_inode || dir.has(InodeFlags::ENCRYPT) {
                reread::remove(self.state, dir.ino, dir.seed, &double.spot, cause)?;
                self.forget(dir, double.ino);
            } else {
                self.state.tree.rebuild(dir.ino, cause);
            }
        }
        Ok(())
    }
}
