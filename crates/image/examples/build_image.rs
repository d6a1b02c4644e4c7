//! Builds an image: `cargo run --release --example build_image -- SOURCE IMAGE [min]`.
//!
//! SOURCE is a directory, a tar archive, or "-" for one on standard input.

use std::path::Path;
use std::process::ExitCode;

use uext4_image::{BuildOptions, Size, Source, build};

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let (source, image, size) = match &arguments[..] {
        [source, image] => (source, image, Size::Auto),
        [source, image, word] if word == "min" => (source, image, Size::Min),
        _ => {
            eprintln!("usage: build_image SOURCE IMAGE [min]");
            return ExitCode::from(2);
        }
    };
    let source = Source::from_argument(Path::new(source));
    let options = BuildOptions {
        size,
        ..BuildOptions::default()
    };
    let report = match build(&source, Path::new(image), &options, &()) {
        Ok(report) => report,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    for warning in &report.warnings.shown {
        eprintln!("warning: {warning}");
    }
    println!(
        "{} entries, {} bytes of contents",
        report.entries, report.content_bytes
    );
    println!(
        "{} bytes of image, {} blocks free",
        report.image_bytes, report.summary.free_blocks
    );
    for (phase, time) in &report.elapsed {
        println!("{phase:?}: {:.3} s", time.as_secs_f64());
    }
    ExitCode::SUCCESS
}
