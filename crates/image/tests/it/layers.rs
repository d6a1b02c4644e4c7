//! Images of several sources: layers, archives, directories, other images and single entries.

use std::fs;
use std::io::Write;
use std::path::Path;

use uext4::{FollowLast, Image, Inode};
use uext4_blockdev::{Access, FileDevice};
use uext4_image::oci::{OpenOptions, Reference};
use uext4_image::walk::{Order, Step, Walk};
use uext4_image::{
    BuildOptions, Builder, DeviceNumber, Error, Report, SingleEntry, SingleKind, Size, Source,
};
use uext4_testkit::assert_clean;

use crate::building::Place;
use crate::container::{Layout, Pack, Tar};

/// Enough that nothing of it is inside an inode.
fn large(byte: u8) -> Vec<u8> {
    (0..70_000u32).map(|i| byte ^ (i / 64) as u8).collect()
}

const SECRET: &[u8] = b"a key that a layer above has removed";

fn layers() -> Vec<Vec<u8>> {
    let base = Tar::default()
        .directory("etc")
        .file("etc/secret", &SECRET.repeat(300))
        .file("etc/kept", &large(1))
        .file("etc/replaced", &large(2))
        .file("bin/tool", &large(3));
    let middle = Tar::default()
        .file("etc/.wh.secret", b"")
        .file("etc/replaced", &large(4))
        .member(b'1', "bin/link", "bin/tool", b"");
    let top = Tar::default()
        .file("bin/tool", b"a new tool")
        .file("var/.wh..wh..opq", b"")
        .file("var/log/x", b"");
    [base, middle, top].map(Tar::finish).to_vec()
}

fn options(size: Size) -> BuildOptions {
    BuildOptions {
        size,
        ..BuildOptions::default()
    }
}

/// A file's bytes. Of one too large to be held whole, which has holes, its size and each range of
/// data after the place where it begins.
fn bytes_of(image: &Image, inode: &Inode) -> Vec<u8> {
    let read = |start: u64, end: u64| {
        let mut bytes = vec![0; (end - start) as usize];
        let len = image.read_at(inode, start, &mut bytes).unwrap();
        assert_eq!(len, bytes.len());
        bytes
    };
    if inode.size <= 64 << 20 {
        return read(0, inode.size);
    }
    let mut all = inode.size.to_le_bytes().to_vec();
    for range in image.data_ranges(inode).unwrap() {
        let range = range.unwrap();
        all.extend(range.start.to_le_bytes());
        all.extend(read(range.start, range.end));
    }
    assert!(all.len() < 64 << 20);
    all
}

/// Paths of the image with the contents of its files.
fn contents(image: &Path) -> Vec<(String, Option<Vec<u8>>)> {
    let device = FileDevice::open(image, Access::ReadOnly).unwrap();
    let image = Image::open(std::sync::Arc::new(device), &Default::default()).unwrap();
    let root = image.resolve("/", FollowLast::Yes).unwrap();
    let mut walk = Walk::new(&image, root, Order::Nested);
    let mut all = Vec::new();
    while let Some(step) = walk.step() {
        if let Step::Entry(entry) = step {
            assert!(entry.problem.is_none(), "{:?}", entry.problem);
            let inode = entry.inode.unwrap();
            let path = walk.text_path().to_owned();
            let bytes =
                (inode.file_type == uext4::FileType::Regular).then(|| bytes_of(&image, &inode));
            if path != "." && path != "lost+found" {
                all.push((path, bytes));
            }
        }
    }
    all
}

fn merged() -> Vec<(String, Option<Vec<u8>>)> {
    let file = |path: &str, bytes: Vec<u8>| (path.to_owned(), Some(bytes));
    let dir = |path: &str| (path.to_owned(), None);
    vec![
        dir("bin"),
        file("bin/link", large(3)),
        file("bin/tool", b"a new tool".to_vec()),
        dir("etc"),
        file("etc/kept", large(1)),
        file("etc/replaced", large(4)),
        dir("var"),
        dir("var/log"),
        file("var/log/x", Vec::new()),
    ]
}

