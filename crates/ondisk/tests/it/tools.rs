//! Runs the tools that judge us.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// True if all of `names` can be started; prints why the test is skipped otherwise.
pub fn have(names: &[&str]) -> bool {
    let starts = |name: &str| {
        let mut command = Command::new(name);
        command
            .arg("-V")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.status().is_ok()
    };
    match names.iter().find(|name| !starts(name)) {
        Some(name) => {
            println!("skipped: needs {name}");
            false
        }
        None => true,
    }
}

/// Runs a command that must succeed (or exit with `also_good`) and returns what it prints.
pub fn run(command: &mut Command, also_good: i32) -> Vec<u8> {
    let output = command.output().unwrap();
    let code = output.status.code();
    assert!(
        code == Some(0) || code == Some(also_good),
        "{command:?}: {output:?}"
    );
    output.stdout
}

/// Feeds `commands` to debugfs, with `image` opened for writing if there is one, and returns what
/// it prints.
pub fn debugfs_script(commands: &[u8], image: Option<&Path>) -> Vec<u8> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(commands).unwrap();
    let mut command = Command::new("debugfs");
    command.arg("-f").arg(file.path());
    if let Some(image) = image {
        command.arg("-w").arg(image);
    }
    run(&mut command, 0)
}
