//! The targets, and whether they are met.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::figures::Figures;
use crate::subject::BUDGET_MIB;

/// The bound of a figure, or of its ratio to another's.
#[derive(Clone, Copy, Debug)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// A figure of ours that must keep to a bound.
#[derive(Debug)]
struct Target {
    what: String,
    subject: &'static str,
    /// Whose figure of the same kind it is divided by.
    over: Option<&'static str>,
    bound: Bound,
}

/// A target, and what was measured; none where it could not be.
#[derive(Debug)]
pub struct Verdict {
    target: Target,
    measured: Option<f64>,
}

/// The memory that the budget does not count may be a tenth of it.
const RESIDENT: f64 = 1.1 * BUDGET_MIB;

/// Bounds of one transport.
struct Transport {
    ours: &'static str,
    ceiling: &'static str,
    passthrough: &'static str,
    /// Times what fuse2fs does, at least.
    names: f64,
    folders: f64,
    /// Times what the kernel takes, at most.
    linux: f64,
}

const TRANSPORTS: [Transport; 2] = [
    Transport {
        ours: "uext4-dev",
        ceiling: "ceiling-dev",
        passthrough: "passthrough-dev",
        names: 6.0,
        folders: 3.0,
        linux: 3.5,
    },
    Transport {
        ours: "uext4-ring",
        ceiling: "ceiling-ring",
        passthrough: "passthrough-ring",
        names: 10.0,
        folders: 5.0,
        linux: 2.5,
    },
];

fn targets() -> Vec<Target> {
    use Bound::{AtLeast, AtMost};
    let mut targets = Vec::new();
    for transport in &TRANSPORTS {
        let mut add = |what: &str, over, bound| {
            targets.push(Target {
                what: what.to_owned(),
                subject: transport.ours,
                over,
                bound,
            });
        };
        for call in ["create", "cold stat", "open+close", "rename", "unlink"] {
            for threads in [1, 4] {
                let what = format!("{call}, {threads} threads");
                add(&what, Some(transport.ceiling), AtLeast(0.7));
                add(&what, Some("fuse2fs"), AtLeast(transport.names));
            }
        }
        let kernel = Some("kernel");
        add("untar Linux + sync", kernel, AtMost(transport.linux));
        // Times the speed, so a part of the time.
        let part = AtMost(1.0 / transport.folders);
        add("untar folders + sync", Some("fuse2fs"), part);
        add("rm -rf folders", Some(transport.passthrough), AtMost(1.3));
        add("rm -rf Linux", Some(transport.passthrough), AtMost(1.3));
        add("find -ls Linux, warm", kernel, AtMost(2.0));
        add("sequential write", Some(transport.ceiling), AtLeast(0.8));
        add("sequential read", Some(transport.ceiling), AtLeast(0.8));
        add("100 writers", None, AtLeast(600.0));
        add("100 writers", Some("fuse2fs"), AtLeast(10.0));
        for mode in ["sqlite, delete", "sqlite, wal"] {
            add(mode, kernel, AtLeast(0.8));
            add(mode, Some(transport.ceiling), AtLeast(0.8));
        }
        add("most resident", None, AtMost(RESIDENT));
    }
    for (what, part) in [
        ("4 KiB, sequential", 0.7),
        ("108 bytes, appended", 0.5),
        ("4 KiB, random", 0.6),
    ] {
        targets.push(Target {
            what: what.to_owned(),
            subject: "uext4-gathering",
            over: Some("kernel"),
            bound: AtLeast(part),
        });
    }
    targets
}

pub fn verdicts(figures: &Figures) -> Vec<Verdict> {
    let measure = |target: &Target| {
        let ours = match target.what.as_str() {
            "most resident" => figures.most(&target.what, target.subject)?,
            what => figures.median(what, target.subject)?,
        };
        Some(match target.over {
            None => ours,
            Some(over) => ours / figures.median(&target.what, over)?,
        })
    };
    let judge = |target| Verdict {
        measured: measure(&target),
        target,
    };
    targets().into_iter().map(judge).collect()
}

impl Verdict {
    fn holds(&self) -> Option<bool> {
        let measured = self.measured?;
        Some(match self.target.bound {
            Bound::AtLeast(bound) => measured >= bound,
            Bound::AtMost(bound) => measured <= bound,
        })
    }

    fn word(&self) -> &'static str {
        match self.holds() {
            Some(true) => "holds",
            Some(false) => "FALLS SHORT",
            None => "not measured",
        }
    }

    fn bound(&self) -> String {
        match self.target.bound {
            Bound::AtLeast(bound) => format!("≥ {bound:.2}"),
            Bound::AtMost(bound) => format!("≤ {bound:.2}"),
        }
    }
}

pub fn text(verdicts: &[Verdict]) -> String {
    let mut text =
        String::from("| target | of | over | bound | measured | |\n|---|---|---|---|---|---|\n");
    for verdict in verdicts.iter().filter(|v| v.measured.is_some()) {
        let target = &verdict.target;
        let measured = verdict.measured.map(|figure| format!("{figure:.2}"));
        _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} |",
            target.what,
            target.subject,
            target.over.unwrap_or_default(),
            verdict.bound(),
            measured.unwrap_or_default(),
            verdict.word()
        );
    }
    let count = |wanted| verdicts.iter().filter(|v| v.holds() == wanted).count();
    let (held, short, unknown) = (count(Some(true)), count(Some(false)), count(None));
    _ = writeln!(
        text,
        "\n{held} hold, {short} fall short, {unknown} not measured"
    );
    text
}

pub fn json(verdicts: &[Verdict]) -> Value {
    let all = verdicts.iter().map(|verdict| {
        json!({
            "what": verdict.target.what,
            "of": verdict.target.subject,
            "over": verdict.target.over,
            "bound": verdict.bound(),
            "measured": verdict.measured,
            "holds": verdict.holds(),
        })
    });
    all.collect()
}