fn container(place: &Place, reference: &str, options: BuildOptions) -> Result<Report, Error> {
    let reference = Reference::parse(reference.as_ref()).unwrap().unwrap();
    let mut builder = Builder::new(options);
    builder.container(&reference, &OpenOptions::default())?;
    builder.build(&place.image(), &())
}

#[test]
fn the_layers_of_a_container_image_become_one_tree_and_nothing_of_what_is_hidden_remains() {
    for size in [
        Size::Auto,
        Size::Min,
        Size::Exact(64 << 20),
        Size::Free(1 << 20),
    ] {
        let place = Place::new();
        let layout = place.path().join("layout");
        Layout::of(&layers()).write(&layout);
        let reference = format!("oci:{}", layout.display());
        container(&place, &reference, options(size)).unwrap();
        assert_clean(&place.image());
        assert_eq!(contents(&place.image()), merged(), "{size:?}");
        let image = fs::read(place.image()).unwrap();
        let found = image.windows(SECRET.len()).any(|bytes| bytes == SECRET);
        assert!(
            !found,
            "{size:?}: contents of a removed file are in the image"
        );
    }
}

#[test]
fn layers_give_the_same_bytes_however_they_are_packed() {
    let mut images = Vec::new();
    for pack in [Pack::Plain, Pack::Gzip, Pack::Zstd] {
        for size in [Size::Auto, Size::Min] {
            let place = Place::new();
            let layout_dir = place.path().join("layout");
            let mut layout = Layout::default();
            let packed: Vec<_> = layers().into_iter().map(|tar| (pack, tar)).collect();
            let image = layout.image("linux/amd64", &packed);
            layout.list(image);
            layout.write(&layout_dir);
            let reference = format!("oci:{}", layout_dir.display());
            container(&place, &reference, options(size)).unwrap();
            images.push((size, fs::read(place.image()).unwrap()));
        }
    }
    for (size, image) in &images {
        let same = images.iter().filter(|(other, _)| other == size);
        assert!(
            same.into_iter().all(|(_, other)| other == image),
            "{size:?}"
        );
    }
}

#[test]
fn a_layer_that_is_not_what_its_digest_says_leaves_no_image() {
    let place = Place::new();
    let dir = place.path().join("layout");
    let mut layout = Layout::default();
    let plain: Vec<_> = layers().into_iter().map(|tar| (Pack::Plain, tar)).collect();
    let image = layout.image("linux/amd64", &plain);
    layout.list(image);
    layout.write(&dir);
    let blobs = dir.join("blobs/sha256");
    let largest = fs::read_dir(&blobs).unwrap().map(|blob| blob.unwrap());
    let largest = largest
        .max_by_key(|blob| blob.metadata().unwrap().len())
        .unwrap();
    let mut bytes = fs::read(largest.path()).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(largest.path(), bytes).unwrap();
    let reference = format!("oci:{}", dir.display());
    for size in [Size::Auto, Size::Min] {
        let error = container(&place, &reference, options(size)).unwrap_err();
        assert!(matches!(error, Error::Container(_)), "{error}");
        assert!(error.to_string().contains("layer 1"), "{error}");
        assert!(!place.image().exists());
    }
}

#[test]
fn a_layer_without_its_end_is_taken_if_a_digest_shows_that_it_is_whole() {
    let place = Place::new();
    let mut tar = Tar::default().file("name", b"contents").finish();
    tar.truncate(tar.len() - 1024);
    Layout::of(std::slice::from_ref(&tar)).write(&place.path().join("layout"));
    let reference = format!("oci:{}", place.path().join("layout").display());
    let report = container(&place, &reference, options(Size::Auto)).unwrap();
    let [warning] = &report.warnings.shown[..] else {
        panic!("{:?}", report.warnings);
    };
    assert!(
        warning.contains("layer 1: has no end-of-archive marker"),
        "{warning}"
    );
    assert_clean(&place.image());
    // Half of an archive has a right checksum, too, where there is no digest.
    let mut builder = Builder::new(options(Size::Auto));
    builder.layer("layer", std::io::Cursor::new(tar));
    let error = builder.build(&place.image(), &()).unwrap_err();
    assert!(error.to_string().contains("cut short"), "{error}");
}

