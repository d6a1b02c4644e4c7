//! Seventeen small images of different features, filled by the kernel; some with a log that is to
//! be replayed, with orphans, or with fast commits.
//!
//! The kernel gives each file a random generation number, and the time of the day. So the images
//! are stored, and a seed is the same mutant in every run, on every machine, without a mount.
//! The tests of this module's neighbour `making` make them, and compare that with what is stored.

use std::sync::OnceLock;

use super::Atlas;
pub use super::kinds::{ALL, BaseKind, Left};
use crate::damage::{Contents, Survey};

/// Bytes of the largest image.
const BYTES_MAX: usize = 16 << 20;

macro_rules! stored {
    ($($name:literal)*) => {
        &[$((
            $name,
            include_bytes!(concat!("../../images/", $name, ".img.zst")).as_slice(),
        )),*]
    };
}

/// The images by their names. What the kernel makes of one whose log waits is `NAME.settled`.
const STORED: &[(&str, &[u8])] = stored!(
    "ext2" "ext3" "ext3.settled" "k1" "k2" "k4" "gdt-csum" "no-csum" "inline" "bigalloc" "meta-bg"
    "quota" "ea-inode" "orphan-file" "orphan-file.settled" "orphan-list" "orphan-list.settled"
    "mmp" "fast-commit" "fast-commit.settled" "large-dir"
);

/// An image to be changed, and what is known of it.
#[derive(Debug)]
pub struct Base {
    /// Its features.
    pub kind: BaseKind,
    /// The image as it lies on the disk.
    pub survey: Survey,
    /// Its structures.
    pub atlas: Atlas,
    /// What its files hold once the log is replayed and the orphans are deleted.
    pub contents: Contents,
}

impl Base {
    /// Of the bytes of an image, and of what becomes of it where its log waits.
    #[track_caller]
    pub(super) fn new(kind: BaseKind, image: Vec<u8>, settled: Option<Vec<u8>>) -> Self {
        let survey = Survey::new(image);
        let contents = match settled {
            Some(settled) => Contents::new(&Survey::new(settled)),
            None => Contents::new(&survey),
        };
        Self {
            kind,
            atlas: Atlas::new(&survey),
            survey,
            contents,
        }
    }
}

/// The image of this index of [`ALL`], unpacked once in a run.
#[track_caller]
pub fn get(index: usize) -> &'static Base {
    static BASES: [OnceLock<Base>; ALL.len()] = [const { OnceLock::new() }; ALL.len()];
    BASES[index].get_or_init(|| {
        let kind = ALL[index];
        let image = stored(kind.name).unwrap_or_else(|| panic!("{} is not stored", kind.name));
        Base::new(kind, image, stored(&settled(kind.name)))
    })
}

/// The image of this name, as [`get`].
#[track_caller]
pub fn named(name: &str) -> &'static Base {
    let index = ALL.iter().position(|kind| kind.name == name);
    get(index.unwrap_or_else(|| panic!("no image {name}")))
}

/// The name that an image has when its log is replayed.
pub(super) fn settled(name: &str) -> String {
    format!("{name}.settled")
}

fn stored(name: &str) -> Option<Vec<u8>> {
    let (_, packed) = STORED.iter().find(|(stored, _)| *stored == name)?;
    // OK to unwrap: it is part of this program.
    Some(zstd::bulk::decompress(packed, BYTES_MAX).unwrap())
}
