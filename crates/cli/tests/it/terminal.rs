//! What a person sees on a terminal, and a pipe does not: colors, and progress.

use std::fs;
use std::process::Command;

use crate::host::{UEXT4, has_tool, scratch, text, uext4, uext4_ok};

/// Runs a command line on a terminal of its own, and returns what it wrote there.
fn on_terminal(line: &str, environment: &[(&str, &str)]) -> Option<String> {
    if !has_tool("script") {
        return None;
    }
    let mut script = Command::new("script");
    script
        .args(["-qec", line, "/dev/null"])
        .env("TERM", "xterm");
    script.env_remove("NO_COLOR").env_remove("LS_COLORS");
    script.envs(environment.iter().copied());
    let output = script.output().unwrap();
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn names_have_the_colors_of_ls_on_a_terminal_only() {
    let scratch = scratch();
    let source = scratch.path().join("source");
    fs::create_dir_all(source.join("dir")).unwrap();
    fs::write(source.join("a.zip"), "").unwrap();
    let image = scratch.path().join("image");
    uext4_ok(&["build", "-q", text(&source), "-o", text(&image)]);
    let line = format!("{UEXT4} ls {}", text(&image));
    let Some(plain) = on_terminal(&line, &[("NO_COLOR", "1")]) else {
        return;
    };
    assert!(!plain.contains('\x1b'), "{plain:?}");
    let colors = [("LS_COLORS", "di=35:*.zip=32")];
    let colored = on_terminal(&line, &colors).unwrap();
    assert!(colored.contains("\x1b[35mdir\x1b[0m"), "{colored:?}");
    assert!(colored.contains("\x1b[32ma.zip\x1b[0m"), "{colored:?}");
    let piped = uext4_ok(&["ls", text(&image)]);
    assert!(!piped.contains(&0x1b));
    let tree = uext4_ok(&["tree", "--color", text(&image)]);
    assert!(tree.contains(&0x1b));
}

#[test]
fn no_archive_is_written_to_a_terminal() {
    let scratch = scratch();
    let source = scratch.path().join("source");
    fs::create_dir(&source).unwrap();
    let image = scratch.path().join("image");
    uext4_ok(&["build", "-q", text(&source), "-o", text(&image)]);
    let line = format!("{UEXT4} tar {}; echo ended with $?", text(&image));
    let Some(shown) = on_terminal(&line, &[]) else {
        return;
    };
    assert!(shown.contains("not written to a terminal"), "{shown:?}");
    assert!(
        shown.contains("ended with 2") && !shown.contains('\0'),
        "{shown:?}"
    );
}

#[test]
fn a_narrow_terminal_gets_whole_words() {
    for command in [
        "--help",
        "help sizes",
        "help examples",
        "help exit-codes",
        "help ls",
        "doctor",
        "ls none.img",
        "",
        "frobnicate",
        "build --frobnicated-by-a-very-long-option source -o image",
    ] {
        let line = format!("stty cols 60; {UEXT4} {command}");
        let Some(shown) = on_terminal(&line, &[("NO_COLOR", "1")]) else {
            return;
        };
        let wide = uext4(&command.split_whitespace().collect::<Vec<_>>());
        let wide = [wide.stdout, wide.stderr].concat();
        let words = |text: &str| {
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert!(
            // A word that is longer than a line stands alone in one.
            shown
                .lines()
                .all(|line| { line.chars().count() <= 60 || line.split_whitespace().count() == 1 }),
            "{shown}"
        );
        // The measurement of the processor is another one each time.
        if command != "doctor" {
            assert_eq!(
                words(&shown),
                words(&String::from_utf8_lossy(&wide)),
                "{command}"
            );
        }
    }
}

#[test]
fn tree_prints_sizes_with_h() {
    let scratch = scratch();
    let source = scratch.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), vec![0; 3_000_000]).unwrap();
    let image = scratch.path().join("image");
    uext4_ok(&["build", "-q", text(&source), "-o", text(&image)]);
    let tree = String::from_utf8(uext4_ok(&["tree", "-h", text(&image)])).unwrap();
    assert!(tree.contains("[2.9M]  file"), "{tree}");
}

#[test]
fn long_work_shows_progress_on_a_terminal_only() {
    let scratch = scratch();
    let source = scratch.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), vec![7; 2 << 20]).unwrap();
    let image = scratch.path().join("image");
    uext4_ok(&["build", "-q", text(&source), "-o", text(&image)]);
    // The reader makes it last.
    let line = format!("{UEXT4} tar {} | (sleep 2; cat > /dev/null)", text(&image));
    let Some(shown) = on_terminal(&line, &[]) else {
        return;
    };
    assert!(shown.contains("files archived"), "{shown:?}");
    let piped = Command::new(UEXT4)
        .args(["tar", text(&image)])
        .output()
        .unwrap();
    assert!(piped.stderr.is_empty());
}
