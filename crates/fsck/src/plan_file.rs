//! A plan as lines of JSON, to be read, kept, and applied later.
//!
//! ```text
//! {"plan":2,…}       what device it belongs to: its length, digests of its superblock and of all
//!                    that the examination read
//! {"read":[…]}       the bytes of the device that it read: where they begin and end
//! {"finding":3,…}    each finding, in order
//! {"write":131,…}    each block: a digest of what it was, and the bytes that change
//! {"end":…}          SHA-256 of all lines before
//! ```
//! Who applies it gets exactly these bytes, or is refused: every byte that the plan was made from
//! must still be what it was.

mod relied;

use std::collections::HashMap;
use std::io::{self, BufRead, Write};
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uext4_blockdev::BlockDevice;
use uext4_ondisk::num::len64;
use uext4_ondisk::superblock::SUPERBLOCK_OFFSET;
use uext4_ondisk::{BlockSize, Pblk};
use uext4_redo::{LogRun, UnfinishedRepair};

use crate::account::Lost;
use crate::error::{Error, Result};
use crate::finding::Finding;
use crate::overlay::{ChangedBlock, Overlay};
use crate::redo::Writes;
use crate::report::Cause;
pub use relied::Recorded;

/// The version of the form.
const VERSION: u32 = 2;
/// Ranges of a line.
const RANGES_MAX: usize = 1000;
/// Equal bytes between two changes that are shown as one.
const GAP: usize = 8;
/// Bytes that a line may have at least: a block of 64 KiB, twice in hexadecimal, and some more.
/// Numbers of causes come on top of that, as many as findings are shown.
const LINE_MAX: u64 = 1 << 20;

#[derive(Debug, Serialize, Deserialize)]
struct Head {
    plan: u32,
    device_len: u64,
    block_size: u32,
    superblock_sha256: String,
    /// Of all that the examination read.
    read_sha256: String,
    /// How many ranges of bytes that were.
    read_ranges: u64,
    findings: u64,
    writes: u64,
    /// Whether the result is a consistent file system. If not, the plan is only to be read.
    consistent: bool,
    /// What it takes out of the tree; not there if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lost: Option<LostLine>,
    /// The runs of blocks of the redo log, if there is room for one.
    log: Option<Vec<LogRun>>,
}

/// What a plan takes out of the tree: the fields of [`Lost`].
#[derive(Debug, Serialize, Deserialize)]
struct LostLine {
    files: u64,
    names: u64,
    bytes: u64,
    attributes: u64,
    with_structures: u64,
    #[serde(default)]
    journal_blocks: u64,
}

impl LostLine {
    fn new(lost: &Lost) -> Self {
        Self {
            files: lost.files,
            names: lost.names,
            bytes: lost.bytes,
            attributes: lost.attributes,
            with_structures: lost.with_structures,
            journal_blocks: lost.journal_blocks,
        }
    }
}

/// Some ranges of the bytes that the examination read: where each begins and ends.
#[derive(Debug, Serialize, Deserialize)]
struct ReadLine {
    read: Vec<(u64, u64)>,
}

/// The line of a finding.
#[derive(Debug, Serialize)]
struct FindingLine {
    /// Its number, which writes name as their cause.
    finding: u32,
    problem: &'static str,
    structure: &'static str,
    severity: &'static str,
    loses: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inode: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logical_block: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    found: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    right: Option<u64>,
    text: String,
    remedy: String,
}

impl FindingLine {
    /// The line of a finding with this number. A name that is no UTF-8 is escaped.
    pub fn new(number: u32, finding: &Finding) -> Self {
        let info = finding.problem.info();
        let place = &finding.place;
        let name = |name: &Vec<u8>| match std::str::from_utf8(name) {
            Ok(name) => name.to_owned(),
            Err(_) => name.escape_ascii().to_string(),
        };
        Self {
            finding: number,
            problem: info.name,
            structure: finding.problem.structure(),
            severity: info.severity.name(),
            loses: info.loss.name(),
            group: place.group.map(|group| group.0),
            inode: place.ino.map(|ino| ino.0),
            logical_block: place.lblk.map(|lblk| lblk.0),
            block: place.block.map(|block| block.0),
            offset: place.offset,
            name: place.name.as_ref().map(name),
            found: finding.found,
            right: finding.right,
            text: finding.to_string(),
            remedy: finding.remedy(),
        }
    }
}

/// A write: the bytes of a block that change.
#[derive(Debug, Serialize, Deserialize)]
pub struct WriteLine {
    /// The block.
    pub write: u64,
    /// The findings that it mends.
    pub causes: Vec<u32>,
    /// SHA-256 of the whole block before.
    was_sha256: String,
    /// What changes.
    pub changes: Vec<Bytes>,
}

