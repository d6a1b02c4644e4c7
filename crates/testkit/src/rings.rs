//! FUSE over io_uring, which the machine allows or forbids for all.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// The machine's permission to mount over io_uring; as it was before when dropped.
#[derive(Debug)]
pub struct RingsAllowed {
    parameter: File,
    before: String,
}

impl RingsAllowed {
    const PATH: &str = "/sys/module/fuse/parameters/enable_uring";

    fn opened() -> Option<File> {
        let opened = File::options().read(true).write(true).open(Self::PATH);
        if opened.is_err() {
            println!("skipped: needs root and FUSE over io_uring");
        }
        opened.ok()
    }

    /// True if the machine has it to give; otherwise prints why the test is skipped.
    pub fn can_be_had() -> bool {
        Self::opened().is_some()
    }

    /// Gets it, or prints why the test is skipped. Other tests that want it wait until this is
    /// dropped.
    pub fn new() -> Option<Self> {
        let parameter = Self::opened()?;
        rustix::fs::flock(&parameter, rustix::fs::FlockOperation::LockExclusive).unwrap();
        let before = std::fs::read_to_string(Self::PATH).unwrap();
        let allowed = Self { parameter, before };
        allowed.set(true);
        Some(allowed)
    }

    /// Allows or forbids them.
    pub fn set(&self, on: bool) {
        let value = if on { b"Y" } else { b"N" };
        self.parameter.write_all_at(value, 0).unwrap();
    }
}

impl Drop for RingsAllowed {
    fn drop(&mut self) {
        self.parameter
            .write_all_at(self.before.as_bytes(), 0)
            .unwrap();
    }
}
