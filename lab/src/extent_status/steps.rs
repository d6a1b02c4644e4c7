//! What the kernel did to its trees of extents: read from its trace events, and stored as text.

use std::collections::HashMap;
use std::fmt::Write as _;

use uext4_extent_status::{BATCH, Extent, Status};
use uext4_ondisk::{Lblk, Pblk};

use crate::kernel::trace::Event;

/// One thing that was done, in the order in which the kernel did it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A range of an inode is this from now on.
    Insert { ino: u64, extent: Extent },
    /// The map on the device says this about a range.
    Cache { ino: u64, extent: Extent },
    /// Nothing is known of a range any more.
    Remove { ino: u64, lblk: u32, len: u32 },
    /// A block was looked up: the extent that was found.
    Lookup {
        ino: u64,
        lblk: u32,
        found: Option<Extent>,
    },
    /// The shrinker was called.
    Shrink(Call),
}

/// A call of the shrinker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// Extents to look at.
    pub budget: u32,
    /// Extents that may be dropped, before.
    pub reclaimable: u64,
    /// Extents that were dropped.
    pub shrunk: u64,
    /// Microseconds that it took.
    pub microseconds: u64,
    /// Inodes that were passed over because they were in use.
    pub skipped: u64,
    /// Rounds after the first.
    pub retried: u64,
}

/// The events that [`Steps::add`] understands, each spelled for [`crate::kernel::trace`].
pub const EVENTS: &[&str] = &[
    "ext4/ext4_es_insert_extent",
    "ext4/ext4_es_insert_delayed_extent",
    "ext4/ext4_es_cache_extent",
    "ext4/ext4_es_remove_extent",
    "ext4/ext4_es_lookup_extent_enter",
    "ext4/ext4_es_lookup_extent_exit",
    "ext4/ext4_es_shrink",
    "ext4/ext4_es_shrink_scan_enter",
];

/// Brings events into steps: what one thread says in two of them is one step.
#[derive(Debug, Default)]
pub struct Steps {
    pub all: Vec<Step>,
    /// By thread: the block that it is looking up, and what it is going to shrink by.
    blocks: HashMap<u32, u32>,
    budgets: HashMap<u32, (u32, u64)>,
}

impl Steps {
    /// Adds what an event says; others are left out.
    pub fn add(&mut self, event: &Event) {
        if let Some(step) = self.step(event) {
            self.all.push(step);
        }
    }

    fn step(&mut self, event: &Event) -> Option<Step> {
        let number = |key: &str| u64::try_from(event.number(key)?).ok();
        match event.name.as_str() {
            "ext4_es_insert_extent" | "ext4_es_insert_delayed_extent" => Some(Step::Insert {
                ino: number("ino")?,
                extent: extent(event, "es", "mapped", "status")?,
            }),
            "ext4_es_cache_extent" => Some(Step::Cache {
                ino: number("ino")?,
                extent: extent(event, "es", "mapped", "status")?,
            }),
            "ext4_es_remove_extent" => {
                let (lblk, len) = range(event.word("es")?)?;
                let ino = number("ino")?;
                Some(Step::Remove { ino, lblk, len })
            }
            "ext4_es_lookup_extent_enter" => {
                let lblk = number("lblk").and_then(|lblk| u32::try_from(lblk).ok())?;
                self.blocks.insert(event.pid, lblk);
                None
            }
            "ext4_es_lookup_extent_exit" => Some(Step::Lookup {
                ino: number("ino")?,
                lblk: self.blocks.remove(&event.pid)?,
                found: found(event)?,
            }),
            "ext4_es_shrink_scan_enter" => {
                let budget = number("nr_to_scan").and_then(|budget| u32::try_from(budget).ok())?;
                let before = number("cache_cnt")?;
                self.budgets.insert(event.pid, (budget, before));
                None
            }
            "ext4_es_shrink" => {
                // Without a call before it: memory for an extent was missing, a batch is dropped.
                let call = self.budgets.remove(&event.pid);
                let (budget, reclaimable) = call.unwrap_or((BATCH as u32, 0));
                Some(Step::Shrink(Call {
                    budget,
                    reclaimable,
                    shrunk: number("nr_shrunk")?,
                    microseconds: number("scan_time")?,
                    skipped: number("nr_skipped")?,
                    retried: number("retried")?,
                }))
            }
            _ => None,
        }
    }
}

