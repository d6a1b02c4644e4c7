//! The writers: processes of dd(1), each with a file of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Writers that write 1 MiB after 1 MiB until they are killed; killed when dropped.
#[derive(Debug)]
pub struct Writers {
    children: Vec<Child>,
    files: Vec<PathBuf>,
}

impl Writers {
    /// Starts so many in a directory. `enter` sees each process when it has started.
    ///
    /// # Errors
    /// Why dd could not be started; those that run are killed.
    pub fn start(
        count: usize,
        dir: &Path,
        enter: impl Fn(u32) -> Result<(), String>,
    ) -> Result<Self, String> {
        let mut writers = Self {
            children: Vec::with_capacity(count),
            files: Vec::with_capacity(count),
        };
        for index in 0..count {
            let file = dir.join(format!("writer-{index}"));
            let mut output = std::ffi::OsString::from("of=");
            output.push(&file);
            let child = Command::new("dd")
                .args(["if=/dev/zero", "bs=1M"])
                .arg(output)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            let child = child.map_err(|error| format!("dd: {error}"))?;
            let process = child.id();
            writers.children.push(child);
            writers.files.push(file);
            enter(process)?;
        }
        Ok(writers)
    }

    /// Bytes that each has written.
    pub fn sizes(&self) -> Vec<u64> {
        let size = |file: &PathBuf| fs::metadata(file).map_or(0, |found| found.len());
        self.files.iter().map(size).collect()
    }

    /// How many have ended by themselves: on a full device, or by an error.
    pub fn ended(&mut self) -> usize {
        let ended = |child: &mut Child| !matches!(child.try_wait(), Ok(None));
        self.children
            .iter_mut()
            .filter_map(|child| ended(child).then_some(()))
            .count()
    }

    /// Kills all, and returns how long it took until the last was gone.
    pub fn kill(&mut self) -> Duration {
        let began = Instant::now();
        for child in &mut self.children {
            // It fails for one that has ended.
            _ = child.kill();
        }
        for child in &mut self.children {
            _ = child.wait();
        }
        began.elapsed()
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        self.kill();
    }
}
