//! The project's own scripts, run as `cargo xtask NAME`.
//!
//! * `tidy`: the house rules a compiler does not know (also a test of this package, so that
//!   `cargo test` tells).

mod tidy;

use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask tidy";

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
            Err(error) => {
                eprintln!("xtask: {error}");
                ExitCode::FAILURE
            }
        },
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// The directory above this package's.
fn workspace_root() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root
}
