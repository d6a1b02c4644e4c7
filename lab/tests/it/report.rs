//! The report, as a browser shows it.

use std::fs;
use std::path::Path;
use std::process::Command;

use uext4_testkit::has_tool;

use crate::lab;

/// Lines of the browser's log that a page causes, not the machine.
const CONSOLE: &str = ":CONSOLE:";

/// A page is made of a record, needs nothing beside it, and no browser complains of it.
#[test]
fn a_browser_shows_the_report_without_complaint() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("2014-06-30-test");
    let folder = folder.to_str().unwrap();
    let run = ["run", "writeback-disk", "--into", folder];
    // Its gates are not what is tested here.
    assert!(lab(&run).status.code().is_some_and(|code| code < 2));
    let page = place.path().join("report.html");
    let output = lab(&["report", folder, "--out", page.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = fs::read_to_string(&page).unwrap();
    assert!(text.contains("writeback-disk") && text.contains("no record of it in this folder"));
    for outside in ["src=\"http", "href=\"http", "url(", "<script", "@import"] {
        assert!(!text.contains(outside), "{outside}");
    }
    if has_tool("chromium") {
        for (name, size) in [("desktop", "1280,1600"), ("phone", "390,1600")] {
            shoot(&page, name, size);
        }
    }
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
