//! The guide of the lab is true: what it quotes is there, and what it reports to do works.

use std::fs;
use std::path::Path;

use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag, TagEnd};

use crate::lab;

/// A block of code of the guide.
struct Block {
    /// What stands behind its opening fence.
    info: String,
    text: String,
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn blocks() -> Vec<Block> {
    let guide = fs::read_to_string(root().join("docs/lab.md")).unwrap();
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for event in Parser::new(&guide) {
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => {
                open = Some(Block {
                    info: info.to_string(),
                    text: String::new(),
                });
            }
            Event::Text(text) => {
                if let Some(block) = &mut open {
                    block.text.push_str(&text);
                }
            }
            Event::End(TagEnd::CodeBlock) => blocks.extend(open.take()),
            _ => {}
        }
    }
    blocks
}

#[test]
fn quotations_are_in_the_file_that_is_named() {
    let mut quoted = 0;
    for block in blocks() {
        let Some((_, file)) = block.info.split_once("file=") else {
            continue;
        };
        let text = fs::read_to_string(root().join(file)).unwrap();
        assert!(
            text.contains(&block.text),
            "{file}: not there:\n{}",
            block.text
        );
        quoted += 1;
    }
    assert!(quoted >= 3, "{quoted} quoted blocks");
}

#[test]
fn the_claim_of_the_guide_runs_and_is_judged() {
    let mut claims = blocks();
    claims.retain(|block| block.info == "toml");
    assert_eq!(claims.len(), 1);
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("mine.toml");
    fs::write(&file, &claims[0].text).unwrap();
    let output = lab(&["run", "--file", file.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}\n{output:?}");
    let verdict = text.lines().last().unwrap_or_default();
    assert!(
        verdict.starts_with("beaten") && verdict.contains("extent-status-mine"),
        "{text}"
    );
}

#[test]
fn commands_of_the_guide_exist() {
    let mut seen = 0;
    for block in blocks() {
        for line in block.text.lines().filter(|_| block.info == "console") {
            let Some(command) = line.strip_prefix("$ uext4-lab ") else {
                continue;
            };
            let name = command.split(' ').next().unwrap_or_default();
            let output = lab(&[name, "--help"]);
            assert_eq!(output.status.code(), Some(0), "{command}");
            let help = String::from_utf8_lossy(&output.stdout).into_owned();
            let options = command.split('#').next().unwrap_or_default().split(' ');
            for option in options.filter(|word| word.starts_with("--")) {
                assert!(help.contains(option), "{command}: {option}");
            }
            seen += 1;
        }
    }
    assert!(seen >= 10, "{seen} commands");
}

#[test]
fn a_file_that_is_no_claim_is_a_usage_error() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("bad.toml");
    fs::write(&file, "name = 'x'\n").unwrap();
    for path in [file.as_path(), Path::new("/no/such/file.toml")] {
        let output = lab(&["run", "--file", path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    }
}