/// Bytes of a block that change.
#[derive(Debug, Serialize, Deserialize)]
pub struct Bytes {
    /// The first of them in the block.
    pub at: usize,
    /// What they were, in hexadecimal.
    pub was: String,
    /// What they become.
    pub becomes: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct End {
    end: String,
}

/// What a plan says of itself.
#[derive(Clone, Copy, Debug)]
pub struct Planned<'a> {
    /// What was found.
    pub findings: &'a [(Cause, Finding)],
    /// Whether the result is a consistent file system.
    pub consistent: bool,
    /// What it takes out of the tree, if that is known.
    pub lost: Option<&'a Lost>,
    /// The device that was examined, which knows what was read.
    pub examined: &'a Recorded,
}

/// Writes the plan as lines of JSON.
///
/// # Errors
/// Of the device and of the overlay; [`Error::Output`] for those of `out`.
pub fn write(
    out: &mut dyn Write,
    overlay: &Overlay,
    writes: &Writes,
    outcome: &Planned<'_>,
) -> Result<()> {
    let findings = outcome.findings;
    let mut out = Lines {
        out,
        digest: Sha256::new(),
    };
    let relied = outcome.examined.relied();
    let device = &**overlay.base();
    out.line(&Head {
        plan: VERSION,
        device_len: device.len(),
        block_size: overlay.block_size().bytes(),
        superblock_sha256: superblock_digest(device)?,
        read_sha256: relied.sha256,
        read_ranges: len64(relied.ranges.len()),
        findings: findings.len() as u64,
        writes: writes.count(),
        consistent: outcome.consistent,
        lost: outcome.lost.map(LostLine::new),
        log: writes.log().map(<[LogRun]>::to_vec),
    })?;
    for ranges in relied.ranges.chunks(RANGES_MAX) {
        let read = ranges.iter().map(|range| (range.start, range.end));
        out.line(&ReadLine {
            read: read.collect(),
        })?;
    }
    for (number, (_, finding)) in (1..).zip(findings) {
        out.line(&FindingLine::new(number, finding))?;
    }
    for_each_write(overlay, findings, |line| out.line(&line))?;
    let end = hex::encode(out.digest.clone().finalize());
    out.line(&End { end })
}

/// Calls `each` with every write of a plan, in the order of blocks.
///
/// # Errors
/// Of the device, of the overlay and of `each`.
pub fn for_each_write(
    overlay: &Overlay,
    findings: &[(Cause, Finding)],
    mut each: impl FnMut(WriteLine) -> Result<()>,
) -> Result<()> {
    let numbers: HashMap<Cause, u32> = (1..)
        .zip(findings)
        .map(|(number, &(cause, _))| (cause, number))
        .collect();
    let mut old = vec![0; overlay.block_size().len()];
    overlay.for_each_change(|change| {
        let offset = change.block.0 << overlay.block_size().log2();
        overlay.base().read_at(offset, &mut old)?;
        each(write_line(&old, &change, &numbers))
    })
}

fn write_line(old: &[u8], change: &ChangedBlock, numbers: &HashMap<Cause, u32>) -> WriteLine {
    let mut causes: Vec<u32> = change
        .causes
        .iter()
        .filter_map(|c| numbers.get(c).copied())
        .collect();
    causes.sort_unstable();
    WriteLine {
        write: change.block.0,
        causes,
        was_sha256: hex::encode(Sha256::digest(old)),
        changes: changed_bytes(old, &change.content),
    }
}

/// The bytes that differ, those close to each other as one.
fn changed_bytes(old: &[u8], new: &[u8]) -> Vec<Bytes> {
    let mut changes = Vec::new();
    let mut open: Option<Range<usize>> = None;
    let mut put = |range: Option<Range<usize>>| {
        if let Some(range) = range {
            changes.push(Bytes {
                at: range.start,
                was: hex::encode(&old[range.clone()]),
                becomes: hex::encode(&new[range]),
            });
        }
    };
    for at in 0..old.len().min(new.len()) {
        if old[at] == new[at] {
            continue;
        }
        match &mut open {
            Some(range) if at - range.end <= GAP => range.end = at + 1,
            other => put(other.replace(at..at + 1)),
        }
    }
    put(open);
    changes
}

/// A plan that was read, and whose blocks are still what they were.
#[derive(Debug)]
pub struct ReadPlan {
    /// The device with all changes.
    pub overlay: Overlay,
    /// What is to be written.
    pub writes: Writes,
}

