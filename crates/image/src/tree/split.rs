//! Files with more names than one may have, split into several.

use std::collections::HashMap;

use super::{EntryId, Tree};

/// Most names of one file: what ext4 counts as its links.
pub const LINKS_MAX: u32 = 65_000;

/// The node that further names of a node get.
struct Split {
    node: u32,
    names: u32,
}

impl Tree {
    /// Gives the names of a file past `most` to further files like it, each again with `most` names
    /// at most. Returns the first name of each.
    pub fn split_links(&mut self, most: u32) -> Vec<EntryId> {
        let has_more = |entry: &EntryId| self.node_of(*entry).links() > most;
        let named: Vec<EntryId> = self.entries().filter(has_more).collect();
        let mut splits: HashMap<u32, Split> = HashMap::new();
        let mut firsts = Vec::new();
        for entry in named {
            let own = self.entries[entry.index()].node;
            let split = splits.entry(own).or_insert(Split {
                node: own,
                names: 0,
            });
            if split.names == most {
                self.nodes[split.node as usize].links = most;
                let like_it = self.nodes[own as usize];
                // OK to cast: there are not more nodes than entries.
                split.node = self.nodes.len() as u32;
                split.names = 0;
                self.nodes.push(like_it);
                firsts.push(entry);
            }
            split.names += 1;
            self.entries[entry.index()].node = split.node;
        }
        for split in splits.values() {
            self.nodes[split.node as usize].links = split.names;
        }
        firsts
    }
}
