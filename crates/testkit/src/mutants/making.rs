//! Makes the images of mutants, by the kernel. `UEXT4_BASES=1 cargo test -p uext4-testkit images`
//! stores them anew; without it, what is stored is compared with what is made.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use uext4_ondisk::superblock::{SUPERBLOCK_OFFSET, SuperBlock};
use zerocopy::FromBytes;

use super::bases::{self, Base};
use super::kinds::{ALL, BaseKind, Left};
use super::{fill, log};
use crate::damage::{Contents, Sums, Survey, Target};
use crate::e2fsprogs::{assert_clean, e2fsck, mke2fs};
use crate::loops::{Mount, can_mount};
use crate::tools::{copy_image, scratch};

/// The first of January 2020: every machine that judges the images has a later time.
const DATE: u32 = 1_577_836_800;
/// Images of features that few kernels are built with: mke2fs fills them.
const BY_MKE2FS: [&str; 2] = ["quota", "large-dir"];
/// zstd's own scale.
const LEVEL: i32 = 19;

#[test]
fn stored_images_hold_what_the_kernel_fills_them_with() {
    if !can_mount() {
        return;
    }
    for kind in ALL {
        let dir = scratch();
        let image = match filled(*kind, dir.path()) {
            Ok(image) => image,
            Err(why) => {
                println!("skipped: {}: {why}", kind.name);
                continue;
            }
        };
        let bytes = dated(fs::read(&image).unwrap());
        let settled = (kind.left != Left::Unmounted).then(|| settled(&image));
        if std::env::var_os("UEXT4_BASES").is_some() {
            store(kind.name, &bytes);
            if let Some(settled) = &settled {
                store(&bases::settled(kind.name), settled);
            }
            continue;
        }
        let (made, stored) = (Base::new(*kind, bytes, settled), bases::named(kind.name));
        assert_same(&made.contents, &stored.contents, kind.name);
        let features = |base: &Base| base.survey.superblock.features();
        assert_eq!(features(&made), features(stored), "{}", kind.name);
    }
}

#[track_caller]
fn assert_same(made: &Contents, stored: &Contents, name: &str) {
    assert_eq!(
        made.loses(stored, stored),
        [""; 0],
        "{name}: is stored, and is not made"
    );
    assert_eq!(
        stored.loses(made, made),
        [""; 0],
        "{name}: is made, and is not stored"
    );
}

fn store(name: &str, image: &[u8]) {
    let packed = zstd::bulk::compress(image, LEVEL).unwrap();
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("images");
    fs::write(dir.join(format!("{name}.img.zst")), packed).unwrap();
}

/// What the kernel makes of an image whose log waits.
#[track_caller]
fn settled(image: &Path) -> Vec<u8> {
    drop(Mount::new(image, "rw"));
    assert_clean(image);
    fs::read(image).unwrap()
}

/// The image with the times of its superblock in the past, also in the copies that its log holds.
#[track_caller]
fn dated(image: Vec<u8>) -> Vec<u8> {
    let survey = Survey::new(image);
    let mut t = Target::new(&survey, Sums::Right, 0);
    t.superblock(date).unwrap();
    let len = survey.geometry.block_size.len();
    let place = SUPERBLOCK_OFFSET as usize;
    let copies = log::walk(&survey).unwrap_or_default().data;
    for copy in copies
        .iter()
        .filter(|data| data.home.0 as usize == place / len)
    {
        let change = &mut |block: &mut [u8]| {
            let (sb, _) = SuperBlock::mut_from_prefix(&mut block[place % len..]).unwrap();
            date(sb);
            sb.update_checksum();
        };
        copy.change(&mut t, change).unwrap();
    }
    t.bytes
}

fn date(sb: &mut SuperBlock) {
    for (low, high) in [
        (&mut sb.s_mkfs_time, &mut sb.s_mkfs_time_hi),
        (&mut sb.s_lastcheck, &mut sb.s_lastcheck_hi),
        (&mut sb.s_mtime, &mut sb.s_mtime_hi),
        (&mut sb.s_wtime, &mut sb.s_wtime_hi),
    ] {
        if low.get() != 0 {
            *low = DATE.into();
            *high = 0;
        }
    }
}

/// Makes the image of a kind in a directory.
///
/// # Errors
/// What mount(8) says if the kernel does not know its features.
#[track_caller]
fn filled(kind: BaseKind, dir: &Path) -> Result<PathBuf, String> {
    let image = dir.join("image");
    if BY_MKE2FS.contains(&kind.name) {
        let tree = dir.join("tree");
        fs::create_dir(&tree).unwrap();
        fill::plant(&tree, kind);
        format(kind, &image, Some(&tree));
        // The kernel would have hashed the large directory: so does e2fsck.
        e2fsck(&image, "-fyD");
        assert_clean(&image);
        return Ok(image);
    }
    format(kind, &image, None);
    let mount = Mount::attempt(&image, kind.mount)?;
    fill::plant(mount.path(), kind);
    fill::plant_by_kernel(mount.path(), kind);
    drop(mount);
    assert_clean(&image);
    Ok(left(kind, image))
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
fn left(kind: BaseKind, image: PathBuf) -> PathBuf {
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