/// Reads a plan and holds it against the device. The changes are kept in at most `memory` bytes,
/// the rest in a temporary file.
///
/// # Errors
/// [`Error::Refused`] if it is no whole plan, does not lead to a consistent file system, or the
/// device is no longer what it was made from or has a repair that must be finished first.
pub fn read(
    input: &mut dyn BufRead,
    device: &Arc<dyn BlockDevice>,
    memory: u64,
) -> Result<ReadPlan> {
    let mut lines = Reader {
        input,
        digest: Sha256::new(),
        line: Vec::new(),
        line_max: LINE_MAX.max(memory / 4),
    };
    let head: Head = lines.parse("a plan")?;
    let block_size = BlockSize::from_bytes(head.block_size);
    let (VERSION, Some(block_size)) = (head.plan, block_size) else {
        return Err(refused("it is no plan of this version"));
    };
    if UnfinishedRepair::find(&**device)?.is_some() {
        return Err(Error::Refused {
            what:
                "a repair of this image was cut off: finish it first by `uext4 repair`, and make \
                   a new plan then"
                    .to_owned(),
        });
    }
    if head.device_len != device.len() || head.superblock_sha256 != superblock_digest(&**device)? {
        return Err(changed("its superblock or length differs"));
    }
    if !head.consistent {
        return Err(refused("it does not lead to a consistent file system"));
    }
    let ranges = lines.ranges(head.read_ranges, device.len())?;
    for _ in 0..head.findings {
        lines.next()?;
    }
    let overlay = Overlay::new(Arc::clone(device), block_size, memory);
    let mut numbers = Vec::new();
    loop {
        let before = lines.digest.clone();
        lines.next()?;
        if let Ok(end) = serde_json::from_slice::<End>(&lines.line) {
            if end.end != hex::encode(before.finalize()) {
                return Err(refused("it was changed: its digest is wrong"));
            }
            break;
        }
        let write: WriteLine = serde_json::from_slice(&lines.line)
            .map_err(|error| refused(&format!("a line is no write: {error}")))?;
        take(&overlay, &write)?;
        numbers.push(write.write);
    }
    let writes = Writes::of_plan(block_size, numbers, head.log, device.len());
    let writes = writes.ok_or_else(|| refused("its numbers of blocks cannot be"))?;
    if relied::digest(&**device, &ranges) != head.read_sha256 {
        return Err(changed("something that it was made from differs"));
    }
    Ok(ReadPlan { overlay, writes })
}

/// Puts a write into the overlay if the block is still what it was.
fn take(overlay: &Overlay, write: &WriteLine) -> Result<()> {
    let mut content = vec![0; overlay.block_size().len()];
    overlay.read_block(Pblk(write.write), &mut content)?;
    if hex::encode(Sha256::digest(&content)) != write.was_sha256 {
        return Err(changed(&format!("block {} differs", write.write)));
    }
    for change in &write.changes {
        let bytes = hex::decode(&change.becomes).map_err(|_| refused("a line is no write"))?;
        let end = change.at.checked_add(bytes.len());
        let place = end.and_then(|end| content.get_mut(change.at..end));
        place
            .ok_or_else(|| refused("a line is no write"))?
            .copy_from_slice(&bytes);
    }
    overlay.replace(Pblk(write.write), Cause(0), &content)
}

fn superblock_digest(device: &dyn BlockDevice) -> Result<String> {
    let mut superblock = [0; 1024];
    device.read_at(SUPERBLOCK_OFFSET, &mut superblock)?;
    Ok(hex::encode(Sha256::digest(superblock)))
}

fn refused(why: &str) -> Error {
    Error::Refused {
        what: format!("the plan cannot be used: {why}; make a new one by `uext4 repair --plan`"),
    }
}

fn changed(why: &str) -> Error {
    refused(&format!(
        "the image is no longer the one it was made from: {why}"
    ))
}

/// Writes lines, and sums them.
struct Lines<'a> {
    out: &'a mut dyn Write,
    digest: Sha256,
}

impl Lines<'_> {
    fn line(&mut self, value: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(value).map_err(|e| Error::Spill(io::Error::from(e)))?;
        line.push(b'\n');
        self.digest.update(&line);
        self.out.write_all(&line).map_err(Error::Output)
    }
}

/// Reads lines, and sums them.
struct Reader<'a> {
    input: &'a mut dyn BufRead,
    digest: Sha256,
    line: Vec<u8>,
    line_max: u64,
}

impl Reader<'_> {
    fn next(&mut self) -> Result<()> {
        self.line.clear();
        let mut part = io::Read::take(&mut *self.input, self.line_max);
        let read = part.read_until(b'\n', &mut self.line);
        read.map_err(|error| refused(&format!("it cannot be read: {error}")))?;
        if len64(self.line.len()) == self.line_max && self.line.last() != Some(&b'\n') {
            return Err(refused("one of its lines is longer than --memory allows"));
        }
        if self.line.last() != Some(&b'\n') {
            return Err(refused("it ends too early"));
        }
        self.digest.update(&self.line);
        Ok(())
    }

    /// So many ranges of bytes of a device, which ascend.
    fn ranges(&mut self, count: u64, device_len: u64) -> Result<Vec<Range<u64>>> {
        let mut ranges = Vec::new();
        let mut least = 0;
        while len64(ranges.len()) < count {
            let line: ReadLine = self.parse("what was read")?;
            if line.read.is_empty() {
                return Err(refused("a line of what was read is empty"));
            }
            for (start, end) in line.read {
                if start < least || end <= start || end > device_len {
                    return Err(refused("what was read cannot be"));
                }
                least = end;
                ranges.push(start..end);
            }
        }
        Ok(ranges)
    }

    fn parse<T: for<'a> Deserialize<'a>>(&mut self, what: &str) -> Result<T> {
        self.next()?;
        serde_json::from_slice(&self.line)
            .map_err(|_| refused(&format!("a line is not that of {what}")))
    }
}

#[cfg(test)]
mod tests;
