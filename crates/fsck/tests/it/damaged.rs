//! Every kind of damage: whether e2fsck sees it, whether the examination does, and what a repair
//! makes of it.
//!
//! Without `UEXT4_LONG` each kind is tried on one image, with its sums right or stale in turn.
//! `UEXT4_KIND=NAME` tries the kinds whose names contain this, on all images.

use uext4_testkit::damage::images::{self, Sample};
use uext4_testkit::damage::{Kind, Sums, kinds};
use uext4_testkit::has_tool;

use crate::cases::{assert_none, is_long, pick, run};
use crate::judge::{Asked, Fault, Judge, ask, first_findings};

/// Seeds of the long run.
const SEEDS: u64 = 3;

/// Where the examination and e2fsck may differ: kind, image (all if empty), and why.
const DIFFERENCES: &[(&str, &str, &str)] = &[
    ("superblock-reserved-descriptors", "super2", RESERVED),
    ("superblock-revision-0", "small-inodes", SILENT),
    ("superblock-extents-on-the-hurd", "", SILENT),
    ("superblock-hash-version", "", HASH),
    ("superblock-without-ea-inode", "", EA_FEATURE),
    ("inode-ea-flag", "", EA_FLAG),
    ("inode-ea-flag-without-the-feature", "", EA_FLAG),
    ("extent-depth-of-an-inner-node", "", DEPTH),
    ("extent-depth-zero-of-an-inner-node", "", DEPTH),
    ("entry-type-none", "inline", TYPE),
    ("entry-type-none", "inline-512", TYPE),
    ("inode-verity-flag-without-the-feature", "", VERITY),
    ("attributes-name-index", "small-inodes", ORDER),
    ("attributes-end-missing", "", NAME),
    ("inner-attributes-name-length", "inline-512", NAME),
    ("attribute-inode-content", "", VALUE),
    ("attribute-inode-size-in-the-entry", "", SIZE),
    ("quota-magic", "", QUOTA),
    ("orphan-list-outside", "", ORPHANS),
    ("orphan-list-reserved", "", ORPHANS),
    ("orphan-list-unused", "", ORPHANS),
    ("orphan-list-of-the-root", "", ORPHANS),
    ("inode-time-past-2310", "", PAST),
    ("journal-error-number", "super2", WRITES),
    ("journal-inode-links", "ext3", JOURNAL),
    ("journal-inode-encrypted", "ext3", JOURNAL),
    ("journal-version-1", "", JOURNAL),
    ("journal-length-short", "", JOURNAL),
    ("journal-length-zero", "", JOURNAL),
    ("journal-first-block", "", JOURNAL),
    ("journal-first-block-zero", "", JOURNAL),
    ("journal-fast-commit-blocks", "", JOURNAL),
    ("journal-device", "", JOURNAL),
];

const PAST: &str = "a time that inodes hold: whether it was meant, no structure says";
const RESERVED: &str = "a number alone, which says nothing without the feature resize_inode";
const SILENT: &str = "e2fsck mends it, but does not say so with -n";
const HASH: &str = "the kernel refuses to mount with an unknown default hash";
const EA_FEATURE: &str = "the kernel refuses to read such attributes without the feature";
const EA_FLAG: &str = "the kernel refuses to open an inode with the flag by a name";
const DEPTH: &str = "the kernel refuses to read a map with a node of another depth than it has";
const TYPE: &str = "e2fsck complains of it in every file system but those with inline data";
const VERITY: &str = "the kernel refuses to open a file with the flag without the feature";
const VALUE: &str = "the kernel refuses to read a value whose hash is not that of its bytes";
const ORDER: &str = "the kernel does not find an attribute behind one that belongs behind it";
const NAME: &str = "the kernel refuses attributes of which a name has a zero in it";
const SIZE: &str = "the kernel refuses to read a value of another size than its entry says";
const QUOTA: &str = "the kernel refuses to mount with such a quota file";
const WRITES: &str = "e2fsck tries to write, in spite of -n, and fails";
const ORPHANS: &str = "with -n e2fsck does not walk the list; without, it clears the head";
const JOURNAL: &str = "the kernel refuses to mount with such a journal, though its log is empty";

/// One image to damage in one way.
#[derive(Clone, Copy, Debug)]
struct Case {
    kind: &'static Kind,
    image: usize,
    sums: Sums,
    seed: u64,
}

impl Case {
    fn name(&self) -> String {
        let image = images::ALL[self.image].name;
        format!(
            "{} on {image}, sums {:?}, seed {}",
            self.kind.name, self.sums, self.seed
        )
    }