/// Reads `[first/length)`. The kernel removes up to the last block that there can be.
fn range(word: &str) -> Option<(u32, u32)> {
    let (first, len) = word.strip_prefix('[')?.strip_suffix(')')?.split_once('/')?;
    let first: u32 = first.parse().ok()?;
    let len: u64 = len.parse().ok()?;
    // One fewer than there are, as in the kernel: the end of an extent is a number of a block, too.
    let len = len.min(u64::from(u32::MAX - first));
    Some((first, u32::try_from(len).ok()?))
}

fn status(letters: &str) -> Option<Status> {
    match letters.trim_end_matches('R') {
        "W" => Some(Status::Written),
        "U" => Some(Status::Unwritten),
        "D" => Some(Status::Delayed),
        "H" => Some(Status::Hole),
        _ => None,
    }
}

fn letter(status: Status) -> char {
    match status {
        Status::Written => 'W',
        Status::Unwritten => 'U',
        Status::Delayed => 'D',
        Status::Hole => 'H',
    }
}

/// An extent of these, whose place counts only if it has one.
fn of((lblk, len): (u32, u32), pblk: u64, status: Status) -> Extent {
    let is_mapped = matches!(status, Status::Written | Status::Unwritten);
    Extent {
        lblk: Lblk(lblk),
        len,
        pblk: Pblk(if is_mapped { pblk } else { 0 }),
        status,
    }
}

fn extent(event: &Event, es: &str, mapped: &str, letters: &str) -> Option<Extent> {
    let pblk = event.word(mapped)?.parse().unwrap_or(0);
    Some(of(
        range(event.word(es)?)?,
        pblk,
        status(event.word(letters)?)?,
    ))
}

/// What a lookup found: `found 1 [0/1) 8481 WR`. The outer `None`: it cannot be read.
fn found(event: &Event) -> Option<Option<Extent>> {
    let mut words = event.fields.split_ascii_whitespace();
    words.find(|word| *word == "found")?;
    if words.next()? == "0" {
        return Some(None);
    }
    let range = range(words.next()?)?;
    let pblk = words.next()?.parse().unwrap_or(0);
    Some(Some(of(range, pblk, status(words.next()?)?)))
}

/// One line a step.
pub fn write(steps: &[Step]) -> String {
    let mut text = String::new();
    for step in steps {
        // A string takes all that is written.
        _ = match step {
            Step::Insert { ino, extent } => writeln!(text, "i {ino} {}", spell(extent)),
            Step::Cache { ino, extent } => writeln!(text, "c {ino} {}", spell(extent)),
            Step::Remove { ino, lblk, len } => writeln!(text, "r {ino} {lblk} {len}"),
            Step::Lookup { ino, lblk, found } => match found {
                None => writeln!(text, "m {ino} {lblk}"),
                Some(extent) => writeln!(text, "l {ino} {lblk} {}", spell(extent)),
            },
            Step::Shrink(call) => writeln!(
                text,
                "s {} {} {} {} {} {}",
                call.budget,
                call.reclaimable,
                call.shrunk,
                call.microseconds,
                call.skipped,
                call.retried
            ),
        };
    }
    text
}

fn spell(extent: &Extent) -> String {
    let (lblk, len) = (extent.lblk.0, extent.len);
    format!("{lblk} {len} {} {}", extent.pblk.0, letter(extent.status))
}

/// Reads what [`write()`] has written.
///
/// # Errors
/// The line that is no step.
pub fn read(text: &str) -> Result<Vec<Step>, String> {
    let read = |line: &str| step(line).ok_or_else(|| format!("{line:?} is no step"));
    text.lines().map(read).collect()
}