#[test]
fn an_archive_gives_the_same_bytes_from_a_file_a_pipe_and_compressed() {
    let place = Place::new();
    let tar = layers().remove(0);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(&tar).unwrap();
    let forms = [
        tar.clone(),
        gzip.finish().unwrap(),
        zstd::encode_all(&tar[..], 3).unwrap(),
    ];
    for size in [Size::Auto, Size::Min] {
        let mut images = Vec::new();
        for bytes in &forms {
            let path = place.path().join("a.tar");
            fs::write(&path, bytes).unwrap();
            let mut builder = Builder::new(options(size));
            builder.source(Source::TarFile(path));
            builder.build(&place.image(), &()).unwrap();
            images.push(fs::read(place.image()).unwrap());
            let mut builder = Builder::new(options(size));
            builder.archive("in memory", std::io::Cursor::new(bytes.clone()));
            builder.build(&place.image(), &()).unwrap();
            images.push(fs::read(place.image()).unwrap());
        }
        assert!(images.windows(2).all(|pair| pair[0] == pair[1]), "{size:?}");
    }
}

#[test]
fn an_image_is_the_base_of_another() {
    let place = Place::populated();
    let base = place.path().join("base.img");
    let mut builder = Builder::new(BuildOptions::default());
    builder.source(Source::Directory(place.tree()));
    builder.build(&base, &()).unwrap();
    for size in [Size::Auto, Size::Min] {
        let mut builder = Builder::new(options(size));
        builder.source(Source::Image(base.clone()));
        builder.archive("above", std::io::Cursor::new(layers().remove(0)));
        builder.build(&place.image(), &()).unwrap();
        assert_clean(&place.image());
        let mut want = contents(&base);
        for (path, bytes) in contents(&place.image()) {
            if path.starts_with("etc") || path.starts_with("bin") {
                continue;
            }
            let at = want.iter().position(|(other, _)| *other == path).unwrap();
            assert_eq!(want.remove(at).1, bytes, "{path}");
        }
        assert!(want.is_empty(), "{want:?}");
    }
}

#[test]
fn single_entries_are_made_and_removed() {
    let place = Place::new();
    let source = place.path().join("source");
    fs::write(&source, large(9)).unwrap();
    let single = |path: &str, kind| {
        Source::Single(SingleEntry {
            path: path.into(),
            kind,
            mode: None,
            uid: 7,
            gid: 8,
        })
    };
    let number = DeviceNumber { major: 1, minor: 3 };
    for size in [Size::Auto, Size::Min] {
        let mut builder = Builder::new(options(size));
        builder.archive("below", std::io::Cursor::new(layers().remove(0)));
        builder
            .source(single("etc", SingleKind::Removed))
            .source(single("etc/new", SingleKind::Directory))
            .source(single("etc/new/file", SingleKind::File(source.clone())))
            .source(single("etc/link", SingleKind::Symlink(b"new".to_vec())))
            .source(single("dev/null", SingleKind::CharDevice(number)));
        builder.build(&place.image(), &()).unwrap();
        assert_clean(&place.image());
        let all = contents(&place.image());
        let paths: Vec<&str> = all.iter().map(|(path, _)| path.as_str()).collect();
        let want = [
            "bin",
            "bin/tool",
            "dev",
            "dev/null",
            "etc",
            "etc/link",
            "etc/new",
            "etc/new/file",
        ];
        assert_eq!(paths, want);
        assert_eq!(all[7].1.as_deref(), Some(&large(9)[..]));
    }
}

