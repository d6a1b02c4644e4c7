//! The commands in the README and the guide, run as they are written, in order.
//!
//! A page runs in one bash, in an empty directory that holds `rootfs` and `site`. Of its fenced
//! blocks, those are run that begin with ` ```console `; after it may stand, with commas:
//!
//! | word | the block |
//! |---|---|
//! | `fuse` | is left out where nothing can be mounted |
//! | `root` | is left out for other users |
//! | `exit=N` | its last command ends with N; all others end with 0 |
//!
//! `$ ` begins a command and `> ` continues it. Other lines are what it prints; `…` is any number
//! of lines. A command whose block shows no output may print anything.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::host::{UEXT4, has_tool, scratch, text};
use crate::served::can_serve;

/// A command of a page.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    /// Where it is in the page.
    line: usize,
    command: String,
    /// The lines that are shown below it.
    shown: Vec<String>,
    exit: i32,
}

/// What this machine and this user can do.
#[derive(Clone, Copy)]
struct Able {
    fuse: bool,
    root: bool,
}

/// The commands of a page that can be run.
fn steps(page: &str, able: Able) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    // The words of the block that is open, if it is one to run.
    let mut open: Option<Vec<&str>> = None;
    let mut is_other = false;
    for (line, content) in (1..).zip(page.lines()) {
        if let Some(fence) = content.trim_start().strip_prefix("```") {
            if let Some(words) = open.take() {
                let exit = words.iter().find_map(|word| word.strip_prefix("exit="));
                if let (Some(exit), Some(last)) = (exit, steps.last_mut()) {
                    last.exit = exit.parse().unwrap();
                }
            } else if is_other {
                is_other = false;
            } else {
                let words: Vec<&str> = fence.trim().split(',').collect();
                let is_possible = (able.fuse || !words.contains(&"fuse"))
                    && (able.root || !words.contains(&"root"));
                match words[0] == "console" && is_possible {
                    true => open = Some(words),
                    false => is_other = true,
                }
            }
            continue;
        }
        if open.is_none() {
            continue;
        }
        if let Some(command) = content.strip_prefix("$ ") {
            steps.push(Step {
                line,
                command: command.to_owned(),
                shown: Vec::new(),
                exit: 0,
            });
            continue;
        }
        let last = steps
            .last_mut()
            .unwrap_or_else(|| panic!("line {line}: no command yet"));
        match content.strip_prefix("> ") {
            Some(more) => {
                last.command.push('\n');
                last.command.push_str(more);
            }
            None => last.shown.push(content.to_owned()),
        }
    }
    steps
}

/// Whether lines are as shown, where `…` is any number of them.
fn is_as_shown(printed: &[&str], shown: &[&str]) -> bool {
    match (printed, shown) {
        (_, []) => printed.is_empty(),
        (_, ["…", rest @ ..]) => {
            (0..=printed.len()).any(|skipped| is_as_shown(&printed[skipped..], rest))
        }
        ([first, printed @ ..], [expected, rest @ ..]) => {
            first.trim_end() == expected.trim_end() && is_as_shown(printed, rest)
        }
        ([], _) => false,
    }
}

/// What the pages may use.
fn prepare(dir: &Path) {
    for (path, contents) in [
        (
            "rootfs/etc/os-release",
            "NAME=\"Example Linux\"\nID=example\n",
        ),
        ("rootfs/etc/hostname", "example\n"),
        ("rootfs/usr/bin/hello", "#!/bin/sh\necho hello\n"),
        ("rootfs/home/user/notes.txt", "remember the milk\n"),
        (
            "rootfs/var/log/syslog",
            "Jan  1 00:00:00 example kernel: hello\n",
        ),
        (
            "site/index.html",
            "<link rel=stylesheet href=style.css>hello\n",
        ),
        ("site/style.css", "body { color: black }\n"),
    ] {
        let path = dir.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }
    let hello = fs::Permissions::from_mode(0o755);
    fs::set_permissions(dir.join("rootfs/usr/bin/hello"), hello).unwrap();
    std::os::unix::fs::symlink("os-release", dir.join("rootfs/etc/motd")).unwrap();
    fs::create_dir(dir.join("bin")).unwrap();
    std::os::unix::fs::symlink(UEXT4, dir.join("bin/uext4")).unwrap();
}

const MARK: &str = "@@@ documents @@@";

/// Runs the commands of a page.
fn run_page(page: &Path) {
    let able = Able {
        fuse: can_serve(),
        root: rustix::process::geteuid().is_root(),
    };
    let steps = steps(&fs::read_to_string(page).unwrap(), able);
    let scratch = scratch();
    prepare(scratch.path());
    let mut script = String::from("exec 2>&1\n");
    for step in &steps {
        writeln!(script, "{}\nprintf '\\n{MARK} %s\\n' $?", step.command).unwrap();
    }
    // A command that failed may have left a mount.
    script.push_str("for dir in */; do mountpoint -q \"$dir\" && umount -l \"$dir\"; done; true\n");
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("bash")
        .args(["-c", &script])
        .current_dir(scratch.path())
        .env("HOME", scratch.path())
        .env(
            "PATH",
            format!(
                "{}:{path}:/usr/sbin:/sbin",
                text(&scratch.path().join("bin"))
            ),
        )
        .env_remove("SOURCE_DATE_EPOCH")
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    let mark = format!("\n{MARK} ");
    let mut parts = printed.split(&mark);
    let mut before = parts.next().unwrap_or_default();
    for step in &steps {
        let place = format!("{}:{}: {}", page.display(), step.line, step.command);
        let after = parts
            .next()
            .unwrap_or_else(|| panic!("{place}: not run\n{printed}"));
        let (exit, rest) = after.split_once('\n').unwrap_or((after, ""));
        assert_eq!(exit, step.exit.to_string(), "{place}\n{before}");
        let lines: Vec<&str> = before.lines().collect();
        let shown: Vec<&str> = step.shown.iter().map(String::as_str).collect();
        // Between two commands of a block there may be an empty line.
        let shown = match shown.as_slice() {
            [rest @ .., ""] => rest,
            all => all,
        };
        assert!(
            shown.is_empty() || is_as_shown(&lines, shown),
            "{place}\nprints\n{before}\nfor\n{}",
            shown.join("\n")
        );
        before = rest;
    }
}

/// All pages with commands.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = vec![root.join("README.md")];
    let mut dirs = vec![root.join("docs/book/src")];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

#[test]
fn every_command_of_the_readme_and_the_guide_works_as_written() {
    if !has_tool("bash") {
        return;
    }
    let pages = pages();
    std::thread::scope(|scope| {
        for page in &pages {
            scope.spawn(|| run_page(page));
        }
    });
}

#[test]
fn blocks_are_read_as_described() {
    let page = "```console\n$ a\nout\n…\n\n$ b\n> c\n```\n```text\n$ d\n```\n```console,root,exit=4\n$ e\n```\n";
    let user = Able {
        fuse: false,
        root: false,
    };
    let found = steps(page, user);
    assert_eq!(found.len(), 2);
    assert_eq!(found[0].shown, ["out", "…", ""]);
    assert_eq!(found[1].command, "b\nc");
    let root = Able {
        fuse: false,
        root: true,
    };
    assert_eq!(steps(page, root)[2].exit, 4);
    assert!(is_as_shown(&["1", "2", "3"], &["…", "3"]));
    assert!(!is_as_shown(&["1", "2"], &["1"]));
    assert!(!is_as_shown(&[], &["1"]));
}
