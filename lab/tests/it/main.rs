//! The command as its user meets it.

mod gates;
mod guide;
mod mount;
mod records;
mod report;

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
        &["run"],
        &["run", "--all", "mballoc-steps"],
        &["compare", "no-such-folder", "no-such-folder"],
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
    let output = lab(&["list", "--json"]);
    let claims: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(claims[0]["name"], "extent-status-fragmented");
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
    let record: serde_json::Value = serde_json::from_slice(&first).unwrap();
    assert_eq!(record["claim"], "mballoc-steps");
    assert_eq!(first, run("5"));
    assert_ne!(first, run("6"));
}

/// What is recorded is held by the next run, is never written over, and is equal to itself.
#[test]
fn a_session_goes_on_where_it_was() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("made");
    let folder = folder.to_str().unwrap();
    let run = |more: &[&str]| {
        let arguments = [&["run", "mballoc-switches", "--into", folder], more].concat();
        lab(&arguments)
    };
    let policy = ["--policy", "predict+largest-run"];
    assert_eq!(run(&policy).status.code(), Some(0));
    let file = place.path().join("made/mballoc-switches.json");
    let first = std::fs::read(&file).unwrap();
    let made = std::fs::metadata(&file).unwrap().modified().unwrap();
    assert_eq!(run(&policy).status.code(), Some(0));
    assert_eq!(std::fs::metadata(&file).unwrap().modified().unwrap(), made);
    let other = run(&["--seed", "7"]);
    assert_eq!(other.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&other.stderr).contains("another setting"));
    assert_eq!(std::fs::read(&file).unwrap(), first);
    let same = lab(&["compare", folder, folder]);
    assert_eq!(same.stdout, b"mballoc-switches: the same\n");
    let machine = std::fs::read(place.path().join("made/machine.json")).unwrap();
    let machine: serde_json::Value = serde_json::from_slice(&machine).unwrap();
    assert!(machine["noise"]["wake_up_us"].as_f64().unwrap() > 0.0);
}