fn step(line: &str) -> Option<Step> {
    let words: Vec<&str> = line.split(' ').collect();
    let number = |at: usize| words.get(at)?.parse::<u64>().ok();
    let short = |at: usize| u32::try_from(number(at)?).ok();
    let extent = |at: usize| {
        let range = (short(at)?, short(at + 1)?);
        Some(of(range, number(at + 2)?, status(words.get(at + 3)?)?))
    };
    match *words.first()? {
        "s" => Some(Step::Shrink(Call {
            budget: short(1)?,
            reclaimable: number(2)?,
            shrunk: number(3)?,
            microseconds: number(4)?,
            skipped: number(5)?,
            retried: number(6)?,
        })),
        kind => {
            let ino = number(1)?;
            match kind {
                "i" => Some(Step::Insert {
                    ino,
                    extent: extent(2)?,
                }),
                "c" => Some(Step::Cache {
                    ino,
                    extent: extent(2)?,
                }),
                "r" => Some(Step::Remove {
                    ino,
                    lblk: short(2)?,
                    len: short(3)?,
                }),
                "m" | "l" => Some(Step::Lookup {
                    ino,
                    lblk: short(2)?,
                    found: match kind {
                        "m" => None,
                        _ => Some(extent(3)?),
                    },
                }),
                _ => None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::trace;

    const TEXT: &str = "\
a-7 [000] ..... 1: ext4_es_lookup_extent_enter: dev 7,0 ino 12 lblk 5
a-8 [001] ..... 2: ext4_es_insert_delayed_extent: dev 7,0 ino 13 es [2/1) mapped 576460752303423487 \
status D allocated 0 0
a-7 [000] ..... 3: ext4_es_lookup_extent_exit: dev 7,0 ino 12 found 1 [4/2) 8481 WR
a-7 [000] ..... 4: ext4_es_cache_extent: dev 7,0 ino 12 es [6/10) mapped 576460752303423487 status H
a-7 [000] ..... 5: ext4_es_remove_extent: dev 7,0 ino 12 es [4/4294967295)
a-7 [000] ..... 6: ext4_es_lookup_extent_enter: dev 7,0 ino 12 lblk 5
a-7 [000] ..... 7: ext4_es_lookup_extent_exit: dev 7,0 ino 12 found 0 [0/0) 0 
a-7 [000] ..... 8: ext4_es_shrink_scan_enter: dev 7,0 nr_to_scan 100 cache_cnt 40
a-7 [000] ..... 9: ext4_es_shrink: dev 7,0 nr_shrunk 30, scan_time 18 nr_skipped 2 retried 1
";

    #[test]
    fn events_become_steps_and_survive_as_text() {
        let mut steps = Steps::default();
        for event in trace::parse(TEXT.as_bytes()) {
            steps.add(&event);
        }
        let written = of((4, 2), 8481, Status::Written);
        let expected = [
            Step::Insert {
                ino: 13,
                extent: of((2, 1), 0, Status::Delayed),
            },
            Step::Lookup {
                ino: 12,
                lblk: 5,
                found: Some(written),
            },
            Step::Cache {
                ino: 12,
                extent: of((6, 10), 0, Status::Hole),
            },
            Step::Remove {
                ino: 12,
                lblk: 4,
                len: u32::MAX - 4,
            },
            Step::Lookup {
                ino: 12,
                lblk: 5,
                found: None,
            },
            Step::Shrink(Call {
                budget: 100,
                reclaimable: 40,
                shrunk: 30,
                microseconds: 18,
                skipped: 2,
                retried: 1,
            }),
        ];
        assert_eq!(steps.all, expected);
        assert_eq!(read(&write(&steps.all)), Ok(steps.all));
    }

    #[test]
    fn a_line_that_is_no_step_is_named() {
        for line in [
            "",
            "x 1 2 3",
            "i 1 2 3 4",
            "i 1 2 3 4 Z",
            "s 1 2 3",
            "r 1 -2 3",
        ] {
            assert!(read(&format!("m 1 2\n{line}\n")).is_err(), "{line:?}");
        }
    }
}
