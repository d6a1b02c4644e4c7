//! Images for the tests of single passes: made, damaged, examined, repaired, judged by e2fsck.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;
use uext4_blockdev::{BlockDevice, MemoryDevice};
use uext4_testkit::e2fsprogs::{assert_clean, debugfs_write, mke2fs};

use crate::{ChangedBlock, Finding, Observer, Options, Outcome};

/// An image in a directory of its own.
pub struct TestImage {
    directory: TempDir,
    path: PathBuf,
    pub options: Options,
}

struct Silent;

impl Observer for Silent {
    fn finding(&self, _finding: &Finding) {}
}

impl TestImage {
    /// Of a size and with options, as mke2fs spells them.
    #[track_caller]
    pub fn new(options: &str, size: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        mke2fs(&path, options.split_whitespace(), size);
        Self {
            directory,
            path,
            options: Options {
                now: 0,
                ..Options::default()
            },
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file of these contents into the root directory.
    #[track_caller]
    pub fn file(&self, name: &str, contents: &[u8]) {
        let source = self.directory.path().join("source");
        fs::write(&source, contents).unwrap();
        debugfs_write(&self.path, [format!("write {} {name}", source.display())]);
    }

    /// Changes the image by requests to debugfs.
    #[track_caller]
    pub fn debugfs(&self, requests: &[&str]) {
        debugfs_write(&self.path, requests);
    }

    /// Changes bytes of the image.
    pub fn change(&self, change: impl FnOnce(&mut [u8])) {
        let mut bytes = fs::read(&self.path).unwrap();
        change(&mut bytes);
        fs::write(&self.path, bytes).unwrap();
    }

    fn device(&self) -> Arc<dyn BlockDevice> {
        Arc::new(MemoryDevice::from_bytes(fs::read(&self.path).unwrap()))
    }

    /// What an examination says.
    pub fn examined(&self) -> crate::Result<Outcome> {
        crate::examine(&self.device(), &self.options, &Silent)
    }

    /// The plan of a repair.
    pub fn planned(&self) -> crate::Result<Outcome> {
        crate::plan(&self.device(), &self.options, &Silent)
    }

    /// The names of what an examination finds, in order.
    pub fn found(&self) -> Vec<&'static str> {
        names(&self.examined().unwrap())
    }

    /// Whether an examination finds no more than notes.
    pub fn is_clean(&self) -> bool {
        self.examined().unwrap().is_clean
    }

    /// Repairs the image; e2fsck and a second examination find nothing afterwards. Returns the
    /// names of what was found.
    #[track_caller]
    pub fn repair(&self) -> Vec<&'static str> {
        let outcome = self.planned().unwrap();
        assert!(outcome.is_clean, "{:?}", outcome.findings);
        let mut bytes = fs::read(&self.path).unwrap();
        let size = outcome.overlay.block_size().len();
        let write = |change: ChangedBlock| {
            let at = usize::try_from(change.block.0).unwrap() * size;
            bytes[at..at + size].copy_from_slice(&change.content);
            Ok(())
        };
        outcome.overlay.for_each_change(write).unwrap();
        fs::write(&self.path, bytes).unwrap();
        assert_clean(&self.path);
        assert_eq!(self.found(), [""; 0]);
        names(&outcome)
    }
}

fn names(outcome: &Outcome) -> Vec<&'static str> {
    let findings = outcome.findings.iter();
    findings.map(|(_, f)| f.problem.info().name).collect()
}
