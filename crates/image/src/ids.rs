//! Names of users and groups on this machine, for archives that report names and no numbers.
//!
//! Only `/etc/passwd` and `/etc/group` are asked, and only when a name comes up: an image should
//! not depend on where it is built, so numbers are what is used by default.

use std::cell::OnceCell;
use std::collections::HashMap;

/// Numbers by name, read at first use.
#[derive(Debug, Default)]
pub struct HostIds {
    users: OnceCell<HashMap<Vec<u8>, u32>>,
    groups: OnceCell<HashMap<Vec<u8>, u32>>,
}

impl HostIds {
    /// The number of a user; `None` if this machine knows no such name.
    pub fn user(&self, name: &[u8]) -> Option<u32> {
        let users = self.users.get_or_init(|| load("/etc/passwd"));
        users.get(name).copied()
    }

    /// The number of a group; `None` if this machine knows no such name.
    pub fn group(&self, name: &[u8]) -> Option<u32> {
        let groups = self.groups.get_or_init(|| load("/etc/group"));
        groups.get(name).copied()
    }
}

/// A machine without the file knows no names.
fn load(file: &str) -> HashMap<Vec<u8>, u32> {
    parse(&std::fs::read(file).unwrap_or_default())
}

/// Lines of `name:password:number…`; of equal names the first counts, as in the C library.
fn parse(text: &[u8]) -> HashMap<Vec<u8>, u32> {
    let mut ids = HashMap::new();
    for line in text.split(|&b| b == b'\n') {
        let mut fields = line.split(|&b| b == b':');
        let (name, id) = (fields.next(), fields.nth(1));
        let id = id.and_then(|id| std::str::from_utf8(id).ok()?.parse().ok());
        if let (Some(name), Some(id)) = (name, id) {
            ids.entry(name.to_vec()).or_insert(id);
        }
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_of_equal_names_counts_and_nonsense_is_skipped() {
        let ids = parse(b"a:x:1:1::/:\n\nb:x:\nc\nd:x:4294967296:\na:x:2:\ne:x:65534:");
        assert_eq!(ids.get(&b"a"[..]), Some(&1));
        assert_eq!(ids.get(&b"e"[..]), Some(&65534));
        assert_eq!(ids.len(), 2);
    }

    #[test]
    fn this_machine_knows_root() {
        let ids = HostIds::default();
        assert_eq!((ids.user(b"root"), ids.group(b"root")), (Some(0), Some(0)));
        assert_eq!(ids.user(b"no such user"), None);
    }
}
