//! mke2fs, e2fsck, debugfs and dumpe2fs on images in files.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::NamedTempFile;

use crate::tools::{run, run_text, said};

/// Makes an image of `size`, as mke2fs spells sizes.
#[track_caller]
pub fn mke2fs<A: AsRef<OsStr>>(image: &Path, options: impl IntoIterator<Item = A>, size: &str) {
    let mut arguments = vec!["-q".into(), "-F".into()];
    arguments.extend(options.into_iter().map(|word| word.as_ref().to_owned()));
    arguments.extend([image.as_os_str().to_owned(), size.into()]);
    run("mke2fs", arguments);
}

/// Runs e2fsck with options such as `-fy`; its exit code says what it found.
#[track_caller]
pub fn e2fsck(image: &Path, options: &str) -> Output {
    let mut command = Command::new("e2fsck");
    command.args(options.split_whitespace()).arg(image);
    command.output().unwrap()
}

/// Asserts that e2fsck, run with these options, exits with at most this code: 1 if it may repair.
#[track_caller]
pub fn assert_e2fsck(image: &Path, options: &str, code_max: i32) {
    let output = e2fsck(image, options);
    let code = output.status.code();
    let passes = code.is_some_and(|code| code <= code_max);
    assert!(passes, "e2fsck {options}: {}", said(&output));
}

/// What e2fsck complains about, and how it ended; `None` if the image is clean.
#[track_caller]
pub fn complaints(image: &Path) -> Option<String> {
    let output = e2fsck(image, "-fn");
    (!output.status.success()).then(|| said(&output))
}

/// Asserts that e2fsck finds nothing to repair.
#[track_caller]
pub fn assert_clean(image: &Path) {
    assert_e2fsck(image, "-fn", 0);
}

/// What debugfs prints for a request that changes nothing.
#[track_caller]
pub fn debugfs(image: &Path, request: &str) -> String {
    run_text(
        "debugfs",
        ["-R".as_ref(), request.as_ref(), image.as_os_str()],
    )
}

/// Changes an image by requests to debugfs. It always exits with 0: what went wrong stands in its
/// standard error, behind the line of its version.
#[track_caller]
pub fn debugfs_write<R: AsRef<str>>(image: &Path, requests: impl IntoIterator<Item = R>) {
    for request in requests {
        let request = request.as_ref();
        let mut command = Command::new("debugfs");
        let output = command.args(["-w", "-R", request]).arg(image).output();
        let output = output.unwrap();
        let complaints = String::from_utf8_lossy(&output.stderr);
        let is_done = output.status.success() && complaints.lines().count() == 1;
        assert!(is_done, "debugfs {request}: {}", said(&output));
    }
}

/// Feeds a script to debugfs, with `image` opened for writing if there is one, and returns what it
/// prints.
#[track_caller]
pub fn debugfs_script(script: impl AsRef<[u8]>, image: Option<&Path>) -> Vec<u8> {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(script.as_ref()).unwrap();
    let mut arguments = vec!["-f".as_ref(), file.path()];
    if let Some(image) = image {
        arguments.extend(["-w".as_ref(), image]);
    }
    run("debugfs", arguments)
}

/// What `dumpe2fs -h` prints of an image's superblock and journal.
#[track_caller]
pub fn dumpe2fs(image: &Path) -> String {
    run_text("dumpe2fs", ["-h".as_ref(), image])
}
