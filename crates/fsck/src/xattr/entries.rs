//! The entries of one region, each judged by itself.

use uext4_ondisk::encryption::{ENCRYPTION_CONTEXT_NAME, EncryptionContext};
use uext4_ondisk::hash::CharSign;
use uext4_ondisk::num::{index, len64};
use uext4_ondisk::xattr::{
    INDEX_ENCRYPTION, RawXattrEntry, XATTR_ENTRY_LEN, XattrEntry, XattrValue, entry_hash,
    entry_len, packed_hash, value_len,
};
use uext4_ondisk::{Ino, Pblk};
use zerocopy::FromBytes;

use super::wrong::Wrong;
use super::{Owner, ea_inode, full_name, order};
use crate::error::Result;
use crate::finding::{Finding, Place};
use crate::problem::XattrProblem;
use crate::report::Cause;
use crate::state::State;
use crate::xattr_blocks::ValueUse;

/// Bytes that hold a list of entries and their values.
#[derive(Clone, Copy, Debug)]
pub struct Region<'a> {
    /// What the offsets of values count from.
    pub bytes: &'a [u8],
    /// Where the first entry is.
    pub first: usize,
    /// The block; `None` within an inode.
    pub block: Option<Pblk>,
    /// What is added to offsets for a finding.
    pub shift: usize,
}

/// What the entries of a region say.
#[derive(Debug, Default)]
pub struct Examined {
    /// Whether an encryption context is among them that can be one.
    pub has_context: bool,
    pub values: ValueUse,
    /// The first problem, if the list must be packed anew.
    pub cause: Option<Cause>,
    /// Offsets of the entries that must go, ascending.
    dropped: Vec<usize>,
    /// Where the list ends, or where it can no longer be followed.
    end: usize,
    /// Entries that can be kept.
    pub kept: usize,
}

/// One step through a list.
enum Step<'a> {
    Entry {
        raw: &'a RawXattrEntry,
        name: &'a [u8],
        next: usize,
    },
    End,
    Broken,
}

fn step(bytes: &[u8], at: usize) -> Step<'_> {
    let rest = bytes.get(at..).unwrap_or_default();
    match rest.first_chunk() {
        None => return Step::Broken,
        Some([0, 0, 0, 0]) => return Step::End,
        Some(_) => {}
    }
    let Ok((raw, body)) = RawXattrEntry::ref_from_prefix(rest) else {
        return Step::Broken;
    };
    let name_len = usize::from(raw.e_name_len);
    match body.get(..name_len) {
        Some(name) => Step::Entry {
            raw,
            name,
            next: at.saturating_add(entry_len(name_len)),
        },
        None => Step::Broken,
    }
}

/// Examines all entries and reports what is wrong with them; counts what those refer to that can
/// be kept.
///
/// # Errors
/// Of the device and of the overlay.
pub fn examine(state: &State<'_>, owner: Owner, region: Region<'_>) -> Result<Examined> {
    let mut examined = Examined::default();
    let mut at = region.first;
    let is_whole = loop {
        match step(region.bytes, at) {
            Step::Entry { next, .. } => at = next,
            Step::End => break true,
            Step::Broken => break false,
        }
    };
    examined.end = at.min(region.bytes.len());
    if !is_whole {
        let place = place(owner, region, at);
        let cause = state.report(Finding::new(XattrProblem::List, place));
        examined.cause = Some(cause);
    }
    let mut taken = Taken::new(region.bytes.len());
    // The end of the list is four bytes of zeroes.
    taken.take(0..examined.end.saturating_add(4));
    let mut at = region.first;
    let mut previous: Option<XattrEntry<'_>> = None;
    while at < examined.end {
        let Step::Entry { raw, name, next } = step(region.bytes, at) else {
            break;
        };
        match judge(state, owner, region, raw, name, &mut taken)? {
            Ok((entry, values)) => {
                examined.kept += 1;
                examined.note(&entry, values);
                let offset = raw.e_value_offs.get();
                let is_here = raw.e_value_inum.get() == 0;
                let is_outside = is_here && usize::from(offset) > region.bytes.len();
                if is_outside && examined.cause.is_none() {
                    // The kernel does not look at the offset of no bytes; e2fsprogs do, and take
                    // none of the attributes.
                    let place = place(owner, region, at).name(&full_name(entry.index, name));
                    let finding = Finding::new(XattrProblem::EmptyValue, place);
                    examined.cause = Some(state.report(finding.found(offset)));
                }
                if region.block.is_some() && examined.cause.is_none() {
                    let before = previous.as_ref().map(order);
                    if before.is_some_and(|before| before > order(&entry)) {
                        let place = place(owner, region, at);
                        let finding = Finding::new(XattrProblem::Order, place);
                        examined.cause = Some(state.report(finding));
                    }
                }
                previous = Some(entry);
            }
            Err(wrong) => {
                let place = place(owner, region, at).name(&full_name(raw.e_name_index, name));
                let finding = Finding {
                    found: wrong.found,
                    right: wrong.right,
                    ..Finding::new(wrong.problem, place)
                };
                let cause = state.report(finding);
                examined.cause.get_or_insert(cause);
                examined.dropped.push(at);
            }
        }
        at = next;
    }
    Ok(examined)
}

