//! Undoing a change of the machine, however this process ends.
//!
//! A guard whose `drop` undoes a change does not run when the process is killed. So the command
//! that undoes it belongs to a small process (`sh`) that waits for the end of a pipe: the kernel
//! closes the pipe when the guard is dropped and also when this process dies from any signal.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Reads until the pipe is closed, then becomes the command in its arguments. Signals from the
/// terminal go to the whole process group, and this process must outlive them.
const WAIT: &str = "trap '' INT TERM HUP QUIT; cat >/dev/null; \"$@\"";
/// Writes its first argument to the file in its second.
const STORE: &str = "printf %s \"$1\" >\"$2\"";

/// Runs a command when it is dropped, and when this process ends without dropping it.
#[derive(Debug)]
pub struct Undo {
    watcher: Child,
}

impl Undo {
    /// Will run this program with these arguments. What it prints is lost.
    ///
    /// # Errors
    /// Why the watching process could not be started; then nothing must be changed.
    pub fn command<A: AsRef<OsStr>>(words: impl IntoIterator<Item = A>) -> Result<Self, String> {
        let mut command = Command::new("sh");
        command.args(["-c", WAIT, "sh"]).args(words);
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let watcher = child.map_err(|error| format!("sh: {error}"))?;
        Ok(Self { watcher })
    }

    /// Will write `value` to `file` in one write, as files in proc, sysfs and cgroups need it.
    ///
    /// # Errors
    /// As [`Undo::command`].
    pub fn store(file: &Path, value: &str) -> Result<Self, String> {
        let words: [OsString; 6] = [
            "sh".into(),
            "-c".into(),
            STORE.into(),
            "sh".into(),
            value.into(),
            file.into(),
        ];
        Self::command(words)
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        drop(self.watcher.stdin.take());
        // The command has ended when this returns; that it failed cannot be helped here.
        _ = self.watcher.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_dropped_guard_has_stored_the_old_value() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a value");
        fs::write(&file, "new").unwrap();
        let undo = Undo::store(&file, "old $HOME").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        drop(undo);
        assert_eq!(fs::read_to_string(&file).unwrap(), "old $HOME");
    }

    #[test]
    fn a_killed_process_is_undone_too() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("value");
        let mut undo = Undo::store(&file, "undone").unwrap();
        // The kernel does the same to the pipe of a process that dies.
        drop(undo.watcher.stdin.take());
        undo.watcher.wait().unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "undone");
    }
}
