//! Arbitrary bytes as a tar archive that an image is built from: used by the test of archives and
//! by the fuzzer. An archive is refused, or becomes an image that nothing is wrong with.

use std::fs;
use std::sync::Arc;

use uext4_blockdev::{Access, BlockDevice, FileDevice};
use uext4_image::{BuildOptions, Source, build};

/// Bytes of a header, and where its sum is.
const BLOCK: usize = 512;
const SUM: std::ops::Range<usize> = 148..156;
/// Images beyond this are not looked at: a few bytes may ask for a large empty one.
const IMAGE_MAX: u64 = 64 << 20;

/// Sums what looks like a header, so that what follows the sum is reached.
fn with_sums(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for block in bytes.chunks_exact_mut(BLOCK) {
        if &block[257..262] == b"ustar" {
            block[SUM].fill(b' ');
            let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
            block[SUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
    }
    bytes
}

/// Builds an image of the archive.
pub fn exercise(bytes: &[u8]) {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let dir = dir.unwrap();
    let (archive, image) = (dir.path().join("a.tar"), dir.path().join("image"));
    fs::write(&archive, with_sums(bytes)).unwrap();
    let options = BuildOptions::default();
    if let Ok(report) = build(&Source::TarFile(archive), &image, &options, &())
        && report.image_bytes <= IMAGE_MAX
    {
        let device: Arc<dyn BlockDevice> =
            Arc::new(FileDevice::open(&image, Access::ReadOnly).unwrap());
        assert_eq!(uext4_fsck::findings(&device).unwrap(), []);
    }
}