/// Whether the entries of a region hold an encryption context, as far as they can be read.
pub fn has_context(region: Region<'_>) -> bool {
    let mut at = region.first;
    while let Step::Entry { raw, name, next } = step(region.bytes, at) {
        let value = here(region.bytes, raw).unwrap_or_default();
        if is_context(raw.e_name_index, name) && EncryptionContext::parse(value).is_ok() {
            return true;
        }
        at = next;
    }
    false
}

fn is_context(index: u8, name: &[u8]) -> bool {
    index == INDEX_ENCRYPTION && name == ENCRYPTION_CONTEXT_NAME
}

impl Examined {
    fn note(&mut self, entry: &XattrEntry<'_>, values: ValueUse) {
        self.values.add(values);
        self.has_context |= is_context(entry.index, entry.name);
    }

    /// The entries that can be kept, in the order of the list.
    pub fn kept<'a>(&self, region: Region<'a>) -> Vec<XattrEntry<'a>> {
        let mut kept = Vec::with_capacity(self.kept);
        let mut at = region.first;
        while at < self.end {
            let Step::Entry { raw, name, next } = step(region.bytes, at) else {
                break;
            };
            if self.dropped.binary_search(&at).is_err() {
                let value = here(region.bytes, raw).unwrap_or_default();
                kept.push(entry(region, raw, name, value));
            }
            at = next;
        }
        kept
    }
}

fn place(owner: Owner, region: Region<'_>, at: usize) -> Place {
    let offset = u32::try_from(at.saturating_add(region.shift)).unwrap_or(u32::MAX);
    let place = Place::inode(owner.ino).offset(offset);
    match region.block {
        Some(block) => place.block(block),
        None => place,
    }
}

/// The value of an entry in the same region; `None` if it is not there.
fn here<'a>(bytes: &'a [u8], raw: &RawXattrEntry) -> Option<&'a [u8]> {
    let size = index(raw.e_value_size.get());
    let from = usize::from(raw.e_value_offs.get());
    if raw.e_value_inum.get() != 0 || size == 0 {
        // Of an empty value nothing is there, but libext2fs wants it to be there all the same.
        let is_inside = raw.e_value_inum.get() != 0 || from <= bytes.len();
        return is_inside.then_some(&[]);
    }
    // The kernel wants the padding to lie in the region as well.
    let padded = from.checked_add(value_len(size))?;
    bytes.get(..padded)?.get(from..from.checked_add(size)?)
}

fn entry<'a>(
    region: Region<'_>,
    raw: &RawXattrEntry,
    name: &'a [u8],
    value: &'a [u8],
) -> XattrEntry<'a> {
    let value = match raw.e_value_inum.get() {
        0 => XattrValue::Here(value),
        ino => XattrValue::Inode {
            ino: Ino(ino),
            size: raw.e_value_size.get(),
        },
    };
    XattrEntry {
        index: raw.e_name_index,
        name,
        value,
        hash: packed_hash(raw, name, region.bytes),
    }
}

