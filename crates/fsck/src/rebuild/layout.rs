//! Where the names of a directory that is written anew go.

use uext4_ondisk::Ino;
use uext4_ondisk::checksum::CsumSeed;
use uext4_ondisk::dir_block::DirFormat;
use uext4_ondisk::dir_entry::{DIR_ENTRY_HASH_LEN, DIR_ENTRY_HEADER_LEN, rec_len_for, update_tail};
use uext4_ondisk::num::{index, len32};
use uext4_ondisk::pack::PackError;
use uext4_ondisk::pack::directory::{DirShape, Layout as Packed, Plan};

use super::names::Names;
use super::{Old, Request};
use crate::directories::record::put_rec_len;
use crate::directories::reread::put_record;
use crate::state::State;

/// A directory that can be written.
#[derive(Debug)]
pub struct Layout<'n> {
    shape: DirShape,
    format: DirFormat,
    plan: Rows,
    names: &'n Names,
    ino: Ino,
    parent: Ino,
    seed: Option<CsumSeed>,
    /// Blocks in all; those behind the plan's are empty.
    blocks: u32,
}

/// The names of each block.
#[derive(Debug)]
enum Rows {
    /// As the packer has them.
    Packed(Plan),
    /// In the order in which they were, with hashes behind them: the first name of each block.
    WithHashes(Vec<u32>),
}

/// Plans a directory.
pub fn plan<'n>(
    state: &State<'_>,
    old: &Old,
    request: &Request<'_>,
    names: &'n Names,
) -> Layout<'n> {
    let geometry = state.geometry();
    let mut shape = DirShape::new(&state.volume.superblock(), geometry);
    if names.is_opaque() {
        shape = shape.without_index();
    }
    let format = DirFormat::new(geometry);
    let plan = match names.stored_hash(0) {
        Some(_) => Rows::WithHashes(rows(format, names)),
        None => match shape.plan(names.count(), |i| names.hashed(i)) {
            Ok(plan) => Rows::Packed(plan),
            // More names than an htree holds, or encrypted names that are equal.
            Err(PackError::TooManyNames | PackError::SameName | _) => {
                Rows::WithHashes(rows(format, names))
            }
        },
    };
    let blocks = match &plan {
        Rows::Packed(plan) => plan.blocks(),
        Rows::WithHashes(rows) => len32(rows.len()),
    };
    let is_indexed = matches!(&plan, Rows::Packed(plan) if plan.is_indexed());
    let kept = match request.keeps_blocks && !is_indexed {
        true => u32::try_from(old.blocks).unwrap_or(0).min(KEPT_MAX),
        false => 0,
    };
    let seed = geometry.csum_seed;
    Layout {
        shape,
        format,
        plan,
        names,
        ino: request.ino,
        parent: request.parent,
        seed: seed.map(|seed| seed.inode(request.ino, old.raw.i_generation.get())),
        blocks: blocks.max(kept),
    }
}

/// Most empty blocks that are kept.
const KEPT_MAX: u32 = 16;

/// Fills blocks one after the other with names and the hashes behind them.
fn rows(format: DirFormat, names: &Names) -> Vec<u32> {
    let mut rows = vec![0];
    let mut used = uext4_ondisk::dir_block::DOTS_LEN;
    for i in 0..names.count() {
        let len = record_len(names, i);
        if used.saturating_add(len) > format.room() {
            rows.push(i);
            used = 0;
        }
        used = used.saturating_add(len);
    }
    rows
}

fn record_len(names: &Names, i: u32) -> usize {
    let hash = names.stored_hash(i).map_or(0, |_| DIR_ENTRY_HASH_LEN);
    rec_len_for(names.name(i).name.len()).saturating_add(hash)
}

impl Layout<'_> {
    /// How many blocks there are.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Whether there is an htree.
    pub fn is_indexed(&self) -> bool {
        matches!(&self.plan, Rows::Packed(plan) if plan.is_indexed())
    }

    /// Fills a logical block, which is all zero.
    pub fn fill(&self, lblk: u32, block: &mut [u8]) {
        match &self.plan {
            Rows::Packed(plan) if lblk < plan.blocks() => {
                let packed = Packed {
                    shape: &self.shape,
                    plan,
                    ino: self.ino,
                    parent: self.parent,
                    seed: self.seed,
                    name: |i| self.names.name(i),
                };
                packed.fill(lblk, block);
            }
            Rows::WithHashes(rows) if index(lblk) < rows.len() => {
                self.fill_with_hashes(rows, index(lblk), block);
            }
            _ => self.end(block, |format, block| {
                format.fill(block, std::iter::empty());
            }),
        }
    }

    fn fill_with_hashes(&self, rows: &[u32], row: usize, block: &mut [u8]) {
        let from = rows.get(row).copied().unwrap_or(0);
        let end = rows.get(row.saturating_add(1)).copied();
        let end = end.unwrap_or(self.names.count());
        let dots = self.format.dots(self.ino, self.parent);
        let first = usize::from(row != 0).saturating_mul(dots.len());
        let mut at = 0;
        let mut last = (0, self.format.room());
        for dot in dots.iter().skip(first) {
            let len = rec_len_for(dot.name.len());
            put_record(block, at, len, dot);
            last = (at, len);
            at = at.saturating_add(len);
        }
        for i in from..end {
            let name = self.names.name(i);
            let entry = uext4_ondisk::dir_block::NewEntry {
                name: name.name,
                ino: name.ino,
                file_type: self.format.file_type(name.file_type),
            };
            let len = record_len(self.names, i);
            put_record(block, at, len, &entry);
            let behind = at
                .saturating_add(DIR_ENTRY_HEADER_LEN)
                .saturating_add(name.name.len().next_multiple_of(4));
            if let Some(hash) = self.names.stored_hash(i)
                && let Some(place) = block.get_mut(behind..behind.saturating_add(hash.len()))
            {
                place.copy_from_slice(&hash);
            }
            last = (at, len);
            at = at.saturating_add(len);
        }
        let room = self.format.room();
        let (offset, _) = last;
        put_rec_len(block, offset, room.saturating_sub(offset));
        self.end(block, |_, _| ());
    }

    fn end(&self, block: &mut [u8], fill: impl FnOnce(DirFormat, &mut [u8])) {
        fill(self.format, block);
        if let Some(seed) = self.seed {
            update_tail(block, seed);
        }
    }
}
