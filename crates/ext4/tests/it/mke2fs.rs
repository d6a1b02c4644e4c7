//! Images that mke2fs fills from a directory, over the features that change what lies where.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

pub use crate::made::mke2fs;
use crate::tree::{Oracle, assert_equal, of_host, of_image, open};

/// Fills a directory with one of everything that needs no privilege.
pub fn make_source(root: &Path) {
    fs::create_dir_all(root.join("a/deep/er/dir")).unwrap();
    fs::write(root.join("empty"), b"").unwrap();
    fs::write(root.join("tiny"), b"hello\n").unwrap();
    fs::write(root.join("small"), vec![b'x'; 100]).unwrap();
    for (name, len) in [("odd", 70_001), ("large", 3_000_000)] {
        let data: Vec<u8> = (0..len).map(|i: usize| (i * 7 + i / 251) as u8).collect();
        fs::write(root.join("a").join(name), data).unwrap();
    }
    sparse(&root.join("a/sparse"));
    let many = root.join("many");
    fs::create_dir(&many).unwrap();
    for i in 0..1500 {
        let name = format!("a name that is rather long, to fill blocks quickly {i}");
        fs::write(many.join(name), format!("{i}")).unwrap();
    }
    symlink("tiny", root.join("short link")).unwrap();
    symlink("x".repeat(59), root.join("link59")).unwrap();
    symlink("x".repeat(60), root.join("link60")).unwrap();
    symlink("y/".repeat(400), root.join("long link")).unwrap();
    fs::hard_link(root.join("tiny"), root.join("a/hard")).unwrap();
    fs::set_permissions(root.join("small"), fs::Permissions::from_mode(0o4751)).unwrap();
    for (file, name, len) in [
        ("tiny", "user.small", 3),
        ("tiny", "user.mid", 700),
        ("a", "user.on.dir", 20),
    ] {
        let value = vec![b'v'; len];
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::lsetxattr(root.join(file), name, &value, flags).unwrap();
    }
}

/// Data here and there, holes between, one of them at the end.
fn sparse(path: &Path) {
    use std::os::unix::fs::FileExt;
    let file = fs::File::create(path).unwrap();
    for at in [0u64, 9_000, 300_000, 5_000_000, 20_000_000] {
        file.write_all_at(&[at as u8 | 1; 5_000], at).unwrap();
    }
    file.set_len(30_000_000).unwrap();
}

fn compare(size: &str, arguments: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let (source, image) = (dir.path().join("source"), dir.path().join("image"));
    make_source(&source);
    mke2fs(&image, arguments, Some(&source), size);
    let mut found = of_image(&open(&image), Oracle::Source);
    assert!(found.remove(&b"lost+found"[..]).is_some());
    let mut expected = of_host(&source, Oracle::Source);
    // mke2fs leaves the root's own attributes as it made them.
    for tree in [&mut expected, &mut found] {
        tree.remove(&b""[..]);
    }
    assert_equal(&expected, &found, &arguments.join(" "));
}

macro_rules! images {
    ($($name:ident: $size:literal $($argument:literal)*;)*) => {$(
        #[test]
        fn $name() {
            compare($size, &[$($argument),*]);
        }
    )*};
}

images! {
    ext2: "64M" "-t" "ext2";
    ext3: "64M" "-t" "ext3";
    ext4: "64M" "-t" "ext4";
    ext2_1k: "64M" "-t" "ext2" "-b" "1024";
    ext4_1k: "64M" "-t" "ext4" "-b" "1024";
    ext4_64k: "256M" "-t" "ext4" "-b" "65536";
    small_inodes: "64M" "-t" "ext4" "-I" "128";
    large_inodes: "64M" "-t" "ext4" "-I" "1024";
    no_filetype: "64M" "-t" "ext2" "-O" "^filetype";
    no_checksums: "64M" "-t" "ext4" "-O" "^metadata_csum,uninit_bg";
    no_64bit: "64M" "-t" "ext4" "-O" "^64bit";
    checksum_seed: "64M" "-t" "ext4" "-O" "metadata_csum_seed";
    ea_inode: "64M" "-t" "ext4" "-O" "ea_inode";
    bigalloc: "256M" "-t" "ext4" "-O" "bigalloc" "-C" "65536";
    bigalloc_1k: "64M" "-t" "ext4" "-b" "1024" "-O" "bigalloc" "-C" "16384";
    meta_bg: "64M" "-t" "ext4" "-O" "meta_bg,^resize_inode" "-b" "1024";
    sparse_super2: "64M" "-t" "ext4" "-O" "sparse_super2" "-b" "1024";
    large_dir: "64M" "-t" "ext4" "-O" "large_dir";
    quota: "64M" "-t" "ext4" "-O" "quota,project";
    orphan_file: "64M" "-t" "ext4" "-O" "orphan_file";
    no_flex: "64M" "-t" "ext4" "-O" "^flex_bg" "-g" "8192";
}
