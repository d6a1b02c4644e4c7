//! Things that are many or long: names, links, levels, holes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::{fs, io};

use uext4::bulk::FileContent;
use uext4::{Error, NewInode};
use uext4_blockdev::{BlockDevice, Error as DeviceError};
use uext4_fsck::Options;

use super::maker::{Maker, attributes, bytes, e2fsck};
use uext4_testkit::{Mount, can_mount};

#[test]
fn a_directory_of_100000_files() {
    let mut maker = Maker::new("128M", &["-t", "ext4", "-N", "110000"]);
    maker.dir(b"many");
    for i in 0..100_000u32 {
        let path = format!("many/{:x}", i.wrapping_mul(0x9E37_79B9));
        maker.make(path.as_bytes(), NewInode::File, &attributes(0o644, i));
    }
    maker.check("100,000 files");
    // The names are in the order of their hashes, far from that of their inodes, and 25 MiB of
    // inodes do not fit into the memory: each block is read about once all the same.
    let device = Arc::new(Counting {
        bytes: fs::read(maker.image()).unwrap(),
        read: AtomicU64::new(0),
    });
    let examined: Arc<dyn BlockDevice> = Arc::<Counting>::clone(&device);
    let options = Options {
        memory: 4 << 20,
        ..Options::default()
    };
    let outcome = uext4_fsck::examine(&examined, &options, &()).unwrap();
    assert!(outcome.findings.is_empty(), "{:?}", outcome.findings);
    assert!(outcome.summary.inodes > 100_000);
    let read = device.read.load(Relaxed);
    assert!(read < 64 << 20, "{read} bytes were read");
}

/// An image in memory that counts the bytes read of it.
#[derive(Debug)]
struct Counting {
    bytes: Vec<u8>,
    read: AtomicU64,
}

impl BlockDevice for Counting {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        DeviceError::check_range(offset, buf.len() as u64, self.len())?;
        let at = offset as usize;
        buf.copy_from_slice(&self.bytes[at..at + buf.len()]);
        self.read.fetch_add(buf.len() as u64, Relaxed);
        Ok(())
    }

    fn write_at(&self, _: u64, _: &[u8]) -> Result<(), DeviceError> {
        Err(DeviceError::ReadOnly)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) -> Result<(), DeviceError> {
        Err(DeviceError::ReadOnly)
    }
}

#[test]
fn htrees_of_two_and_three_levels() {
    // 1 KiB leaves of four names each: over 123 of them, and over 123 · 126.
    for (size, arguments, count) in [
        (
            "64M",
            &["-t", "ext4", "-b", "1024", "-N", "4000"][..],
            2_000,
        ),
        (
            "96M",
            &["-t", "ext4", "-b", "1024", "-N", "64", "-O", "large_dir"],
            70_000,
        ),
    ] {
        let mut maker = Maker::new(size, arguments);
        maker.dir(b"d");
        maker.file(b"d/file", b"x", &attributes(0o644, 1));
        for i in 0..count {
            let mut name = format!("d/{i} ");
            name.extend(std::iter::repeat_n('n', 220 - name.len()));
            if i % 30_000 == 0 && i > 0 {
                // One inode does not count that many links.
                maker.file(format!("d/file{i}").as_bytes(), b"x", &attributes(0o644, 1));
            }
            let old = format!("d/file{}", i / 30_000 * 30_000);
            let old = if i < 30_000 { "d/file" } else { &old };
            maker.link_uncounted(name.as_bytes(), old.as_bytes());
        }
        maker.check("levels");
    }
}

/// Names of equal hash: the end of each, and what they begin with. Found by trying.
const COLLISIONS: [&str; 14] = [
    "aaaaaa", "bDVwNw", "cA25CV", "d5q91A", "gdSTTy", "gKv4wX", "gOFIcO", "hrRPgq", "i7YZYX",
    "j-nfLR", "qvVMPl", "sJCbuL", "ucnkmF", "wNK_B8",
];

#[test]
fn equal_hashes_go_on_in_the_next_leaf() {
    let arguments = ["-t", "ext4", "-b", "1024", "-N", "400"];
    let mut maker = Maker::tuned("64M", &arguments, &["-E", "hash_alg=legacy"]);
    maker.dir(b"d");
    for i in 0..100 {
        let path = format!("d/{i}");
        maker.make(path.as_bytes(), NewInode::File, &attributes(0o644, i));
    }
    // Four of them fill a block.
    for end in COLLISIONS {
        let path = format!("d/{}{end}", "c".repeat(210));
        maker.make(path.as_bytes(), NewInode::File, &attributes(0o644, 1));
    }
    maker.check("equal hashes");
}

#[test]
fn the_kernel_goes_on_where_the_creator_ended() {
    if !can_mount() {
        return;
    }
    for arguments in [
        &["-t", "ext4", "-b", "1024", "-N", "20000"][..],
        &[
            "-t",
            "ext4",
            "-b",
            "4096",
            "-N",
            "20000",
            "-O",
            "^metadata_csum,uninit_bg",
        ],
        &["-t", "ext2", "-b", "1024", "-N", "20000"],
    ] {
        let mut maker = Maker::new("128M", arguments);
        maker.dir(b"many");
        for i in 0..4_000u32 {
            let path = format!("many/{:x}", i.wrapping_mul(0x9E37_79B9));
            maker.file(path.as_bytes(), path.as_bytes(), &attributes(0o644, i));
        }
        maker.finish_and_fsck("before");
        let mount = Mount::new(&maker.image(), "rw");
        let dir = mount.path().join("many");
        for i in 0..3_000u32 {
            fs::write(dir.join(format!("new {i}")), vec![i as u8; 3_000]).unwrap();
            fs::remove_file(dir.join(format!("{:x}", i.wrapping_mul(0x9E37_79B9)))).unwrap();
        }
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 4_000);
        drop(mount);
        e2fsck(&maker.image(), &arguments.join(" "));
    }
}

