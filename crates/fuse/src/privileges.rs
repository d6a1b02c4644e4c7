//! The caller, and what that lets it keep of a file's set-id bits.
//!
//! The kernel says with a write, and with cutting a file, whether the bits are to go
//! (`HANDLE_KILLPRIV_V2`); with FALLOCATE and COPY_FILE_RANGE it does not. What can be notified
//! of the caller are its ids, so root, by its file-system id, stands for all that have
//! `CAP_FSETID`, `CAP_SYS_ADMIN` or `CAP_LINUX_IMMUTABLE`. Of its groups only the first comes
//! with the request; the others are looked up where one matters, which is rarely. They are groups
//! of this machine, so they are compared with what is shown.

use uext4::OpenInode;
use uext4::data::SetId;

use crate::abi::InHeader;
use crate::owners::Owners;
use crate::pending_reply::Channel;
use crate::reply::node_of;

/// Set-user-id and set-group-id.
const BITS: u16 = 0o6000;

/// Whether the caller may do what only the privileged do.
pub fn is_root(header: &InHeader) -> bool {
    header.uid == 0
}

/// Whether a group of the image is one of its.
pub fn is_in_group(owners: &Owners, header: &InHeader, group: u32) -> bool {
    let also = |shown| groups_of(header.pid).is_some_and(|all| all.contains(&shown));
    owners.is_in_group(header, group, also)
}

/// The further groups of a thread; `None` where it cannot be seen, or is gone.
fn groups_of(thread: u32) -> Option<Vec<u32>> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let groups = status
        .lines()
        .find_map(|line| line.strip_prefix("Groups:"))?;
    let groups = groups.split_whitespace();
    Some(groups.filter_map(|group| group.parse().ok()).collect())
}

/// What becomes of the bits of a file with this mode, of a group, when they may go.
pub fn fate(owners: &Owners, header: &InHeader, mode: u16, group: impl FnOnce() -> u32) -> SetId {
    // Set-group-id without execution by the group is distinguished only for a caller that is not
    // in it.
    let is_foreign = || !is_in_group(owners, header, group());
    match mode & 0o2010 == 0o2000 && is_foreign() {
        true => SetId::DropAll,
        false => SetId::Drop,
    }
}

/// The same of a file whose contents change.
pub fn fate_of(owners: &Owners, header: &InHeader, inode: &OpenInode) -> SetId {
    fate(owners, header, inode.mode(), || inode.inode().gid)
}

/// A file's bits before something that may drop them. The kernel takes them to stay, unless it is
/// notified that they went.
#[derive(Debug)]
pub struct Before(u16);

impl Before {
    /// Of a file as it is.
    pub fn of(inode: &OpenInode) -> Self {
        Self(inode.mode() & BITS)
    }

    /// Whether there are any.
    pub fn has_any(&self) -> bool {
        self.0 != 0
    }

    /// Has the kernel forget the attributes if some of the bits went: before it gets the answer.
    pub fn settle(&self, inode: &OpenInode, channel: &dyn Channel) {
        if self.has_any() && self.0 & !inode.mode() != 0 {
            channel.forget_attributes(node_of(inode.ino().0.into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owners::IdRange;

    #[test]
    fn groups_are_those_of_the_thread() {
        let own = rustix::process::getgroups().unwrap();
        let own: Vec<u32> = own.iter().map(|group| group.as_raw()).collect();
        let thread = std::process::id();
        assert_eq!(groups_of(thread), Some(own.clone()));
        assert_eq!(groups_of(0), None);
        let header = InHeader {
            gid: 5,
            pid: thread,
            ..InHeader::default()
        };
        let is_in = |owners: &Owners, group| is_in_group(owners, &header, group);
        let plain = Owners::default();
        assert!(is_in(&plain, 5));
        for group in &own {
            assert!(is_in(&plain, *group));
        }
        assert!(!is_in(&plain, 77_777));
        // Those of the image have other numbers.
        for group in own.into_iter().filter(|group| *group != 5) {
            let mut mapped = Owners::default();
            assert!(mapped.map_groups(IdRange::new(70_000, group, 1).unwrap()));
            assert!(is_in(&mapped, 70_000) && !is_in(&mapped, group));
        }
    }
}
