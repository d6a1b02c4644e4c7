//! Hashes of files, each made once however many names a file has.

use std::collections::HashMap;

use sha2::{Digest, Sha256};
use uext4::{Damage, Error, Image, Inode};
use uext4_ondisk::Ino;

use uext4_image::budget::Budget;
use uext4_image::walk::InodeSet;

use crate::show::size_text;

/// Bytes read at once.
const PIECE: usize = 1 << 20;
/// Hashes remembered for further names, at most: some 32 MiB. Beyond, files are hashed again.
const REMEMBERED_MAX: usize = 1 << 19;

/// Most bytes of holes that are hashed in all files together, a minute's work: an image of a few
/// blocks may have files of holes that take years. More only for users who say how large files are
/// that they want hashed.
const HOLES_MAX: u64 = 64 << 30;

/// A SHA-256.
pub type Sum = [u8; 32];

/// Hashes files.
#[derive(Debug)]
pub struct Sums {
    piece: Vec<u8>,
    budget: Budget,
    /// Files with one link that were hashed.
    single: InodeSet,
    /// Files with more, and the names still to come.
    linked: HashMap<Ino, (Sum, u16)>,
    /// Bytes of holes that may be hashed, and that may still be.
    holes_max: u64,
    holes_left: u64,
}

impl Sums {
    /// None yet. With `largest`, the size of the largest file that is to be hashed, holes of so
    /// many bytes are hashed, too.
    pub fn new(fs: &Image, largest: Option<u64>) -> Self {
        let holes_max = largest.map_or(HOLES_MAX, |largest| largest.max(HOLES_MAX));
        Self {
            piece: vec![0; PIECE],
            budget: Budget::new(fs),
            single: InodeSet::default(),
            linked: HashMap::new(),
            holes_max,
            holes_left: holes_max,
        }
    }

    /// What is said of a file with more holes than may still be hashed.
    pub fn too_many_holes(&self) -> String {
        format!(
            "holes of more than {} in the files up to this one; with --hash-max SIZE those of a \
             file of this size are hashed",
            size_text(self.holes_max)
        )
    }

    /// The hash of a file's contents; `None` for one with more holes than may still be hashed.
    ///
    /// # Errors
    /// Damage of the file, one with more names than links included; device errors.
    pub fn of(&mut self, fs: &Image, inode: &Inode) -> Result<Option<Sum>, Error> {
        if inode.links < 2 {
            if !self.single.insert(inode.ino) {
                return Err(Error::Corrupt(Damage::InodeField {
                    ino: inode.ino,
                    field: "i_links_count",
                    value: inode.links.into(),
                    why: "it has more names than that",
                }));
            }
            return self.hash(fs, inode);
        }
        if let Some((sum, left)) = self.linked.get_mut(&inode.ino) {
            let sum = *sum;
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.linked.remove(&inode.ino);
            }
            return Ok(Some(sum));
        }
        let Some(sum) = self.hash(fs, inode)? else {
            return Ok(None);
        };
        if self.linked.len() < REMEMBERED_MAX {
            self.linked.insert(inode.ino, (sum, inode.links - 1));
        }
        Ok(Some(sum))
    }

    /// Holes are hashed without being read.
    fn hash(&mut self, fs: &Image, inode: &Inode) -> Result<Option<Sum>, Error> {
        let mut hasher = Sha256::new();
        let mut at = 0;
        for range in fs.data_ranges(inode)? {
            let range = range?;
            self.budget.take(inode, &range)?;
            if !self.zeroes(&mut hasher, range.start.saturating_sub(at)) {
                return Ok(None);
            }
            at = range.start;
            while at < range.end {
                let want = self.piece.len().min((range.end - at) as usize);
                let got = fs.read_at(inode, at, &mut self.piece[..want])?;
                if got == 0 {
                    break;
                }
                hasher.update(&self.piece[..got]);
                at += got as u64;
            }
        }
        match self.zeroes(&mut hasher, inode.size.saturating_sub(at)) {
            true => Ok(Some(hasher.finalize().into())),
            false => Ok(None),
        }
    }

    /// Hashes a hole; false if there are too many.
    fn zeroes(&mut self, hasher: &mut Sha256, count: u64) -> bool {
        let Some(left) = self.holes_left.checked_sub(count) else {
            return false;
        };
        self.holes_left = left;
        zeroes(hasher, count);
        true
    }
}

fn zeroes(hasher: &mut Sha256, mut count: u64) {
    const ZEROES: [u8; 4096] = [0; 4096];
    while count > 0 {
        let some = count.min(ZEROES.len() as u64);
        hasher.update(&ZEROES[..some as usize]);
        count -= some;
    }
}