#[test]
fn twenty_thousand_hard_links() {
    let mut maker = Maker::new("64M", &["-t", "ext4"]);
    maker.dir(b"links");
    maker.file(b"file", &bytes(3, 10_000), &attributes(0o644, 1));
    for i in 0..20_000 {
        maker.link_uncounted(format!("links/{i}").as_bytes(), b"file");
    }
    maker.check("20,000 links");
}

#[test]
fn links_end_at_65000() {
    let mut maker = Maker::new("64M", &["-t", "ext4"]);
    let file = maker.file(b"file", b"x", &attributes(0o644, 1));
    for i in 0..64_999 {
        maker.link_uncounted(format!("{i}").as_bytes(), b"file");
    }
    let root = uext4::Ino::ROOT;
    let one_more = maker.creator().link(root, b"one more", file);
    assert!(matches!(one_more, Err(Error::TooManyLinks)));
    maker.check("65,000 links");
}

#[test]
fn more_subdirectories_than_links_are_counted() {
    let mut maker = Maker::new(
        "128M",
        &["-t", "ext4", "-b", "1024", "-N", "66000", "-I", "128"],
    );
    maker.dir(b"d");
    for i in 0..65_100 {
        maker.dir(format!("d/{i}").as_bytes());
    }
    maker.check("65,100 directories");
    let mut maker = Maker::new(
        "128M",
        &[
            "-t",
            "ext3",
            "-b",
            "1024",
            "-N",
            "66000",
            "-O",
            "^dir_nlink",
        ],
    );
    maker.dir(b"d");
    for i in 0..64_999 {
        maker.dir(format!("d/{i}").as_bytes());
    }
    let finished = maker.creator.take().unwrap().finish();
    assert!(matches!(finished, Err(Error::TooManyLinks)));
}

#[test]
fn deep_directories() {
    let mut maker = Maker::new("64M", &["-t", "ext4", "-N", "4000"]);
    let mut path = Vec::new();
    for level in 0..500 {
        if level > 0 {
            path.push(b'/');
        }
        path.extend_from_slice(b"dir");
        maker.dir(&path);
    }
    path.extend_from_slice(b"/file");
    maker.file(&path, b"deep down", &attributes(0o600, 5));
    maker.check("500 levels");
}

#[test]
fn sparse_files_stay_sparse() {
    for arguments in [&["-t", "ext4"][..], &["-t", "ext2", "-b", "1024"]] {
        let mut maker = Maker::new("64M", arguments);
        let free = maker.creator().free_blocks();
        let mut data = vec![0; 50_000_000];
        let mut ranges = Vec::new();
        for i in 0..200u64 {
            let start = i * 250_000 + 17;
            ranges.push(start..start + 10);
            data[start as usize..start as usize + 10].fill(i as u8 | 1);
        }
        maker.sparse_file(b"sparse", &data, &ranges, &attributes(0o644, 1));
        let taken = free - maker.creator().free_blocks();
        assert!((200..600).contains(&taken), "{taken} blocks");
        maker.check("sparse");
    }
}

/// Zeroes without end.
struct Zeroes;

impl FileContent for Zeroes {
    fn read_exact_at(&mut self, _: u64, buf: &mut [u8]) -> io::Result<()> {
        buf.fill(0);
        Ok(())
    }
}

#[test]
fn sizes_past_2_and_4_gib() {
    let options = ["-t", "ext2", "-O", "^large_file"];
    for (arguments, len) in [
        (&options[..], 1u64 << 31),
        (&["-t", "ext4", "-b", "4096"], (1 << 44) - 4096),
    ] {
        let mut maker = Maker::new("64M", arguments);
        let ino = maker.make(b"file", NewInode::File, &attributes(0o644, 1));
        let last = len - 5..len;
        maker
            .creator()
            .write_file(ino, len, &[last], &mut Zeroes)
            .unwrap();
        maker.forget(b"file");
        maker.finish_and_fsck("large file");
        let fs = crate::tree::open(&maker.image());
        assert_eq!(fs.inode(ino).unwrap().size, len);
        let names: Vec<_> = fs.superblock().features().known().map(|f| f.name).collect();
        assert!(names.contains(&"large_file"));
    }
}

#[test]
fn fragmented_files_have_deep_trees() {
    // Every other block is data: as many extents as blocks.
    for arguments in [
        &["-t", "ext4", "-b", "1024"][..],
        &["-t", "ext3", "-b", "1024"],
    ] {
        let mut maker = Maker::new("64M", arguments);
        let mut data = vec![0; 2 * 1024 * 20_000];
        let mut ranges = Vec::new();
        for i in 0..20_000u64 {
            let start = i * 2048;
            ranges.push(start..start + 1024);
            data[start as usize..start as usize + 1024].fill(i as u8 | 1);
        }
        maker.sparse_file(b"comb", &data, &ranges, &attributes(0o644, 1));
        maker.check("comb");
    }
}
