//! Sparse files in the four ways that GNU tar has written them.

use std::fmt::Write as _;

use crate::archive::{Format, Header, Number, record};
use crate::generator::Generator;

/// Pairs of offset and length, and where they lie in the blocks of old GNU headers.
const PAIRS: usize = 386;
const IS_EXTENDED: usize = 482;
const REAL_SIZE: std::ops::Range<usize> = 483..495;

struct Map {
    pieces: Vec<(u64, u64)>,
    size: u64,
    stored: Vec<u8>,
}

fn map(generator: &mut Generator) -> Map {
    let (mut pieces, mut end, mut stored) = (Vec::new(), 0u64, Vec::new());
    let most = if generator.one_in(6) { 60 } else { 5 };
    for number in 0..generator.random.below(most) {
        let offset = end + generator.pick(&[0, 1, 512, 4096, 10_000]);
        let len = match generator.one_in(30) {
            true => generator.pick(&[1, 700]),
            false => generator.pick(&[0, 512, 1024]),
        };
        pieces.push((offset, len));
        stored.resize(stored.len() + len as usize, b'A' + (number % 26) as u8);
        end = offset + len;
    }
    if generator.one_in(2) {
        pieces.push((end, 77));
        stored.resize(stored.len() + 77, b'z');
        end += 77;
    }
    let size = end + generator.pick(&[0, 0, 1, 5000]);
    // GNU tar ends a map with a piece of no length if the file ends in a hole.
    if !generator.one_in(12) {
        pieces.push((size, 0));
    }
    if generator.one_in(12) && !pieces.is_empty() {
        generator.step("wrong map");
        let at = generator.random.index(pieces.len());
        match generator.random.below(3) {
            0 => pieces[at].0 += 3,
            1 => pieces[at].1 += 1,
            _ => pieces[at].0 = pieces[at].0.saturating_sub(600),
        }
    }
    Map {
        pieces,
        size,
        stored,
    }
}

/// Adds a sparse file to the archive.
pub fn part(generator: &mut Generator) {
    let (map, name) = (map(generator), generator.name());
    match generator.random.below(4) {
        0 => old_gnu(generator, &map, &name),
        1 => version_0_0(generator, &map, &name),
        2 => version_0_1(generator, &map, &name),
        _ => version_1_0(generator, &map, &name),
    }
}

fn put_pairs(block: &mut [u8], pieces: &[(u64, u64)]) {
    for (at, &(offset, len)) in block.chunks_exact_mut(24).zip(pieces) {
        at.copy_from_slice(format!("{offset:011o}\0{len:011o}\0").as_bytes());
    }
}

fn old_gnu(generator: &mut Generator, map: &Map, name: &[u8]) {
    generator.step("sparse: old GNU");
    let mut header = Header::new(Format::Gnu, b'S', name);
    generator.attributes(&mut header);
    header.number(REAL_SIZE, Number::Octal(map.size));
    let (first, rest) = map.pieces.split_at(map.pieces.len().min(4));
    put_pairs(&mut header.0[PAIRS..IS_EXTENDED], first);
    let mut blocks = Vec::new();
    let mut left = rest;
    while !left.is_empty() {
        generator.step("sparse: extension block");
        let (here, next) = left.split_at(left.len().min(21));
        let mut block = [0; 512];
        put_pairs(&mut block[..504], here);
        block[504] = u8::from(!next.is_empty());
        blocks.extend_from_slice(&block);
        left = next;
    }
    header.0[IS_EXTENDED] = u8::from(!rest.is_empty());
    header.size(map.stored.len() as u64);
    generator
        .archive
        .member(header, &[&blocks[..], &map.stored].concat());
}

fn with_records(generator: &mut Generator, records: &[u8], name: &[u8], stored: &[u8]) {
    generator.archive.records(b'x', records);
    let mut header = Header::new(Format::Posix, b'0', name);
    generator.attributes(&mut header);
    generator.archive.sized(header, stored);
}

fn version_0_0(generator: &mut Generator, map: &Map, name: &[u8]) {
    generator.step("sparse: 0.0");
    let mut records = record("GNU.sparse.size", map.size.to_string().as_bytes());
    let count = map.pieces.len().to_string();
    records.extend(record("GNU.sparse.numblocks", count.as_bytes()));
    for (offset, len) in &map.pieces {
        records.extend(record("GNU.sparse.offset", offset.to_string().as_bytes()));
        records.extend(record("GNU.sparse.numbytes", len.to_string().as_bytes()));
    }
    with_records(generator, &records, name, &map.stored);
}

fn version_0_1(generator: &mut Generator, map: &Map, name: &[u8]) {
    generator.step("sparse: 0.1");
    let mut records = record("GNU.sparse.size", map.size.to_string().as_bytes());
    let count = map.pieces.len().to_string();
    records.extend(record("GNU.sparse.numblocks", count.as_bytes()));
    records.extend(record("GNU.sparse.name", name));
    let numbers = map
        .pieces
        .iter()
        .map(|(offset, len)| format!("{offset},{len}"));
    let numbers = numbers.collect::<Vec<_>>().join(",");
    records.extend(record("GNU.sparse.map", numbers.as_bytes()));
    with_records(generator, &records, b"./GNUSparseFile.1/s", &map.stored);
}

fn version_1_0(generator: &mut Generator, map: &Map, name: &[u8]) {
    generator.step("sparse: 1.0");
    let mut records = record("GNU.sparse.major", b"1");
    records.extend(record("GNU.sparse.minor", b"0"));
    records.extend(record("GNU.sparse.name", name));
    records.extend(record(
        "GNU.sparse.realsize",
        map.size.to_string().as_bytes(),
    ));
    let mut text = format!("{}\n", map.pieces.len());
    for (offset, len) in &map.pieces {
        _ = write!(text, "{offset}\n{len}\n");
    }
    let mut stored = text.into_bytes();
    stored.resize(stored.len().next_multiple_of(512), 0);
    stored.extend_from_slice(&map.stored);
    with_records(generator, &records, b"./GNUSparseFile.1/s", &stored);
}
