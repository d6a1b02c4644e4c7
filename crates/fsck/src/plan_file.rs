//! A plan as lines of JSON, to be read, kept, and applied later.
//!
//! ```text
//! {"plan":1,…}       what device it belongs to: its length and a digest of its superblock
//! {"finding":3,…}    each finding, in order
//! {"write":131,…}    each block: a digest of what it was, and the bytes that change
//! {"end":…}          SHA-256 of all lines before
//! ```
//! Who applies it gets exactly these bytes, or is refused: every block must still be what it was.

use std::collections::HashMap;
use std::io::{self, BufRead, Write};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uext4_blockdev::BlockDevice;
use uext4_ondisk::num::len64;
use uext4_ondisk::superblock::SUPERBLOCK_OFFSET;
use uext4_ondisk::{BlockSize, Pblk};

use crate::account::Lost;
use crate::error::{Error, Result};
use crate::finding::Finding;
use crate::overlay::{ChangedBlock, Overlay};
use crate::redo::Writes;
use crate::report::Cause;
use uext4_redo::{LogRun, UnfinishedRepair};

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
}

impl LostLine {
    fn new(lost: &Lost) -> Self {
        Self {
            files: lost.files,
            names: lost.names,
            bytes: lost.bytes,
            attributes: lost.attributes,
            with_structures: lost.with_structures,
        }
    }
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
    let device = &**overlay.base();
    out.line(&Head {
        plan: 1,
        device_len: device.len(),
        block_size: overlay.block_size().bytes(),
        superblock_sha256: superblock_digest(device)?,
        findings: findings.len() as u64,
        writes: writes.count(),
        consistent: outcome.consistent,
        lost: outcome.lost.map(LostLine::new),
        log: writes.log().map(<[LogRun]>::to_vec),
    })?;
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
    let mut open: Option<std::ops::Range<usize>> = None;
    let mut put = |range: Option<std::ops::Range<usize>>| {
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
    let (1, Some(block_size)) = (head.plan, block_size) else {
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

    fn parse<T: for<'a> Deserialize<'a>>(&mut self, what: &str) -> Result<T> {
        self.next()?;
        serde_json::from_slice(&self.line)
            .map_err(|_| refused(&format!("its first line is not that of {what}")))
    }
}

#[cfg(test)]
mod tests {
    use uext4_blockdev::MemoryDevice;
    use uext4_testkit::{SimDevice, SimOptions};

    use super::*;
    use crate::finding::Place;
    use crate::problem::GroupProblem;

    /// A device, and a plan of two writes for one finding as text.
    fn plan() -> (Arc<dyn BlockDevice>, Vec<u8>) {
        let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(64 << 10));
        let text = plan_of(&device, true).0;
        (device, text)
    }

    fn plan_of(device: &Arc<dyn BlockDevice>, consistent: bool) -> (Vec<u8>, Overlay, Writes) {
        let overlay = Overlay::new(Arc::clone(device), BlockSize::MIN, u64::MAX);
        let change = |bytes: &mut [u8]| (bytes[3], bytes[5], bytes[900]) = (1, 2, 3);
        overlay.update(Pblk(1), Cause(7), change).unwrap();
        overlay.update(Pblk(9), Cause(7), change).unwrap();
        let finding = Finding::new(GroupProblem::ALL[0], Place::whole());
        let log = LogRun {
            blocks: 4,
            start: 20,
        };
        let writes = Writes::of_plan(BlockSize::MIN, vec![1, 9], Some(vec![log]), 64 << 10);
        let writes = writes.unwrap();
        let outcome = Planned {
            findings: &[(Cause(7), finding)],
            consistent,
            lost: None,
        };
        let mut text = Vec::new();
        write(&mut text, &overlay, &writes, &outcome).unwrap();
        (text, overlay, writes)
    }

    #[test]
    fn a_plan_that_leads_to_no_consistent_file_system_is_refused() {
        let (device, _) = plan();
        let text = plan_of(&device, false).0;
        let error = read(&mut &text[..], &device, 0).unwrap_err().to_string();
        assert!(error.contains("consistent"), "{error}");
    }

    #[test]
    fn an_unfinished_repair_comes_before_a_plan() {
        let cut = SimDevice::new(&MemoryDevice::new(64 << 10), SimOptions::default());
        let (device, _) = plan();
        let (_, overlay, writes) = plan_of(&device, true);
        // The log's four blocks and the pointer.
        cut.cut_at_write(5);
        assert!(writes.write(&cut, &overlay).is_err());
        let device: Arc<dyn BlockDevice> = Arc::new(cut.contents());
        let text = plan_of(&device, true).0;
        let error = read(&mut &text[..], &device, 0).unwrap_err().to_string();
        assert!(error.contains("finish it first"), "{error}");
    }

    #[test]
    fn a_plan_that_was_read_makes_the_same_changes() {
        let (device, text) = plan();
        let plan = read(&mut &text[..], &device, u64::MAX).unwrap();
        let start = plan.writes.log().map(|runs| runs[0].start);
        assert_eq!((plan.writes.count(), start), (2, Some(20)));
        let mut content = [0; 1024];
        for block in [1, 9] {
            plan.overlay.read_block(Pblk(block), &mut content).unwrap();
            assert_eq!(
                (content[3], content[4], content[5], content[900]),
                (1, 0, 2, 3)
            );
        }
        let lines = String::from_utf8(text).unwrap();
        let write = lines
            .lines()
            .find(|line| line.contains("\"write\":9"))
            .unwrap();
        let write: WriteLine = serde_json::from_str(write).unwrap();
        assert_eq!(write.causes, [1]);
        let places: Vec<_> = write
            .changes
            .iter()
            .map(|c| (c.at, c.becomes.as_str()))
            .collect();
        assert_eq!(places, [(3, "010002"), (900, "03")]);
    }

    #[test]
    fn a_block_with_many_causes_can_be_read_again() {
        let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(64 << 10));
        let overlay = Overlay::new(Arc::clone(&device), BlockSize::MIN, u64::MAX);
        let causes: Vec<Cause> = (0..200_000).map(Cause).collect();
        overlay.replace_for(Pblk(9), &causes, &[1; 1024]).unwrap();
        let finding = Finding::new(GroupProblem::ALL[0], Place::whole());
        let findings: Vec<_> = causes.iter().map(|&c| (c, finding.clone())).collect();
        let planned = Planned {
            findings: &findings,
            consistent: true,
            lost: None,
        };
        let writes = Writes::of_plan(BlockSize::MIN, vec![1, 9], None, 64 << 10);
        let mut text = Vec::new();
        write(&mut text, &overlay, &writes.unwrap(), &planned).unwrap();
        let longest = text.split(|byte| *byte == b'\n').map(<[u8]>::len).max();
        assert!(longest > Some(1 << 20), "{longest:?}");
        let plan = read(&mut &text[..], &device, 1 << 30).unwrap();
        assert_eq!(plan.overlay.changed(), 1);
        let error = read(&mut &text[..], &device, 0).unwrap_err().to_string();
        assert!(error.contains("--memory"), "{error}");
    }

    #[test]
    fn a_plan_of_another_state_is_refused() {
        let (device, text) = plan();
        device.write_at(9 * 1024 + 77, &[1]).unwrap();
        let error = read(&mut &text[..], &device, 0).unwrap_err().to_string();
        assert!(error.contains("block 9 differs"), "{error}");
        device.write_at(1024 + 77, &[1]).unwrap();
        let error = read(&mut &text[..], &device, 0).unwrap_err().to_string();
        assert!(error.contains("superblock"), "{error}");
    }

    #[test]
    fn a_plan_that_was_changed_or_cut_is_refused() {
        let (device, text) = plan();
        let changed = String::from_utf8(text.clone())
            .unwrap()
            .replace("010002", "010102");
        let error = read(&mut changed.as_bytes(), &device, 0)
            .unwrap_err()
            .to_string();
        assert!(error.contains("digest"), "{error}");
        for len in 0..text.len() {
            assert!(read(&mut &text[..len], &device, 0).is_err(), "{len} bytes");
        }
    }
}