    fn may_differ(&self) -> bool {
        let image = images::ALL[self.image].name;
        let is_it = |row: &&(&str, &str, &str)| {
            row.0 == self.kind.name && (row.1.is_empty() || row.1 == image)
        };
        DIFFERENCES.iter().any(|row| is_it(&row))
    }
}

/// The cases of a run. Of a quick one: for each kind one image that it finds a place in.
fn cases() -> Vec<Case> {
    let only = std::env::var("UEXT4_KIND").unwrap_or_default();
    let is_all = is_long() || !only.is_empty();
    let mut cases = Vec::new();
    for kind in kinds().filter(|kind| kind.name.contains(&only)) {
        let sums = [Sums::Right, Sums::Stale];
        let first = pick(kind.name);
        let images = (0..images::ALL.len()).map(|i| (i + first) % images::ALL.len());
        let of_all = images.flat_map(|image| sums.map(|sums| (image, sums)));
        let of_all = of_all.flat_map(|(image, sums)| {
            let seeds = if is_all { SEEDS } else { 1 };
            (0..seeds).map(move |seed| Case {
                kind,
                image,
                sums,
                seed,
            })
        });
        match is_all {
            true => cases.extend(of_all),
            false => cases.extend(of_all.filter(is_placed).take(1)),
        }
    }
    assert!(!cases.is_empty(), "no kind is named {only:?}");
    cases
}

/// Whether the case has a place; of each second kind only with stale sums.
fn is_placed(case: &Case) -> bool {
    let sample = images::sample(case.image);
    let has_sums = sample.survey.geometry.csum_seed.is_some();
    let wanted = match pick(case.kind.name).is_multiple_of(2) && has_sums {
        true => Sums::Stale,
        false => Sums::Right,
    };
    case.sums == wanted
        && case
            .kind
            .apply(&sample.survey, case.sums, case.seed)
            .is_some()
}

/// What fails of a case.
fn judge_one(judge: &Judge, case: &Case) -> Vec<String> {
    let sample = images::sample(case.image);
    let Some(damaged) = case.kind.apply(&sample.survey, case.sums, case.seed) else {
        return Vec::new();
    };
    let complain = |what: String| format!("{}: {what}", case.name());
    let mut failures = Vec::new();
    let verdict = judge.e2fsck(&damaged.bytes);
    match ask(Asked::Examination, &damaged.bytes) {
        Err(complaint) if complaint.fault == Fault::NoPlan => {}
        Err(complaint) => return vec![complain(complaint.to_string())],
        Ok(outcome) if !verdict.agrees(outcome.is_clean) && !case.may_differ() => {
            let ours = first_findings(&outcome);
            failures.push(complain(format!(
                "{:?}: e2fsck exits {} ({}), we find {ours:?}",
                Fault::Disagreement,
                verdict.code,
                verdict.complaints
            )));
        }
        Ok(_) => {}
    }
    match judge.repair(sample, &damaged.bytes, &damaged.hurt) {
        Err(complaint) if case.kind.hopeless.is_some() && complaint.fault == Fault::NoPlan => {}
        Err(complaint) => failures.push(complain(complaint.to_string())),
        Ok(_) => {}
    }
    failures
}

#[test]
fn every_kind_of_damage_is_real() {
    if !has_tool("e2fsck") {
        return;
    }
    let cases: Vec<_> = cases().into_iter().filter(|case| case.seed == 0).collect();
    let failures = run(&cases, Case::name, |judge, case| {
        let sample = images::sample(case.image);
        let damaged = case.kind.apply(&sample.survey, case.sums, case.seed);
        let verdict = damaged.map(|damaged| judge.e2fsck(&damaged.bytes));
        match verdict {
            Some(verdict)
                if !verdict.is_seen() && case.kind.unseen.is_none() && !case.may_differ() =>
            {
                vec![format!("{}: e2fsck finds nothing", case.name())]
            }
            _ => Vec::new(),
        }
    });
    assert_none(&failures, cases.len());
}

#[test]
fn every_kind_of_damage_is_found_and_mended() {
    if !has_tool("e2fsck") {
        return;
    }
    let cases = cases();
    let failures = run(&cases, Case::name, judge_one);
    assert_none(&failures, cases.len());
}

#[test]
fn images_without_damage_give_no_finding() {
    if !has_tool("e2fsck") {
        return;
    }
    let samples: Vec<&Sample> = images::all().collect();
    let failures = run(
        &samples,
        |sample| sample.kind.name.to_owned(),
        |_, sample| {
            let said = match ask(Asked::Examination, &sample.survey.bytes) {
                Err(complaint) => complaint.to_string(),
                Ok(outcome) if outcome.is_clean => return Vec::new(),
                Ok(outcome) => first_findings(&outcome),
            };
            vec![format!("{}: {said}", sample.kind.name)]
        },
    );
    assert_none(&failures, samples.len());
}