#[test]
fn a_directory_file_is_read_where_it_came_from_when_its_name_is_gone() {
    let place = Place::new();
    fs::create_dir(place.tree().join("d")).unwrap();
    fs::write(place.tree().join("d/f"), large(5)).unwrap();
    let above = [
        Tar::default().member(b'1', "link", "d/f", b"").finish(),
        Tar::default().file(".wh.d", b"").finish(),
    ];
    for size in [Size::Auto, Size::Min] {
        let mut builder = Builder::new(options(size));
        builder.source(Source::Directory(place.tree()));
        for layer in above.clone() {
            builder.layer("above", std::io::Cursor::new(layer));
        }
        builder.build(&place.image(), &()).unwrap();
        assert_clean(&place.image());
        assert_eq!(
            contents(&place.image()),
            [("link".to_owned(), Some(large(5)))]
        );
    }
}

#[test]
fn contents_of_a_removed_file_may_have_been_written_behind_the_end_of_the_image() {
    let place = Place::new();
    let huge = vec![0x5A; 40 << 20];
    let below = Tar::default().file("kept", &large(1)).file("huge", &huge);
    let mut builder = Builder::new(BuildOptions::default());
    builder.archive("below", std::io::Cursor::new(below.finish()));
    let above = Tar::default().file(".wh.huge", b"").finish();
    builder.layer("above", std::io::Cursor::new(above));
    let report = builder.build(&place.image(), &()).unwrap();
    assert!(report.image_bytes < huge.len() as u64);
    assert_clean(&place.image());
    assert_eq!(
        contents(&place.image()),
        [("kept".to_owned(), Some(large(1)))]
    );
}

#[test]
fn pieces_of_a_sparse_file_may_share_its_first_block() {
    use std::os::unix::fs::FileExt;
    let place = Place::new();
    let file = fs::File::create(place.tree().join("sparse")).unwrap();
    file.set_len(1 << 20).unwrap();
    file.write_all_at(b"abc", 0).unwrap();
    file.write_all_at(b"def", 12_288).unwrap();
    let mut wanted = options(Size::Auto);
    let size = uext4_ondisk::BlockSize::from_bytes(65536).unwrap();
    wanted.mkfs.block_size = Some(uext4_mkfs::BlockSizeWish::Exactly(size));
    let mut builder = Builder::new(wanted);
    builder.source(Source::Directory(place.tree()));
    builder.build(&place.image(), &()).unwrap();
    assert_clean(&place.image());
    let bytes = fs::read(place.tree().join("sparse")).unwrap();
    assert_eq!(
        contents(&place.image()),
        [("sparse".to_owned(), Some(bytes))]
    );
}

#[test]
fn groups_that_are_in_no_flex_group_are_filled_too() {
    for size in [Size::Auto, Size::Exact(600 << 20)] {
        let place = Place::populated();
        let mut wanted = options(size);
        wanted.mkfs.groups_per_flex = Some(1);
        let mut builder = Builder::new(wanted);
        builder.source(Source::Directory(place.tree()));
        builder.build(&place.image(), &()).unwrap();
        assert_clean(&place.image());
    }
}

#[test]
fn a_sparse_file_of_too_many_blocks_is_refused_by_its_name() {
    let place = Place::new();
    let (offset, size) = (1u64 << 44, (1u64 << 44) + 512);
    let mut records = String::new();
    for (key, value) in [
        ("GNU.sparse.size", size.to_string()),
        ("GNU.sparse.map", format!("{offset},512")),
    ] {
        let rest = key.len() + value.len() + 3;
        let len = (rest..)
            .find(|len| len - len.to_string().len() == rest)
            .unwrap();
        records += &format!("{len} {key}={value}\n");
    }
    let tar = Tar::default()
        .member(b'x', "pax", "", records.as_bytes())
        .file("far", &[1; 512])
        .finish();
    for size in [Size::Auto, Size::Min] {
        let mut builder = Builder::new(options(size));
        builder.archive("a.tar", std::io::Cursor::new(tar.clone()));
        let error = builder.build(&place.image(), &()).unwrap_err();
        assert!(matches!(error, Error::Entry { .. }), "{error}");
        assert!(error.to_string().contains("far"), "{error}");
    }
}

