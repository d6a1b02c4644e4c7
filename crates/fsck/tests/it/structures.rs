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
    let (Some(ours), Some(theirs)) = (contents(ours), contents(theirs)) else {
        return vec![format!("{}: cannot be read", name(case))];
    };
    let missing = theirs.missing(&ours, &Hurt::default());
    let lines = missing.into_iter().take(2);
    lines
        .map(|line| format!("{}: {line}", name(case)))
        .collect()
}

#[test]
fn copies_in_the_journal_take_no_table_from_its_place() {
    if !has_tool("e2fsck") {
        return;
    }
    let cases = kinds().filter(|kind| kind.name.ends_with("-with-a-copy-in-the-journal"));
    let cases: Vec<_> = cases.flat_map(on_all_images).collect();
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
        let all = on_all_images(kind);
        let images = images::ALL.len();
        // Of a quick run: on four of the images.
        let first = pick(kind.name) % 6;
        let is_meant = move |case: &Case| is_long() || (case.1 + images - first) % 6 == 0;
        all.filter(is_meant)
    };
    let cases: Vec<_> = kinds().filter(is_of_groups).flat_map(of_kind).collect();
    let failures = run(&cases, name, judge_both);
    assert_none(&failures, cases.len());
}
