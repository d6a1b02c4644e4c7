//! Programs of this machine: run, and what they say when they fail shown.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use tempfile::TempDir;

/// Bytes that must be free for a scratch directory to lie in memory.
const MEMORY_NEEDED: u64 = 2 << 30;

/// True if this process may do what only root may.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// True if the tool is installed; otherwise prints why the test is skipped.
pub fn has_tool(tool: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&paths).any(|dir| dir.join(tool).exists());
    if !found {
        println!("skipped: needs {tool}");
    }
    found
}

/// Runs a program and returns what it printed, or a message with all that it said.
///
/// # Errors
/// The message, if the program cannot be started or fails.
pub fn try_run<A: AsRef<OsStr>>(
    program: impl AsRef<OsStr>,
    arguments: impl IntoIterator<Item = A>,
) -> Result<Vec<u8>, String> {
    let mut command = Command::new(program);
    let output = match command.args(arguments).output() {
        Ok(output) if output.status.success() => return Ok(output.stdout),
        Ok(output) => said(&output),
        Err(error) => error.to_string(),
    };
    Err(format!("{command:?}: {output}"))
}

/// Runs a program, which must succeed, and returns what it printed.
#[track_caller]
pub fn run<A: AsRef<OsStr>>(
    program: impl AsRef<OsStr>,
    arguments: impl IntoIterator<Item = A>,
) -> Vec<u8> {
    try_run(program, arguments).unwrap_or_else(|message| panic!("{message}"))
}

/// Runs a program, which must succeed, and returns what it printed as text.
#[track_caller]
pub fn run_text<A: AsRef<OsStr>>(
    program: impl AsRef<OsStr>,
    arguments: impl IntoIterator<Item = A>,
) -> String {
    String::from_utf8_lossy(&run(program, arguments)).into_owned()
}

/// How a program ended, and all that it printed.
pub fn said(output: &Output) -> String {
    let text = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{}\n{}{}", output.status, text[0], text[1])
}

/// Runs a command that unmounts, again while the mount is in use: a process that another test has
/// forked holds the files that are open here until it becomes its program. Returns its last output.
#[track_caller]
pub fn while_busy(command: &mut Command) -> Output {
    for _ in 0..500 {
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        if output.status.success() || !(stderr.contains("in use") || stderr.contains("busy")) {
            return output;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{command:?}: still in use");
}

/// Unmounts what may be mounted at `point` as soon as it is no longer in use: for guards, which
/// must not panic.
pub fn unmount_lazily(point: impl AsRef<Path>) {
    _ = Command::new("umount")
        .arg("-l")
        .arg(point.as_ref())
        .output();
}

/// A directory that is removed with the test; in memory where there is room.
#[track_caller]
pub fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    let room = rustix::fs::statvfs(memory).map_or(0, |s| s.f_bavail * s.f_frsize);
    let made = match room > MEMORY_NEEDED {
        true => TempDir::new_in(memory),
        false => TempDir::new(),
    };
    made.unwrap()
}

/// Copies an image with its holes, next to it, as it is now: mounted or not.
#[track_caller]
pub fn copy_image(image: &Path, name: &str) -> std::path::PathBuf {
    let copy = image.with_file_name(name);
    run("cp", ["--sparse=always".as_ref(), image, &copy]);
    copy
}
