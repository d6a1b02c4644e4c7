//! Against `veritysetup`, on every shape of tree.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use uext4_blockdev::{Access, FileDevice, MemoryDevice, SubDevice};
use uext4_testkit::{SplitMix64, has_tool, scratch, try_run};

use super::*;

const UUID: [u8; 16] = *b"0123456789abcdef";

fn verity(salt: &[u8]) -> Verity {
    Verity::new(salt.to_vec(), UUID).unwrap()
}

/// Makes a file of `blocks` blocks with a hole where `data` is false, and the tree after it.
fn hashed(path: &Path, blocks: u64, data: impl Fn(u64) -> bool, verity: &Verity) -> RootHash {
    let file = File::create(path).unwrap();
    let len = blocks * BLOCK;
    file.set_len(len + verity.tree_len(len)).unwrap();
    let mut random = SplitMix64::new(blocks);
    for block in (0..blocks).filter(|&block| data(block)) {
        let bytes: Vec<u8> = (0..BLOCK).map(|_| random.next_u64() as u8).collect();
        file.write_all_at(&bytes, block * BLOCK).unwrap();
    }
    let device = Arc::new(FileDevice::open(path, Access::ReadWrite).unwrap());
    let data = SubDevice::new(device.clone(), 0, len).unwrap();
    let tree = SubDevice::from_offset(device, len).unwrap();
    verity.write(&data, &tree).unwrap()
}

/// What `veritysetup verify` says of the tree behind `blocks` blocks of data.
fn verify(path: &Path, blocks: u64, root: &str, more: &[&str]) -> Result<Vec<u8>, String> {
    let path = path.to_str().unwrap();
    let at = format!("--hash-offset={}", blocks * BLOCK);
    let mut arguments = vec!["verify", path, path, root, &at];
    arguments.extend(more);
    try_run("veritysetup", arguments)
}

#[test]
fn the_tree_is_that_of_veritysetup() {
    if !has_tool("veritysetup") {
        return;
    }
    let dir = scratch();
    let (ours, theirs) = (dir.path().join("ours"), dir.path().join("theirs"));
    // One block has no tree; 128 and 16,384 are the last sizes of one and two levels.
    for (blocks, salt) in [
        (1, &b"salt"[..]),
        (2, b""),
        (128, &[7; 32]),
        (129, &[0xff; SALT_MAX]),
        (16_384, b"s"),
        (16_385, b"s"),
        (70_000, &[1; 32]),
    ] {
        let verity = verity(salt);
        let len = blocks * BLOCK;
        // Large ones have holes, which begin and end within what a thread takes.
        let root = hashed(
            &ours,
            blocks,
            |block| block < 500 || block % 999 < 9,
            &verity,
        );
        let bytes = std::fs::read(&ours).unwrap();
        std::fs::write(&theirs, &bytes[..len as usize]).unwrap();
        let file = theirs.to_str().unwrap();
        let uuid = uuid::Uuid::from_bytes(UUID).to_string();
        let arguments = [
            "format".to_owned(),
            format!("--hash-offset={len}"),
            format!("--salt={}", verity.salt_text()),
            format!("--uuid={uuid}"),
            file.to_owned(),
            file.to_owned(),
        ];
        let said = String::from_utf8(try_run("veritysetup", arguments).unwrap()).unwrap();
        assert!(said.contains(&root.to_string()), "{blocks} blocks: {said}");
        assert!(
            bytes == std::fs::read(&theirs).unwrap(),
            "{blocks} blocks: other bytes"
        );
        verify(&ours, blocks, &root.to_string(), &[]).unwrap();
    }
}

#[test]
fn a_bit_that_changes_is_found() {
    if !has_tool("veritysetup") {
        return;
    }
    let dir = scratch();
    let path = dir.path().join("image");
    let blocks = 300;
    let root = hashed(&path, blocks, |block| block != 7, &verity(b"salt")).to_string();
    verify(&path, blocks, &root, &[]).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    // Of the data, of a hole in it, and of the tree.
    for at in [299 * BLOCK + 4095, 7 * BLOCK, (blocks + 1) * BLOCK] {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1], at).unwrap();
        let error = verify(&path, blocks, &root, &[]).unwrap_err();
        assert!(error.contains("Verification"), "byte {at}: {error}");
        file.write_all_at(&byte, at).unwrap();
    }
    verify(&path, blocks, &root, &[]).unwrap();
}

#[test]
fn the_superblock_can_be_left_out() {
    let dir = scratch();
    let path = dir.path().join("image");
    let with = verity(b"salt");
    let without = with.clone().with(Superblock::LeftOut);
    let len = 300 * BLOCK;
    assert_eq!(with.tree_len(len) - without.tree_len(len), BLOCK);
    let root = hashed(&path, 300, |_| true, &without);
    if has_tool("veritysetup") {
        let salt = format!("--salt={}", without.salt_text());
        let more = ["--no-superblock", "--data-blocks=300", &salt];
        verify(&path, 300, &root.to_string(), &more).unwrap();
    }
    assert_eq!(root, hashed(&path, 300, |_| true, &with));
}

/// Counts the bytes that are read.
#[derive(Debug)]
struct Counting(MemoryDevice, AtomicU64);

impl BlockDevice for Counting {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        self.1.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.0.read_at(offset, buf)
    }

    fn write_at(&self, _: u64, _: &[u8]) -> Result<(), Error> {
        Err(Error::ReadOnly)
    }

    fn flush(&self) -> Result<(), Error> {
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) -> Result<(), Error> {
        Err(Error::ReadOnly)
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, Error> {
        self.0.next_data(offset)
    }
}

#[test]
fn holes_are_not_read_and_stay() {
    let data = MemoryDevice::new(1 << 30);
    data.write_at(700 << 20, &[1; 1 << 20]).unwrap();
    let data = Counting(data, AtomicU64::new(0));
    let verity = verity(b"salt");
    let tree = MemoryDevice::new(verity.tree_len(1 << 30));
    verity.write(&data, &tree).unwrap();
    let read = data.1.into_inner();
    assert!((1 << 20..4 << 20).contains(&read), "{read} bytes were read");
    // In a file, too, nothing but the tree is written.
    let dir = scratch();
    let path = dir.path().join("image");
    let blocks = (1 << 30) / BLOCK;
    hashed(&path, blocks, |block| block == 99_999, &verity);
    let used = std::fs::metadata(&path).unwrap().blocks() * 512;
    assert!(used <= verity.tree_len(1 << 30) + (1 << 20), "{used} bytes");
}

#[test]
fn data_of_no_whole_block_is_hashed_as_if_zeroes_followed() {
    let roots = [1000, BLOCK - 1, BLOCK].map(|len| {
        let data = MemoryDevice::new(300 * BLOCK + len);
        data.write_at(300 * BLOCK + 990, b"data").unwrap();
        let verity = verity(b"salt");
        let tree = MemoryDevice::new(verity.tree_len(data.len()));
        verity.write(&data, &tree).unwrap()
    });
    assert_eq!(roots, [roots[0]; 3]);
}

#[test]
fn what_is_too_small_is_an_error_and_stays() {
    let data = MemoryDevice::new(1 << 20);
    let verity = verity(b"");
    let tree = MemoryDevice::new(verity.tree_len(data.len()) - 1);
    let error = verity.write(&data, &tree).unwrap_err();
    assert!(matches!(error, Error::OutOfRange { .. }), "{error}");
    assert_eq!(tree.next_data(0).unwrap(), None);
    assert!(Verity::new(vec![0; SALT_MAX + 1], UUID).is_none());
}
