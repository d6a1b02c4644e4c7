//! Tests of the first pass, on images by mke2fs that debugfs or a patch damages.

use std::io::Write;

use parking_lot::Mutex;
use tempfile::NamedTempFile;
use uext4_blockdev::MemoryDevice;
use uext4_testkit::e2fsprogs::{complaints, debugfs_write, mke2fs};
use uext4_testkit::images::loaded;

use super::*;
use crate::finding::Finding;
use crate::report::Observer;

#[derive(Default)]
pub(crate) struct Listed(Mutex<Vec<Finding>>);

impl Observer for Listed {
    fn finding(&self, finding: &Finding) {
        self.0.lock().push(finding.clone());
    }
}

/// What the first pass found, in its names, and the image as it would be.
pub(crate) struct Opened {
    pub(crate) findings: Vec<String>,
    pub(crate) texts: Vec<String>,
    pub(crate) result: Result<Arc<MemoryDevice>>,
}

pub(crate) fn opened(device: &Arc<MemoryDevice>, options: &Options) -> Opened {
    let listed = Listed::default();
    let findings = Findings::new(&listed, 1000);
    let base: Arc<dyn BlockDevice> = device.clone();
    let result = block_size(&base, options)
        .map(|size| Overlay::new(Arc::clone(&base), size, u64::MAX))
        .and_then(|overlay| open(overlay, options, &findings))
        .map(|super::Opened { volume, .. }| {
            let mut bytes = vec![0; device.to_bytes().len()];
            volume.overlay().read_at(0, &mut bytes).unwrap();
            Arc::new(MemoryDevice::from_bytes(bytes))
        });
    findings.finish_pass();
    let listed = listed.0.into_inner();
    Opened {
        findings: listed.iter().map(|f| f.problem.to_string()).collect(),
        texts: listed.iter().map(ToString::to_string).collect(),
        result,
    }
}

pub(crate) fn stored(device: &MemoryDevice) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(&device.to_bytes()).unwrap();
    file
}

/// An image by mke2fs.
pub(crate) fn made(options: &str, size: &str) -> Arc<MemoryDevice> {
    let file = NamedTempFile::new().unwrap();
    mke2fs(file.path(), options.split_whitespace(), size);
    loaded(file.path())
}

/// The image after requests to debugfs.
pub(crate) fn changed(device: &MemoryDevice, requests: &[&str]) -> Arc<MemoryDevice> {
    let file = stored(device);
    debugfs_write(file.path(), requests);
    loaded(file.path())
}

/// The image with bytes replaced.
pub(crate) fn patched(device: &MemoryDevice, at: usize, bytes: &[u8]) -> Arc<MemoryDevice> {
    let mut all = device.to_bytes();
    all[at..at + bytes.len()].copy_from_slice(bytes);
    Arc::new(MemoryDevice::from_bytes(all))
}

pub(crate) fn now() -> Options {
    Options {
        now: u32::MAX,
        ..Options::default()
    }
}

/// Asserts what is found, that nothing more is found in what the remedies make, and returns that.
#[track_caller]
pub(crate) fn assert_mended(device: &Arc<MemoryDevice>, names: &[&str]) -> Arc<MemoryDevice> {
    let first = opened(device, &now());
    let mended = first.result.unwrap();
    // Backups are compared with what becomes of the primary ones.
    let by_itself = |name: &&String| !name.ends_with("-backup-differs");
    let found: Vec<&String> = first.findings.iter().filter(by_itself).collect();
    assert_eq!(found, names, "{:#?}", first.texts);
    let second = opened(&mended, &now());
    assert_eq!(second.texts, [""; 0], "in the second round");
    mended
}

/// The same, and that e2fsck finds nothing in the result.
#[track_caller]
pub(crate) fn assert_repaired(device: &Arc<MemoryDevice>, names: &[&str]) {
    let mended = assert_mended(device, names);
    assert_eq!(complaints(stored(&mended).path()), None);
}

mod clean;
mod descriptors;
mod journal;
mod orphans;
mod superblock;
