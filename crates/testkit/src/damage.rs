//! Named kinds of damage to an image, for tests of what must find and mend it.
//!
//! A kind is a row: a name, the features that the image must have, and a function that changes the
//! bytes of the image at a place which a seed chooses. The checksums of what it changes are made
//! right again, or stay as they were: those who find damage only by its checksum, and those who
//! find it only without, are both wrong. Everything goes through the parsers and packers of the
//! format's crate, never through e2fsprogs: they are asked afterwards, whether they find the damage
//! too.
//!
//! ```text
//! images::all() ─▶ Survey ──▶ Kind::apply(sums, seed) ──▶ Damaged { bytes, hurt }
//!                    └─────▶ random::apply(seed) ──▶ bytes
//! ```
//!
//! Damage states what it may cost ([`Hurt`]): what it does not name must be there afterwards, bit
//! for bit ([`Contents`]).

pub mod images;
pub mod random;
mod survey;
mod target;

mod contents;
mod directories;
mod entries;
mod extents;
mod groups;
mod htree;
mod indirect;
mod inline;
mod inodes;
mod journal;
mod orphans;
mod quota;
mod reserved;
mod shared;
mod superblock;
mod xattrs;

pub use contents::Contents;
pub use survey::{Known, Mapped, Node, Survey};
pub use target::{Bitmap, Hurt, Leaf, Record, Target};

use target::has_features;

/// What becomes of the checksums of what is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sums {
    /// They fit the damage.
    Right,
    /// They are those of before.
    Stale,
}

/// One kind of damage.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// A stable name in kebab-case.
    pub name: &'static str,
    /// Features that the image must have, as `mke2fs -O` names them; `^` before those that it must
    /// not have.
    pub needs: &'static str,
    /// Why `e2fsck -fn` may find nothing to complain about.
    pub unseen: Option<&'static str>,
    /// Why no repair is to be expected: the damage makes it another file system.
    pub hopeless: Option<&'static str>,
    change: fn(&mut Target<'_>) -> Option<()>,
}

/// What a kind made of an image.
#[derive(Clone, Debug)]
pub struct Damaged {
    /// All of the image.
    pub bytes: Vec<u8>,
    /// What it may cost.
    pub hurt: Hurt,
}

impl Kind {
    const fn new(
        name: &'static str,
        needs: &'static str,
        change: fn(&mut Target<'_>) -> Option<()>,
    ) -> Self {
        Self {
            name,
            needs,
            unseen: None,
            hopeless: None,
            change,
        }
    }

    /// e2fsck may find nothing, and why.
    const fn unseen(self, why: &'static str) -> Self {
        Self {
            unseen: Some(why),
            ..self
        }
    }

    /// No repair is expected, and why.
    const fn hopeless(self, why: &'static str) -> Self {
        Self {
            hopeless: Some(why),
            ..self
        }
    }

    /// Damages the image at the place that the seed chooses. `None` if the image has no such
    /// place, lacks a feature, or has no sums that could be stale.
    pub fn apply(&self, image: &Survey, sums: Sums, seed: u64) -> Option<Damaged> {
        if sums == Sums::Stale && image.geometry.csum_seed.is_none() {
            return None;
        }
        if !has_features(&image.geometry, self.needs) {
            return None;
        }
        let mut target = Target::new(image, sums, seed);
        (self.change)(&mut target)?;
        (target.bytes != image.bytes).then_some(Damaged {
            bytes: target.bytes,
            hurt: target.hurt,
        })
    }
}

/// All kinds, structure by structure.
pub fn kinds() -> impl Iterator<Item = &'static Kind> {
    let tables = [
        superblock::KINDS,
        groups::KINDS,
        inodes::KINDS,
        reserved::KINDS,
        extents::KINDS,
        indirect::KINDS,
        shared::KINDS,
        directories::KINDS,
        entries::KINDS,
        htree::KINDS,
        xattrs::KINDS,
        inline::KINDS,
        quota::KINDS,
        orphans::KINDS,
        journal::KINDS,
    ];
    tables.into_iter().flatten()
}

#[cfg(test)]
mod tests;
