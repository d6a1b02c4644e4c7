//! Whole images with patches, examined and planned: used by the test of cases that the fuzzer
//! found, and by the fuzzer.

use std::sync::Arc;

use uext4_blockdev::MemoryDevice;
use uext4_fsck::{Error, Finding, Observer, Options, examine, plan};
use uext4_testkit::damage::images;

/// The images that are small enough to be damaged millions of times; the first byte chooses.
const IMAGES: [&str; 6] = [
    "ext4",
    "ext2",
    "inline-512",
    "bigalloc",
    "project",
    "casefold",
];

/// Lets findings be shown, as a program would.
#[derive(Debug)]
struct Shown;

impl Observer for Shown {
    fn finding(&self, finding: &Finding) {
        assert!(!finding.to_string().is_empty());
    }
}

/// The first byte chooses the image, the rest are patches: four bytes that say where, one that says
/// how long (up to 16), and the bytes. What is left at the end is ignored.
///
/// The plan must end; what it makes of the image must be found to be clean, if it says so.
pub fn exercise(bytes: &[u8]) {
    let Some((image, mut patches)) = bytes.split_first() else {
        return;
    };
    let name = IMAGES[usize::from(*image) % IMAGES.len()];
    let mut image = images::named(name).survey.bytes.clone();
    while let [a, b, c, d, len, rest @ ..] = patches {
        let place = [a, b, c, d]
            .iter()
            .fold(0, |n, byte| n << 8 | usize::from(**byte));
        let at = place % image.len();
        let len = (usize::from(*len) % 16 + 1)
            .min(rest.len())
            .min(image.len() - at);
        image[at..at + len].copy_from_slice(&rest[..len]);
        patches = &rest[len..];
    }
    let options = Options {
        memory: 64 << 20,
        findings_max: 1000,
        ..Options::default()
    };
    let device = MemoryDevice::from_bytes(image);
    let outcome = match plan(&(Arc::new(device.snapshot()) as _), &options, &Shown) {
        Ok(outcome) => outcome,
        Err(Error::Cancelled) => panic!("cancelled by no one"),
        Err(_) => return,
    };
    let mended = Arc::new(outcome.overlay) as _;
    let again = examine(&mended, &options, &Shown);
    let is_clean = again.as_ref().is_ok_and(|again| again.is_clean);
    assert_eq!(outcome.is_clean, is_clean, "{again:?}");
}
