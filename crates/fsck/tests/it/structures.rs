//! What a repair takes for lost: never a structure whose files a repair by e2fsck keeps.

use std::panic::catch_unwind;

use uext4_testkit::damage::images;
use uext4_testkit::damage::{Contents, Damaged, Hurt, Kind, Sums, Survey, kinds};
use uext4_testkit::has_tool;

use crate::cases::{assert_none, is_long, pick, run};
use crate::judge::{Fault, Judge};

/// One kind of damage on one image.
type Case = (&'static Kind, usize, Sums);

fn name(&(kind, image, sums): &Case) -> String {
    let image = images::ALL[image].name;
    format!("{} on {image}, sums {sums:?}", kind.name)
}

fn damaged(&(kind, image, sums): &Case) -> Option<Damaged> {
    kind.apply(&images::sample(image).survey, sums, 1)
}

fn on_all_images(kind: &'static Kind) -> impl Iterator<Item = Case> {
    let images = 0..images::ALL.len();
    images.flat_map(move |image| [Sums::Right, Sums::Stale].map(|sums| (kind, image, sums)))
}

fn contents(image: Vec<u8>) -> Option<Contents> {
    catch_unwind(|| Contents::new(&Survey::new(image))).ok()
}

/// What e2fsck keeps of an image and our repair does not.
fn judge_both(judge: &Judge, case: &Case) -> Vec<String> {
    let Some(damaged) = damaged(case) else {
        return Vec::new();
    };
    let ours = match judge.mended(&damaged.bytes) {
        Ok(mended) => mended,
        Err(complaint) if case.0.hopeless.is_some() && complaint.fault == Fault::NoPlan => {
            return Vec::new();
        }
        Err(complaint) => return vec![format!("{}: {complaint}", name(case))],
    };
    if !judge.can_e2fsck_mend(&damaged.bytes) {
        return Vec::new();
    }
    let theirs = std::fs::read(judge.path()).unwrap();
    let Some(ours) = contents(ours) else {
        return vec![format!("{}: cannot be read", name(case))];
    };
    let Some(theirs) = contents(theirs) else {
        return Vec::new();
    };
    // What e2fsck makes of noise is no measure: only what was there before is.
    let clean = &images::sample(case.1).contents;
    let lost = clean.missing(&ours, &Hurt::default());
    match clean.missing(&theirs, &Hurt::default()).is_empty() {
        true => lost
            .iter()
            .map(|line| format!("{}: {line}", name(case)))
            .collect(),
        false if ours.len() < theirs.len().min(clean.len()) => {
            let (ours, theirs) = (ours.len(), theirs.len());
            vec![format!(
                "{}: {ours} files, e2fsck keeps {theirs}",
                name(case)
            )]
        }
        false => Vec::new(),
    }
}

#[test]
fn copies_in_the_journal_take_no_table_from_its_place() {
    if !has_tool("e2fsck") {
        return;
    }
    let cases = kinds().filter(|kind| kind.name.ends_with("-with-a-copy-in-the-journal"));
    // Of a quick run: on a third of the images.
    let is_meant = |case: &Case| is_long() || case.1.is_multiple_of(3);
    let cases: Vec<_> = cases.flat_map(on_all_images).filter(is_meant).collect();
    let failures = run(&cases, name, |judge, case| {
        let sample = images::sample(case.1);
        let Some(damaged) = damaged(case) else {
            return Vec::new();
        };
        let judged = judge.repair(sample, &damaged.bytes, &damaged.hurt);
        let complaint = judged.err();
        complaint
            .map(|complaint| format!("{}: {complaint}", name(case)))
            .into_iter()
            .collect()
    });
    assert_none(&failures, cases.len());
}

#[test]
fn no_table_is_lost_that_e2fsck_keeps() {
    if !has_tool("e2fsck") {
        return;
    }
    let is_of_groups = |kind: &&Kind| kind.name.starts_with("group-");
    let of_kind = |kind: &'static Kind| {
        // Of a quick run: on one image.
        let image = pick(kind.name) % images::ALL.len();
        on_all_images(kind).filter(move |case| is_long() || case.1 == image)
    };
    let cases: Vec<_> = kinds().filter(is_of_groups).flat_map(of_kind).collect();
    let failures = run(&cases, name, judge_both);
    assert_none(&failures, cases.len());
}
