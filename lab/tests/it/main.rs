//! The command as its user meets it.

mod mount;

use std::process::{Command, Output};

fn lab(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_uext4-lab"))
        .args(arguments)
        .output()
        .expect("the lab starts")
}

#[test]
fn what_there_is_not_is_a_usage_error() {
    for arguments in [
        &["run", "no-such-claim"][..],
        &["gate", "no-such-claim"],
        &["run", "--quick", "--full"],
        &["walk"],
        &["run", "mballoc-steps", "--policy", "table+fastest"],
        &["run", "mballoc-steps", "--set", "tree=oak"],
        &["run", "mballoc-steps", "--set", "speed=1"],
    ] {
        let output = lab(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty());
    }
}

#[test]
fn help_has_examples_and_list_lists() {
    let output = lab(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&output.stdout).contains("uext4-lab gate"));
    assert_eq!(lab(&["list"]).status.code(), Some(0));
}

#[test]
fn the_same_seed_gives_the_same_record() {
    let run = |seed: &str| {
        let policy = "predict+largest-run";
        let output = lab(&[
            "run",
            "mballoc-steps",
            "--policy",
            policy,
            "--seed",
            seed,
            "--json",
        ]);
        assert!(output.stderr.is_empty(), "{output:?}");
        output.stdout
    };
    let first = run("5");
    assert!(first.starts_with(b"{\"claim\":\"mballoc-steps\""));
    assert_eq!(first, run("5"));
    assert_ne!(first, run("6"));
}
