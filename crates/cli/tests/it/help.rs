//! Help, completions, manual pages and the report on this machine.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::commands::{CHANGING, COMMANDS, exit_code, stderr, stdout};
use crate::host::{has_tool, scratch, text, uext4, uext4_ok};

#[test]
fn help_explains_topics_and_names_them_if_a_subject_is_unknown() {
    let image = stdout(&uext4(&["help", "image"]));
    for option in [
        "--partition",
        "--offset",
        "--superblock",
        "--no-replay",
        "--options",
        "--trace",
    ] {
        assert!(image.contains(option), "{option}");
    }
    let profiles = uext4(&["help", "profiles"]);
    assert_eq!(exit_code(&profiles), 0);
    assert!(stdout(&profiles).contains("linux-4.4"));
    let scratch = scratch();
    let image = scratch.path().join("image");
    let wrong = uext4(&["mkfs", "--profile", "nonsense", text(&image), "16M"]);
    assert_eq!(exit_code(&wrong), 2);
    assert!(stderr(&wrong).contains("help profiles"));
    assert_eq!(uext4_ok(&["help"]), uext4_ok(&["--help"]));
    let unknown = uext4(&["help", "nonsense"]);
    assert_eq!(exit_code(&unknown), 2);
    assert!(stderr(&unknown).contains("exit-codes"));
}

#[test]
fn completions_know_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let script = stdout(&uext4(&["completions", shell]));
        for command in COMMANDS.iter().chain(&CHANGING) {
            assert!(script.contains(command), "{shell}: {command}");
        }
        assert!(script.contains("no-replay"), "{shell}");
    }
    assert_eq!(exit_code(&uext4(&["completions", "tcsh"])), 2);
}

#[test]
fn bash_loads_the_completions() {
    if !has_tool("bash") {
        return;
    }
    let scratch = scratch();
    let script = scratch.path().join("uext4");
    fs::write(&script, uext4_ok(&["completions", "bash"])).unwrap();
    let line = "source $0 && COMP_WORDS=(uext4 mani) COMP_CWORD=1 && _uext4 uext4 mani uext4; \
                echo ${COMPREPLY[@]}";
    let bash = Command::new("bash")
        .args(["-c", line])
        .arg(&script)
        .output();
    assert_eq!(stdout(&bash.unwrap()), "manifest\n");
}

#[test]
fn manual_pages_have_names_synopses_options_and_examples() {
    let scratch = scratch();
    uext4_ok(&["man", text(scratch.path())]);
    for command in COMMANDS.iter().chain(&CHANGING) {
        let page = fs::read_to_string(scratch.path().join(format!("uext4-{command}.1"))).unwrap();
        for section in ["NAME", "SYNOPSIS", "OPTIONS", "EXAMPLES", "\"SEE ALSO\""] {
            let section = section.trim_matches('"');
            assert!(
                page.contains(&format!(".SH {section}\n")),
                "{command}: {section}"
            );
        }
    }
    let page = fs::read_to_string(scratch.path().join("uext4-mount.1")).unwrap();
    assert!(page.contains(".SH MOUNT OPTIONS\n"));
    let names = fs::read_dir(scratch.path()).unwrap();
    assert!(
        names
            .flatten()
            .all(|entry| text(&entry.path()).ends_with(".1"))
    );
}

#[test]
fn doctor_reports_every_check_and_changes_nothing() {
    let report = uext4(&["doctor", "--json"]);
    let json: Value = serde_json::from_slice(&report.stdout).unwrap();
    let can_mount = json["can_mount"].as_bool().unwrap();
    assert_eq!(exit_code(&report), i32::from(!can_mount));
    let checks = json["checks"].as_array().unwrap();
    for subject in [
        "kernel",
        "/dev/fuse",
        "io_uring",
        "Landlock",
        "memory",
        "wake-up",
        "mounts",
        "round trip",
    ] {
        let found = checks.iter().find(|check| check["subject"] == subject);
        if subject == "round trip" && !can_mount {
            continue;
        }
        let found = found.unwrap_or_else(|| panic!("{subject}"));
        // Whatever is not as it should be has a remedy.
        assert_eq!(found["state"] == "ok", found["remedy"].is_null(), "{found}");
    }
}
