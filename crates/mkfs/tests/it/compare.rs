//! Two images, byte by byte where either has data.

use std::ops::Range;

use std::path::Path;
use uext4_blockdev::{Access, BlockDevice, FileDevice};

/// Bytes compared at a time.
const CHUNK: u64 = 1024;
/// Differences reported before giving up.
const MOST: usize = 40;

/// Offsets and bytes of the 1 KiB pieces that differ; `normalize` gets each pair before.
pub fn differences(a: &Path, b: &Path, normalize: impl Fn(u64, &mut [u8])) -> Vec<String> {
    let open = |path| FileDevice::open(path, Access::ReadOnly).unwrap();
    let (a, b) = (open(a), open(b));
    let mut found = Vec::new();
    if a.len() != b.len() {
        found.push(format!("lengths {} and {}", a.len(), b.len()));
        return found;
    }
    let mut at = 0;
    while let Some(range) = next_data(&a, &b, at) {
        compare_range(&a, &b, range.clone(), &normalize, &mut found);
        at = range.end;
        if found.len() >= MOST {
            break;
        }
    }
    found
}

fn next_data(a: &FileDevice, b: &FileDevice, at: u64) -> Option<Range<u64>> {
    let next = |device: &FileDevice| device.next_data(at).unwrap();
    let range = match (next(a), next(b)) {
        (Some(x), Some(y)) if x.start <= y.start => x.start..x.end.min(y.end).max(x.start + 1),
        (Some(x), Some(y)) => y.start..x.end.min(y.end).max(y.start + 1),
        (x, y) => x.or(y)?,
    };
    let start = range.start / CHUNK * CHUNK;
    Some(start..range.end.next_multiple_of(CHUNK).min(a.len()))
}

fn compare_range(
    a: &FileDevice,
    b: &FileDevice,
    range: Range<u64>,
    normalize: &impl Fn(u64, &mut [u8]),
    found: &mut Vec<String>,
) {
    let mut at = range.start;
    while at < range.end && found.len() < MOST {
        let len = (range.end - at).min(1 << 20) as usize;
        let (mut x, mut y) = (vec![0; len], vec![0; len]);
        a.read_at(at, &mut x).unwrap();
        b.read_at(at, &mut y).unwrap();
        if x != y {
            for (i, (x, y)) in x.chunks_mut(1024).zip(y.chunks_mut(1024)).enumerate() {
                let offset = at + i as u64 * CHUNK;
                normalize(offset, x);
                normalize(offset, y);
                if x != y {
                    found.push(describe(offset, x, y));
                }
            }
        }
        at += len as u64;
    }
}

fn describe(offset: u64, x: &[u8], y: &[u8]) -> String {
    let first = x.iter().zip(y).position(|(x, y)| x != y).unwrap_or(0);
    let end = (first + 16).min(x.len());
    let count = x.iter().zip(y).filter(|(x, y)| x != y).count();
    format!(
        "KiB {} +{first:#x} ({count} bytes): {:02x?} {:02x?}",
        offset / CHUNK,
        &x[first..end],
        &y[first..end]
    )
}
