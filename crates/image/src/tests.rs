//! For tests: listings as what can be compared.

#[path = "../tests/it/fixture.rs"]
mod fixture;

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};
use uext4_ondisk::inode::FileType;

use crate::error::Error;
use crate::progress::{Counter, Phase};
use crate::source::{Contents, Context, Input, Listing, Source, SourceOptions, list};
use crate::sparse::Holes;
use crate::tree::{EntryId, FileData};
pub use fixture::*;

/// Lists with default options.
pub fn listed(source: &Source) -> Result<Listing, Error> {
    listed_with(source, &SourceOptions::default())
}

/// Lists.
pub fn listed_with(source: &Source, options: &SourceOptions) -> Result<Listing, Error> {
    list(
        vec![Input::Source(source.clone())],
        &Context {
            options,
            spool_dir: &std::env::temp_dir(),
            leave_out: None,
            counter: &Counter::begin(&(), Phase::Listing, None),
            holes: Holes::OfSource,
        },
        None,
    )
}

/// What there is to know of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub kind: FileType,
    pub mode: u16,
    pub owner: (u32, u32),
    /// Access, modification, change; nanoseconds since 1970.
    pub times: [i128; 3],
    pub size: u64,
    pub target: String,
    pub device: Option<(u32, u32)>,
    pub xattrs: Vec<(String, Vec<u8>)>,
    /// Where each piece that is no hole begins and ends.
    pub pieces: Vec<(u64, u64)>,
    /// Of the contents, the same however much of it is holes.
    pub hash: String,
    /// The least name of the same node.
    pub same_as: String,
}

/// All entries of a listing, contents read.
pub fn seen(listing: &Listing) -> BTreeMap<String, Seen> {
    let tree = &listing.tree;
    let mut contents = Contents::new(listing);
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
    let mut names: BTreeMap<_, String> = BTreeMap::new();
    for entry in tree.entries() {
        let path = text(&tree.path(entry));
        let least = names.entry(tree.node_id(entry)).or_insert(path.clone());
        *least = path.min(std::mem::take(least));
    }
    let mut all = BTreeMap::new();
    for entry in tree.entries() {
        let node = tree.node_of(entry);
        let (pieces, hash) = match node.file_type() {
            FileType::Regular => read(&mut contents, listing, entry),
            _ => Default::default(),
        };
        let seen = Seen {
            kind: node.file_type(),
            mode: node.mode(),
            owner: node.owner(),
            times: node.times().map(|t| t.as_nanos()),
            size: node.size(),
            target: text(tree.target(node)),
            device: node.device().map(|n| (n.major, n.minor)),
            xattrs: tree
                .xattrs(node)
                .iter()
                .map(|(n, v)| (text(n), v.clone()))
                .collect(),
            pieces,
            hash,
            same_as: names[&tree.node_id(entry)].clone(),
        };
        all.insert(text(&tree.path(entry)), seen);
    }
    all
}

/// Holes are looked at in pieces of so many bytes.
const CHUNK: u64 = 65536;

fn read(
    contents: &mut Contents<'_>,
    listing: &Listing,
    entry: EntryId,
) -> (Vec<(u64, u64)>, String) {
    let node = listing.tree.node_of(entry);
    let pieces = match listing.tree.data(node) {
        FileData::Whole { .. } => vec![(0, node.size())],
        FileData::Sparse(p) => p.iter().map(|p| (p.offset, p.offset + p.len)).collect(),
    };
    let content = contents.open(entry).unwrap();
    let mut hash = Sha256::new();
    let mut chunk = vec![0; CHUNK as usize];
    let mut next = 0;
    for &(from, to) in &pieces {
        let mut at = next.max(from / CHUNK * CHUNK);
        while at < to {
            let len = (node.size() - at).min(CHUNK) as usize;
            content.read_exact_at(at, &mut chunk[..len]).unwrap();
            if chunk[..len].iter().any(|&b| b != 0) {
                hash.update(format!("{at} "));
                hash.update(&chunk[..len]);
            }
            at += CHUNK;
        }
        next = at;
    }
    let hash = hash.finalize().iter().map(|b| format!("{b:02x}")).collect();
    (pieces, hash)
}