/// Whether an entry can be kept, and what its value adds to the owner's use.
fn judge<'a>(
    state: &State<'_>,
    owner: Owner,
    region: Region<'a>,
    raw: &RawXattrEntry,
    name: &'a [u8],
    taken: &mut Taken,
) -> Result<Result<(XattrEntry<'a>, ValueUse), Wrong>> {
    // Without a kind and a name its head may be that of the end of the list. In a block e2fsck
    // clears all attributes if one has no kind.
    let needs_kind = name.is_empty() || region.block.is_some();
    if name.contains(&0) || (needs_kind && raw.e_name_index == 0) {
        return Ok(Err(Wrong::new(XattrProblem::Name, raw.e_name_len)));
    }
    let size = raw.e_value_size.get();
    if raw.e_value_inum.get() != 0 {
        let found = entry(region, raw, name, &[]);
        let values = ea_inode::reference(state, owner, &found, Ino(raw.e_value_inum.get()), size)?;
        return Ok(values.map(|values| (found, values)));
    }
    let Some(value) = here(region.bytes, raw) else {
        return Ok(Err(Wrong::new(XattrProblem::Value, size)));
    };
    let from = usize::from(raw.e_value_offs.get());
    if !value.is_empty() && taken.any(from..from.saturating_add(value_len(value.len()))) {
        return Ok(Err(Wrong::new(XattrProblem::Overlap, size)));
    }
    let stored = raw.e_hash.get();
    // Within an inode a hash is not needed, and e2fsprogs store none.
    if stored != 0 || region.block.is_some() {
        // With the bytes behind the value, which are zeroes unless its size was changed.
        let padded = from..from.saturating_add(value_len(value.len()));
        let padded = region.bytes.get(padded).unwrap_or(value);
        let right = entry_hash(name, padded, CharSign::Unsigned);
        if stored != right && stored != entry_hash(name, padded, CharSign::Signed) {
            return Ok(Err(Wrong {
                right: Some(right.into()),
                ..Wrong::new(XattrProblem::Hash, stored)
            }));
        }
    }
    if owner.is_encrypted
        && is_context(raw.e_name_index, name)
        && EncryptionContext::parse(value).is_err()
    {
        return Ok(Err(Wrong::new(XattrProblem::Context, size)));
    }
    if !value.is_empty() {
        taken.take(from..from.saturating_add(value_len(value.len())));
    }
    Ok(Ok((entry(region, raw, name, value), ValueUse::default())))
}

/// Which bytes of a region are taken: a bit for each. Regions within inodes are small, and cost no
/// allocation.
struct Taken {
    small: [u64; SMALL],
    large: Vec<u64>,
}

const SMALL: usize = 8;

impl Taken {
    fn new(len: usize) -> Self {
        let words = len.div_ceil(64);
        Self {
            small: [0; SMALL],
            large: match words > SMALL {
                true => vec![0; words],
                false => Vec::new(),
            },
        }
    }

    fn words(&mut self) -> &mut [u64] {
        match self.large.is_empty() {
            true => &mut self.small,
            false => &mut self.large,
        }
    }

    /// Calls `each` with each word that holds bits of a range, and the mask of them.
    fn each(&mut self, range: std::ops::Range<usize>, mut each: impl FnMut(&mut u64, u64)) {
        let words = self.words();
        let end = range.end.min(words.len().saturating_mul(64));
        let mut at = range.start;
        while at < end {
            let bit = at % 64;
            let len = (64 - bit).min(end - at);
            let mask = u64::MAX >> (64 - len64(len)) << bit;
            each(&mut words[at / 64], mask);
            at += len;
        }
    }

    fn take(&mut self, range: std::ops::Range<usize>) {
        self.each(range, |word, mask| *word |= mask);
    }

    fn any(&mut self, range: std::ops::Range<usize>) -> bool {
        let mut any = false;
        self.each(range, |word, mask| any |= *word & mask != 0);
        any
    }
}

const _: () = assert!(XATTR_ENTRY_LEN == size_of::<RawXattrEntry>());
