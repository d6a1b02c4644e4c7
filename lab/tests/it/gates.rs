//! The gates of every claim that is counted; in the long mode also those of times.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

#[test]
fn no_gate_is_contrary() {
    let is_long = std::env::var_os("UEXT4_LONG").is_some();
    let mut gate = Command::new(env!("CARGO_BIN_EXE_uext4-lab"))
        .arg("gate")
        .args((!is_long).then_some("--counted"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("the lab starts");
    let mut lines = Vec::new();
    for line in BufReader::new(gate.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        println!("{line}");
        lines.push(line);
    }
    let status = gate.wait().unwrap();
    let is_bad = |line: &&String| line.starts_with("contrary") || line.starts_with("no figure");
    let bad: Vec<_> = lines.iter().filter(is_bad).collect();
    assert!(status.success(), "{bad:#?}");
    assert!(lines.len() > 100, "{} lines", lines.len());
}
