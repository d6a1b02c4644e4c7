//! The project's own scripts, run as `cargo xtask NAME`.
//!
//! * `tidy`: the house rules a compiler does not know (also a test of this package, so that
//!   `cargo test` runs them);
//! * `map`: writes the engine's folders into ARCHITECTURE.md;
//! * `house`: the structure of the tree in figures;
//! * `book`: builds the guide into a directory, and fails if a link in it is dead;
//! * `components`: what the released program is made of, as CycloneDX;
//! * `tests`: what the tree has of tests, for a record of the lab.

mod book;
mod components;
mod counts;
mod house;
mod staged;
mod tidy;

use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask tidy|map|house|book DIR|components|tests";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => match tidy::run(&workspace_root()) {
            Ok(complaints) if complaints.is_empty() => ExitCode::SUCCESS,
            Ok(complaints) => {
                for complaint in complaints {
                    eprintln!("{complaint}");
                }
                ExitCode::FAILURE
            }
            Err(error) => failed(&error),
        },
        ["map"] => match tidy::write_map(&workspace_root()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failed(&error),
        },
        ["house"] => match house::House::measure(&workspace_root()) {
            Ok(figures) => {
                println!("{figures}\n{}", house::LEGEND);
                ExitCode::SUCCESS
            }
            Err(error) => failed(&error),
        },
        ["book", out] => match book::build(&workspace_root(), &PathBuf::from(out)) {
            Ok(dead) if dead.is_empty() => ExitCode::SUCCESS,
            Ok(dead) => failed(&format!("dead links:\n{}", dead.join("\n"))),
            Err(error) => failed(&error),
        },
        ["components"] => match components::list(&workspace_root()) {
            Ok(list) => {
                println!("{list:#}");
                ExitCode::SUCCESS
            }
            Err(error) => failed(&error),
        },
        ["tests"] => match counts::count(&workspace_root()) {
            Ok(json) => {
                println!("{json}");
                ExitCode::SUCCESS
            }
            Err(error) => failed(&error),
        },
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn failed(error: &str) -> ExitCode {
    eprintln!("xtask: {error}");
    ExitCode::FAILURE
}

/// The directory above this package's.
fn workspace_root() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root
}
