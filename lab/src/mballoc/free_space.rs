//! Free space as `e2freefrag` reports it: runs across the bounds of groups, by size.

use serde_json::{Map, Value, json};

/// Runs from this size on count as long.
const LONG_BYTES: u64 = 4 << 20;
/// Runs below this size count as small.
const SMALL_BYTES: u64 = 64 << 10;

/// The free space of `runs` (first block, length) on a device of `blocks`.
pub fn summary(runs: &[(u64, u64)], blocks: u64, block_bytes: u64) -> Value {
    let mut lengths: Vec<u64> = runs.iter().map(|&(_, len)| len).collect();
    lengths.sort_unstable();
    let kib = |len: u64| len * block_bytes / 1024;
    let free: u64 = lengths.iter().sum();
    let runs = lengths.len() as u64;
    let long: u64 = lengths
        .iter()
        .filter(|&&l| l * block_bytes >= LONG_BYTES)
        .sum();
    let small = lengths
        .iter()
        .filter(|&&l| l * block_bytes < SMALL_BYTES)
        .count();
    json!({
        "free_blocks": free,
        "free_percent": share(free * 100, blocks),
        "runs": runs,
        "min_kb": kib(lengths.first().copied().unwrap_or(0)),
        "max_kb": kib(lengths.last().copied().unwrap_or(0)),
        "avg_kb": share(kib(free), runs),
        "median_kb": kib(lengths.get(lengths.len() / 2).copied().unwrap_or(0)),
        "share_in_runs_of_4m": share(long, free),
        "runs_below_64k": small,
        "share_of_runs_below_64k": share(small as u64, runs),
        "histogram": histogram(&lengths, block_bytes),
    })
}

/// Per power of two, under `e2freefrag`'s names: free extents, free blocks, per cent of the free
/// blocks.
fn histogram(lengths: &[u64], block_bytes: u64) -> Value {
    let free: u64 = lengths.iter().sum();
    let mut rows = Map::new();
    for order in 0..=u64::BITS - 1 - block_bytes.leading_zeros() + 24 {
        let range = 1u64 << order..2u64 << order;
        let inside: Vec<u64> = lengths
            .iter()
            .copied()
            .filter(|l| range.contains(l))
            .collect();
        let blocks: u64 = inside.iter().sum();
        if blocks > 0 {
            let size = |len: u64| label(len * block_bytes / 1024);
            // Numbered, so that the rows sort by size.
            let name = format!("{order:02} {}...{}-", size(range.start), size(range.end));
            rows.insert(
                name,
                json!([inside.len(), blocks, share(blocks * 100, free)]),
            );
        }
    }
    Value::Object(rows)
}

fn label(kib: u64) -> String {
    match kib {
        0..1024 => format!("{kib}K"),
        1024..0x10_0000 => format!("{}M", kib >> 10),
        _ => format!("{}G", kib >> 20),
    }
}

/// `part / whole`; 0 of nothing.
pub fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_sorted_into_their_rows() {
        let reported = summary(&[(0, 1), (5, 3), (10, 1024), (2000, 2)], 10_000, 4096);
        assert_eq!(reported["min_kb"], 4);
        assert_eq!(reported["max_kb"], 4096);
        assert_eq!(reported["avg_kb"], 1030.0);
        assert_eq!(reported["median_kb"], 12);
        assert_eq!(reported["share_of_runs_below_64k"], 0.75);
        let rows: Vec<_> = reported["histogram"].as_object().unwrap().keys().collect();
        assert_eq!(rows, ["00 4K...8K-", "01 8K...16K-", "10 4M...8M-"]);
        assert_eq!(reported["histogram"]["01 8K...16K-"][0], 2);
    }
}
