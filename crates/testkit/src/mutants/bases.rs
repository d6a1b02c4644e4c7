//! Seventeen small images of different features, filled by the kernel; some with a log that is to
//! be replayed, with orphans, or with fast commits.

use std::fs::{self, File};
use std::path::Path;
use std::sync::OnceLock;

pub use super::kinds::{ALL, BaseKind, Left};
use super::{Atlas, fill};
use crate::damage::{Contents, Survey};
use crate::e2fsprogs::{assert_clean, e2fsck, mke2fs};
use crate::loops::{Mount, can_mount};
use crate::tools::{copy_image, scratch};

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

/// The image of this index of [`ALL`], made once in a run; `None`, and said why, if this machine
/// cannot make it.
pub fn get(index: usize) -> Option<&'static Base> {
    static BASES: [OnceLock<Option<Base>>; ALL.len()] = [const { OnceLock::new() }; ALL.len()];
    let base = BASES[index].get_or_init(|| {
        let base = make(ALL[index]);
        if base.is_none() {
            println!("skipped: {}: needs a mount by the kernel", ALL[index].name);
        }
        base
    });
    base.as_ref()
}

/// The image of this name, as [`get`].
#[track_caller]
pub fn named(name: &str) -> Option<&'static Base> {
    let index = ALL.iter().position(|kind| kind.name == name);
    get(index.unwrap_or_else(|| panic!("no image {name}")))
}

#[track_caller]
fn make(kind: BaseKind) -> Option<Base> {
    let dir = scratch();
    let image = filled(kind, dir.path())?;
    let survey = Survey::new(fs::read(&image).unwrap());
    if kind.left != Left::Unmounted {
        // The kernel completes what waits.
        drop(Mount::new(&image, "rw"));
    }
    assert_clean(&image);
    let contents = Contents::new(&Survey::new(fs::read(&image).unwrap()));
    let atlas = Atlas::new(&survey);
    Some(Base {
        kind,
        survey,
        atlas,
        contents,
    })
}

/// Makes the image of a kind in a directory.
#[track_caller]
fn filled(kind: BaseKind, dir: &Path) -> Option<std::path::PathBuf> {
    let image = dir.join("image");
    if can_mount() {
        format(kind, &image, None);
        if let Ok(mount) = Mount::attempt(&image, kind.mount) {
            fill::plant(mount.path(), kind);
            fill::plant_by_kernel(mount.path(), kind);
            drop(mount);
            assert_clean(&image);
            return Some(left(kind, image));
        }
    }
    if kind.left != Left::Unmounted {
        return None;
    }
    println!("{}: filled by mke2fs", kind.name);
    let tree = dir.join("tree");
    fs::create_dir(&tree).unwrap();
    fill::plant(&tree, kind);
    format(kind, &image, Some(&tree));
    // The kernel would have hashed the large directory: so does e2fsck.
    e2fsck(&image, "-fyD");
    assert_clean(&image);
    Some(image)
}

/// Makes the file system, with the contents of a directory if there is one.
#[track_caller]
fn format(kind: BaseKind, image: &Path, tree: Option<&Path>) {
    // mke2fs leaves out an empty end.
    let file = File::create(image).unwrap();
    file.set_len(kind.kib << 10).unwrap();
    let extended = format!(
        "lazy_itable_init=0,lazy_journal_init=0,hash_seed=01234567-89ab-4def-8123-000000000000,{}",
        kind.extended
    );
    let mut options: Vec<&str> = kind.options.split_whitespace().collect();
    options.extend([
        "-U",
        "01234567-89ab-4def-8123-456789abcdef",
        "-E",
        &extended,
    ]);
    options.extend(["-N", "256", "-m", "0"]);
    if let Some(tree) = tree {
        options.extend(["-d", tree.to_str().unwrap()]);
    }
    mke2fs(image, options, &format!("{}k", kind.kib));
}

/// The image as it is to be left: as it is, or a copy of it in use.
#[track_caller]
fn left(kind: BaseKind, image: std::path::PathBuf) -> std::path::PathBuf {
    if kind.left == Left::Unmounted {
        return image;
    }
    let mount = Mount::new(&image, kind.mount);
    let open = match kind.left {
        Left::FastCommits => fill::change_fast(mount.path()),
        Left::Orphans => fill::change(mount.path(), 5),
        _ => fill::change(mount.path(), 0),
    };
    let copy = copy_image(&image, "left");
    drop(open);
    copy
}
