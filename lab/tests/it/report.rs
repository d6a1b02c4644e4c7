//! The report, as a browser shows it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use uext4_testkit::has_tool;

use crate::lab;

/// Lines of the browser's log that a page causes, not the machine.
const CONSOLE: &str = ":CONSOLE:";

/// A folder that has one record of many makes a page, and what is missing says so.
#[test]
fn a_folder_that_is_not_whole_makes_a_page() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("2014-06-30-test");
    let folder = folder.to_str().unwrap();
    let run = ["run", "writeback-disk", "--into", folder];
    // Its gates are not what is tested here.
    assert!(lab(&run).status.code().is_some_and(|code| code < 2));
    let text = fs::read_to_string(page(place.path(), &[folder])).unwrap();
    assert!(text.contains("writeback-disk") && text.contains("no record of it in this folder"));
}

/// The page of the newest record needs no other file, and no browser complains of it.
#[test]
fn a_browser_shows_the_report_without_complaint() {
    let place = tempfile::tempdir().unwrap();
    let page = page(place.path(), &[]);
    let text = fs::read_to_string(&page).unwrap();
    for outside in ["src=\"http", "href=\"http", "url(", "<script", "@import"] {
        assert!(!text.contains(outside), "{outside}");
    }
    assert!(text.contains("<svg") && !text.contains("Nothing is known of the kernel"));
    if has_tool("chromium") {
        for (name, size) in [("desktop", "1280,1600"), ("phone", "390,1600")] {
            shoot(&page, name, size);
        }
    }
}

/// Makes the page of a folder; of the newest record of the repository if none is named.
fn page(place: &Path, folder: &[&str]) -> PathBuf {
    let page = place.join("report.html");
    let output = Command::new(env!("CARGO_BIN_EXE_uext4-lab"))
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .arg("report")
        .args(folder)
        .arg("--out")
        .arg(&page)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    page
}

/// Opens the page and keeps a picture of it under `target`.
fn shoot(page: &Path, name: &str, size: &str) {
    let picture = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("report-{name}.png"));
    let _ = fs::remove_file(&picture);
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new("chromium")
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
        ])
        .args(["--enable-logging=stderr", "--virtual-time-budget=2000"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("--window-size={size}"))
        .arg(format!("--screenshot={}", picture.display()))
        .arg(format!("file://{}", page.display()))
        .output()
        .expect("chromium starts");
    let log = String::from_utf8_lossy(&output.stderr);
    let complaints: Vec<_> = log.lines().filter(|line| line.contains(CONSOLE)).collect();
    assert!(complaints.is_empty(), "{complaints:?}");
    assert!(picture.exists(), "{output:?}");
}
