//! A collection of damaged images of others, as e2fsprogs has them for its own tests: a directory
//! for each, with `image.gz`, and `name` and `script` where there are.
//!
//! `UEXT4_E2FSPROGS_TESTS` names the directory; without it the test says that it was skipped.
//! `UEXT4_E2FSPROGS_TABLE` names a file that a table of what fails is written to.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cases::{assert_none, run};
use crate::judge::{Asked, Fault, Judge, ask, first_findings};

/// Why e2fsck finds more where inodes wait for their deletion.
const ORPHANS: &str = "e2fsck leaves orphans with -n and then finds them; a mount deletes them, so \
    that to us they are no fault";
/// Why e2fsck finds less where the values of attributes are inodes.
const NEWER: &str = "e2fsck finds it in version 1.47.2, and does not in 1.47.0";

/// Images that no repair is expected of, or another verdict than e2fsck's: what may fail, and why.
const DIFFERENCES: &[(&str, &[Fault], &str)] = &[
    (
        "f_crashdisk",
        &[Fault::NoPlan],
        "nothing of the superblock is left, and e2fsck gives up, too",
    ),
    ("f_ea_inode_dir_ref", &[Fault::Disagreement], NEWER),
    ("f_ea_inode_no_feature", &[Fault::Disagreement], NEWER),
    (
        "f_ea_inode_spurious_flag_dir",
        &[Fault::Disagreement],
        NEWER,
    ),
    (
        "f_ext_journal",
        &[Fault::NoPlan],
        "the changes are in a journal on another device, and only together are they whole",
    ),
    (
        "f_hurd",
        &[Fault::Disagreement],
        "e2fsck clears the feature that the Hurd does not know, but with -n does not mention it",
    ),
    (
        "f_inlinedata_repair",
        &[Fault::Unclean],
        "e2fsck does not count that a symbolic link with inline data refers to a block of \
         attributes; one that counts less would lose the block with the other owner",
    ),
    ("f_journal", &[Fault::Disagreement], ORPHANS),
    ("f_orphan", &[Fault::Disagreement], ORPHANS),
    ("f_orphan_extents_inode", &[Fault::Disagreement], ORPHANS),
    ("f_orphan_indirect_inode", &[Fault::Disagreement], ORPHANS),
    (
        "j_ext_dumpe2fs",
        &[Fault::NoPlan],
        "the device holds a journal and no file system",
    ),
    (
        "j_recover_fast_commit",
        &[Fault::Disagreement],
        "e2fsck does not replay the journal with -n, and finds what the replay completes",
    ),
];

#[derive(Clone, Debug)]
struct Case {
    dir: PathBuf,
    /// Its own script runs it: with an external journal, or options.
    is_special: bool,
}

impl Case {
    fn name(&self) -> String {
        let name = self.dir.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }
}

fn cases(root: &Path) -> Vec<Case> {
    let dirs = fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut cases: Vec<_> = dirs
        .filter(|dir| dir.join("image.gz").exists())
        .map(|dir| Case {
            is_special: dir.join("script").exists(),
            dir,
        })
        .collect();
    cases.sort_by_key(Case::name);
    cases
}

/// What fails of a case: a line for each thing.
fn judge_one(judge: &Judge, case: &Case) -> Vec<String> {
    let packed = case.dir.join("image.gz");
    let unpacked = Command::new("gzip")
        .arg("-dc")
        .arg(&packed)
        .output()
        .unwrap();
    let image = unpacked.stdout;
    let complain = |what: String| {
        let special = if case.is_special {
            " (has a script of its own)"
        } else {
            ""
        };
        format!("{}{special} | {what}", case.name())
    };
    let mut failures = Vec::new();
    let verdict = judge.e2fsck(&image);
    match ask(Asked::Examination, &image) {
        Ok(outcome) if !verdict.agrees(outcome.is_clean) => {
            failures.push(complain(format!(
                "{:?} | e2fsck exits {} ({}), we find {:?}",
                Fault::Disagreement,
                verdict.code,
                verdict.complaints,
                first_findings(&outcome)
            )));
        }
        Ok(_) => {}
        Err(complaint) => {
            let what = format!("{:?} | {}", complaint.fault, complaint.said);
            return vec![complain(what)];
        }
    }
    if let Err(complaint) = judge.mended(&image) {
        failures.push(complain(format!(
            "{:?} | {}",
            complaint.fault, complaint.said
        )));
    }
    failures
}

fn table(failures: &[String], count: usize) -> String {
    let mut table = format!("{} misses in {count} images\n\n", failures.len());
    table.push_str("| image | what fails | what was said |\n|---|---|---|\n");
    for line in failures {
        writeln!(table, "| {line} |").unwrap();
    }
    table
}

#[test]
fn images_of_others_are_judged_as_by_e2fsck_and_mended() {
    let Some(root) = std::env::var_os("UEXT4_E2FSPROGS_TESTS") else {
        println!("skipped: UEXT4_E2FSPROGS_TESTS names no directory");
        return;
    };
    let cases = cases(Path::new(&root));
    assert!(
        !cases.is_empty(),
        "no image.gz in any directory of {root:?}"
    );
    let mut failures = run(&cases, Case::name, judge_one);
    if let Some(path) = std::env::var_os("UEXT4_E2FSPROGS_TABLE") {
        fs::write(path, table(&failures, cases.len())).unwrap();
    }
    let is_expected = |line: &String| {
        DIFFERENCES.iter().any(|(name, faults, _)| {
            let is_fault = |fault| line.contains(&format!("| {fault:?} |"));
            line.starts_with(&format!("{name} ")) && faults.iter().any(is_fault)
        })
    };
    failures.retain(|line| !is_expected(line));
    assert_none(&failures, cases.len());
}
