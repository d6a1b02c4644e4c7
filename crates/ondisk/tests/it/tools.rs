//! Runs the tools that judge us.

use std::io::Write;
use std::process::{Command, Stdio};

/// True if `name` can be started; prints why the test is skipped otherwise.
pub fn have(name: &str) -> bool {
    let found = Command::new(name)
        .arg("-V")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok();
    if !found {
        println!("skipped: needs {name}");
    }
    found
}

/// Feeds `commands` to debugfs and returns what it prints.
pub fn debugfs_script(commands: &[u8]) -> Vec<u8> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(commands).unwrap();
    let output = Command::new("debugfs")
        .arg("-f")
        .arg(file.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    output.stdout
}