#[test]
fn the_files_of_an_order_come_first_in_the_image() {
    let place = Place::new();
    let tar = Tar::default()
        .file("a", &large(1))
        .file("d/b", &large(2))
        .file("c", &large(3))
        .member(b'1', "link", "d/b", b"")
        .finish();
    for size in [Size::Auto, Size::Min] {
        let mut wanted = options(size);
        wanted.order = ["/c", "link", "missing", "c"]
            .map(|p| p.as_bytes().to_vec())
            .to_vec();
        let mut builder = Builder::new(wanted);
        builder.archive("a.tar", std::io::Cursor::new(tar.clone()));
        let report = builder.build(&place.image(), &()).unwrap();
        assert!(
            report.warnings.shown[0].starts_with("missing:"),
            "{:?}",
            report.warnings
        );
        assert_clean(&place.image());
        assert_eq!(contents(&place.image()).len(), 5);
        let image = fs::read(place.image()).unwrap();
        let at = |byte: u8| {
            let wanted = large(byte);
            image
                .chunks(4096)
                .position(|block| wanted.starts_with(block))
                .unwrap()
        };
        assert!(at(3) < at(2) && at(2) < at(1), "{size:?}");
    }
}

#[test]
fn what_does_not_fit_names_the_layer_that_brought_it() {
    let place = Place::new();
    for (sizes, named) in [
        ([1 << 20, 1 << 20, 9 << 20], "layer 3"),
        ([1 << 20, 9 << 20, 10], "layer 2"),
    ] {
        let mut builder = Builder::new(options(Size::Exact(8 << 20)));
        for (i, size) in sizes.into_iter().enumerate() {
            let tar = Tar::default()
                .file(&format!("f{i}"), &vec![1; size])
                .finish();
            builder.layer(format!("layer {}", i + 1), std::io::Cursor::new(tar));
        }
        let error = builder.build(&place.image(), &()).unwrap_err();
        let Error::DoesNotFit { need, have, .. } = error else {
            panic!("{error}");
        };
        let text = error.to_string();
        assert!(text.contains(named), "{text}");
        assert!(
            text.contains(&format!("{} too many", need - have)),
            "{text}"
        );
        assert!(!place.image().exists());
    }
}

#[test]
fn very_many_inodes_in_an_image_of_a_given_size_make_groups_smaller_and_contents_move() {
    let place = Place::new();
    let mut tar = Tar::default().file("large", &large(7));
    for i in 0..40_000 {
        tar = tar.file(
            &format!("d{}/{i}", i % 40),
            if i % 1000 == 0 { b"few" } else { b"" },
        );
    }
    let mut wanted = options(Size::Exact(64 << 20));
    let size = uext4_ondisk::BlockSize::from_bytes(4096).unwrap();
    wanted.mkfs.block_size = Some(uext4_mkfs::BlockSizeWish::Exactly(size));
    let mut builder = Builder::new(wanted);
    builder.archive("a.tar", std::io::Cursor::new(tar.finish()));
    let report = builder.build(&place.image(), &()).unwrap();
    assert_eq!(report.image_bytes, 64 << 20);
    assert_clean(&place.image());
    let all = contents(&place.image());
    assert_eq!(all.len(), 40_041);
    let file = |path: &str| {
        all.iter()
            .find(|(other, _)| other == path)
            .unwrap()
            .1
            .clone()
    };
    assert_eq!(file("large"), Some(large(7)));
    assert_eq!(file("d0/2000"), Some(b"few".to_vec()));
}
