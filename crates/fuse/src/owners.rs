//! Whose files are shown: ids of the image and ids of this machine.
//!
//! ```text
//! image  ──shown──▶  stat, ACLs, who asks                idmap=INSIDE:OUTSIDE:COUNT, both ways
//!        ◀─stored──  who makes, chown, ACLs
//! uid=, gid=   everything is shown as this user's, this group's; what is stored is as without
//! fakeroot     every caller is the image's superuser; the kernel decides nothing
//! ```
//! An id of the image that no user here stands for is shown as 65534; an id of this
//! machine that has no id in the image makes nothing (`EOVERFLOW`) and is given nothing
//! (`EINVAL`). The superuser of this machine is the image's, unless it is mapped to another.

use uext4::Inode;

use crate::abi::InHeader;
use crate::errno::{Errno, Result};

/// Shown where no thread stands for an id.
const NO_USER: u32 = 65_534;
/// The caller, where it has no id in the image.
const NO_ID: u32 = u32::MAX;
/// The version of ACLs that system calls carry.
const ACL_VERSION: [u8; 4] = [2, 0, 0, 0];
/// Entries of an ACL that name a user, and a group.
const ACL_USER: u8 = 2;
const ACL_GROUP: u8 = 8;
/// Bytes of an entry: tag, permissions, id.
const ACL_ENTRY: usize = 8;

/// Ids that stand for one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    /// The first one in the image.
    inside: u32,
    /// The first one on this machine.
    outside: u32,
    /// How many.
    count: u32,
}

impl IdRange {
    /// # Errors
    /// What is wrong with it: empty, or past the last id.
    pub fn new(inside: u32, outside: u32, count: u32) -> std::result::Result<Self, &'static str> {
        let is_in = |first: u32| first.checked_add(count).is_some();
        match count {
            0 => Err("the count is 0"),
            _ if !is_in(inside) || !is_in(outside) => Err("ids end at 4294967294"),
            _ => Ok(Self {
                inside,
                outside,
                count,
            }),
        }
    }

    fn overlaps(&self, other: &Self) -> bool {
        let meet = |a: u32, b: u32| a < b + other.count && b < a + self.count;
        meet(self.inside, other.inside) || meet(self.outside, other.outside)
    }
}

/// Ranges; without any, each id stands for itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Map(Vec<IdRange>);

impl Map {
    fn add(&mut self, range: IdRange) -> bool {
        let fits = !self.0.iter().any(|other| other.overlaps(&range));
        if fits {
            self.0.push(range);
        }
        fits
    }

    fn find(&self, id: u32, of: impl Fn(&IdRange) -> (u32, u32)) -> Option<u32> {
        if self.0.is_empty() {
            return Some(id);
        }
        self.0.iter().find_map(|range| {
            let (from, to) = of(range);
            let at = id.checked_sub(from).filter(|at| *at < range.count)?;
            Some(to + at)
        })
    }

    /// `None` if no user here stands for it.
    fn known(&self, inside: u32) -> Option<u32> {
        self.find(inside, |range| (range.inside, range.outside))
    }

    fn outside(&self, inside: u32) -> u32 {
        self.known(inside).unwrap_or(NO_USER)
    }

    fn inside(&self, outside: u32) -> Option<u32> {
        self.find(outside, |range| (range.outside, range.inside))
    }

    /// The caller.
    fn caller(&self, outside: u32) -> u32 {
        let no_one = if outside == 0 { 0 } else { NO_ID };
        self.inside(outside).unwrap_or(no_one)
    }
}

/// Whose files are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    users: Map,
    groups: Map,
    /// Everything is shown as this user's.
    pub user: Option<u32>,
    /// Everything is shown as this group's.
    pub group: Option<u32>,
    /// Every caller is the image's superuser.
    pub fakeroot: bool,
}

impl Owners {
    /// Adds users that stand for one another; false if some of them do already.
    pub fn map_users(&mut self, range: IdRange) -> bool {
        self.users.add(range)
    }

    /// The same for groups.
    pub fn map_groups(&mut self, range: IdRange) -> bool {
        self.groups.add(range)
    }

    /// Nothing is shown but as it is.
    fn is_plain(&self) -> bool {
        self.users.0.is_empty() && self.groups.0.is_empty() && !self.fakeroot
    }

    /// An inode as it is shown.
    pub fn shown(&self, mut inode: Inode) -> Inode {
        inode.uid = self.user.unwrap_or_else(|| self.users.outside(inode.uid));
        inode.gid = self.group.unwrap_or_else(|| self.groups.outside(inode.gid));
        inode
    }

    /// The caller, in ids of the image.
    pub fn caller(&self, header: &InHeader) -> InHeader {
        let (uid, gid) = match self.fakeroot {
            true => (0, 0),
            false => (
                self.users.caller(header.uid),
                self.groups.caller(header.gid),
            ),
        };
        InHeader {
            uid,
            gid,
            ..*header
        }
    }

    /// Whether an inode is shown as that of the caller. What belongs to no user here is no
    /// user's.
    pub fn is_owner(&self, caller: &InHeader, inode: &Inode) -> bool {
        let shown = self.user.or_else(|| self.users.known(inode.uid));
        caller.uid != NO_ID && shown.is_some() && shown == self.users.known(caller.uid)
    }

    /// Whether an inode of this group is shown as of one of the groups of the caller: of its
    /// first, or of another, which `also` reports of a group of this machine. One that no user
    /// here stands for is foreign.
    pub fn is_in_group(
        &self,
        caller: &InHeader,
        group: u32,
        also: impl FnOnce(u32) -> bool,
    ) -> bool {
        let Some(shown) = self.group.or_else(|| self.groups.known(group)) else {
            return false;
        };
        let is_first = caller.gid != NO_ID && self.groups.known(caller.gid) == Some(shown);
        is_first || also(shown)
    }

    /// A user that something is to belong to.
    ///
    /// # Errors
    /// `EINVAL` if it has no id in the image.
    pub fn stored_user(&self, uid: u32) -> Result<u32> {
        self.users.inside(uid).ok_or(Errno::EINVAL)
    }

    /// The same of a group.
    ///
    /// # Errors
    /// `EINVAL`.
    pub fn stored_group(&self, gid: u32) -> Result<u32> {
        self.groups.inside(gid).ok_or(Errno::EINVAL)
    }

    /// The value of an attribute as it is shown: ACLs carry ids.
    pub fn shown_value(&self, name: &[u8], value: Vec<u8>) -> Vec<u8> {
        let shown = self.each_id(name, value, |map, id| Ok(map.outside(id)));
        // OK to unwrap: showing refuses no id.
        shown.unwrap_or_default()
    }

    /// The same as it is stored.
    ///
    /// # Errors
    /// `EINVAL` for a caller that has no id in the image.
    pub fn stored_value(&self, name: &[u8], value: &[u8]) -> Result<Vec<u8>> {
        self.each_id(name, value.to_vec(), |map, id| {
            map.inside(id).ok_or(Errno::EINVAL)
        })
    }

    /// Whether values of this attribute are changed at all.
    pub fn changes(&self, name: &[u8]) -> bool {
        !self.is_plain() && name.starts_with(b"system.posix_acl_")
    }

    fn each_id(
        &self,
        name: &[u8],
        mut value: Vec<u8>,
        change: impl Fn(&Map, u32) -> Result<u32>,
    ) -> Result<Vec<u8>> {
        if !self.changes(name) || value.get(..4) != Some(&ACL_VERSION) {
            return Ok(value);
        }
        for entry in value[4..].chunks_exact_mut(ACL_ENTRY) {
            // OK to index: an entry has eight bytes.
            let map = match entry[0] {
                ACL_USER => &self.users,
                ACL_GROUP => &self.groups,
                _ => continue,
            };
            let id = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
            entry[4..].copy_from_slice(&change(map, id)?.to_le_bytes());
        }
        Ok(value)
    }
}

/// # Errors
/// `EOVERFLOW` for a caller that has no id in the image: a new file would have no owner.
pub fn some_user(header: &InHeader) -> Result<()> {
    match header.uid == NO_ID || header.gid == NO_ID {
        true => Err(Errno::EOVERFLOW),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;
    use crate::abi::flags::init;
    use crate::abi::{AttrOut, FallocateIn, Kstatfs, MkdirIn, Rename2In, opcode};
    use crate::testing::{Client, e2fsck};

    fn mapped() -> Owners {
        let mut owners = Owners::default();
        let range = |inside, outside, count| IdRange::new(inside, outside, count).unwrap();
        assert!(owners.map_users(range(0, 1000, 1)));
        assert!(owners.map_users(range(1, 100_000, 500)));
        assert!(owners.map_groups(range(0, 200_000, 500)));
        owners
    }

    fn header(uid: u32, gid: u32) -> InHeader {
        InHeader {
            uid,
            gid,
            ..InHeader::default()
        }
    }

    #[test]
    fn ids_stand_for_one_another_both_ways() {
        let owners = mapped();
        let shown = |uid| owners.users.outside(uid);
        assert_eq!(
            [shown(0), shown(1), shown(500), shown(501)],
            [1000, 100_000, 100_499, NO_USER]
        );
        assert_eq!(owners.stored_user(100_499), Ok(500));
        assert_eq!(owners.stored_user(5), Err(Errno::EINVAL));
        assert_eq!(owners.stored_group(200_007), Ok(7));
        let caller = owners.caller(&header(1000, 200_000));
        assert_eq!((caller.uid, caller.gid), (0, 0));
        assert!(some_user(&caller).is_ok());
        assert!(some_user(&owners.caller(&header(0, 0))).is_ok());
        let unmapped = owners.caller(&header(5, 200_000));
        assert_eq!(some_user(&unmapped), Err(Errno::EOVERFLOW));
    }

    #[test]
    fn owners_and_groups_are_mapped() {
        let client = Client::new();
        let file = client.create(1, b"file");
        let inode = |uid| {
            let mut inode = client.inode(file).inode();
            inode.uid = uid;
            inode
        };
        let owners = mapped();
        let of = |uid, gid| owners.caller(&header(uid, gid));
        assert!(owners.is_owner(&of(100_000, 0), &inode(1)));
        assert!(!owners.is_owner(&of(1, 0), &inode(1)));
        // Of no user here: neither that of the caller nor that of another user.
        for uid in [501, NO_ID] {
            assert!(!owners.is_owner(&of(NO_USER, 0), &inode(uid)));
        }
        let also = |shown| shown == 200_009;
        assert!(owners.is_in_group(&of(1000, 200_003), 3, |_| false));
        assert!(owners.is_in_group(&of(1000, 200_003), 9, also));
        assert!(!owners.is_in_group(&of(1000, 200_003), 4, also));
        assert!(!owners.is_in_group(&of(1000, NO_USER), 501, |_| true));
        // Whatever is stored.
        let owners = Owners {
            user: Some(7),
            group: Some(8),
            ..Owners::default()
        };
        assert!(owners.is_owner(&header(7, 0), &inode(1000)));
        assert!(!owners.is_owner(&header(1000, 0), &inode(1000)));
        assert!(owners.is_in_group(&header(7, 8), 100, |_| false));
        assert!(!owners.is_in_group(&header(7, 100), 100, |_| false));
    }

    #[test]
    fn unmapped_users_leave_no_whiteouts() {
        let mut others = Owners::default();
        others.map_users(IdRange::new(5, 1001, 1).unwrap());
        let client = Client::with_owners(others);
        for (flags, expected) in [(0, Errno::ENOENT), (4, Errno::EOVERFLOW)] {
            let it = Rename2In {
                newdir: 1,
                flags,
                padding: 0,
            };
            let body = [it.as_bytes(), b"none\0other\0"].concat();
            assert_eq!(client.ask(opcode::RENAME2, 1, &body), Err(expected));
        }
    }

    #[test]
    fn a_mapped_acl_is_mapped_back() {
        let owners = mapped();
        let name = b"system.posix_acl_access";
        let mut acl = ACL_VERSION.to_vec();
        for (tag, id) in [(1, NO_ID), (ACL_USER, 0), (ACL_GROUP, 3), (32, NO_ID)] {
            acl.extend([tag, 0, 6, 0]);
            acl.extend(u32::to_le_bytes(id));
        }
        let shown = owners.shown_value(name, acl.clone());
        assert_eq!(shown[16..20], 1000u32.to_le_bytes());
        assert_eq!(shown[24..28], 200_003u32.to_le_bytes());
        assert_eq!(shown[8..12], [0xFF; 4]);
        assert_eq!(owners.stored_value(name, &shown), Ok(acl.clone()));
        // Those of the image have no id here.
        assert_eq!(owners.stored_value(name, &acl), Err(Errno::EINVAL));
        assert_eq!(owners.shown_value(b"user.x", acl.clone()), acl);
        assert_eq!(Owners::default().shown_value(name, acl.clone()), acl);
        assert_eq!(owners.shown_value(name, vec![2, 0]), [2, 0]);
    }

    #[test]
    fn everything_may_be_somebodys_and_anybody_the_superuser() {
        let owners = Owners {
            user: Some(7),
            fakeroot: true,
            ..Owners::default()
        };
        assert_eq!(owners.user.unwrap_or(0), 7);
        let caller = owners.caller(&header(1000, 1000));
        assert_eq!((caller.uid, caller.gid), (0, 0));
        assert_eq!(owners.stored_user(1000), Ok(1000));
    }

    #[test]
    fn fakeroot_creates_files_of_root() {
        let client = Client::with_owners(Owners {
            fakeroot: true,
            ..Owners::default()
        });
        assert!(!client.server.negotiated().unwrap().has(init::POSIX_ACL));
        let file = client.create(1, b"file");
        let inode = client.inode(file).inode();
        assert_eq!((inode.uid, inode.gid), (0, 0));
    }

    #[test]
    fn unmapped_users_create_nothing() {
        let mut owners = Owners::default();
        owners.map_users(IdRange::new(5, 1000, 1).unwrap());
        let client = Client::with_owners(owners.clone());
        let file = client.create(1, b"file");
        assert_eq!(client.inode(file).inode().uid, 5);
        let reported: AttrOut = client.get(opcode::GETATTR, file, &[0; 16]).unwrap();
        assert_eq!(reported.attr.uid, 1000);
        let mut others = Owners::default();
        others.map_users(IdRange::new(5, 1001, 1).unwrap());
        let client = Client::with_owners(others);
        let it = MkdirIn {
            mode: 0o755,
            umask: 0,
        };
        let body = [it.as_bytes(), b"dir\0"].concat();
        let made = client.ask(opcode::MKDIR, 1, &body);
        assert_eq!(made, Err(Errno::EOVERFLOW));
        // The root directory has no owner here.
        let reported: AttrOut = client.get(opcode::GETATTR, 1, &[0; 16]).unwrap();
        assert_eq!(reported.attr.uid, NO_USER);
    }

    #[test]
    fn the_superusers_blocks_are_not_everybodys() {
        let client = Client::new();
        let file = client.create(1, b"file");
        let free: Kstatfs = client.get(opcode::STATFS, 1, &[]).unwrap();
        let kept = free.bfree - free.bavail;
        assert!(kept > 200, "{free:?}");
        // Done by another thread, in the name of the caller.
        let it = FallocateIn {
            length: (free.bavail + kept / 3) * u64::from(free.bsize),
            ..FallocateIn::default()
        };
        let grown = client.ask(opcode::FALLOCATE, file, it.as_bytes());
        assert_eq!(grown, Err(Errno::ENOSPC));
        let client = client.asking_as_root();
        client.ask(opcode::FALLOCATE, file, it.as_bytes()).unwrap();
        client.server.finish().unwrap();
        e2fsck(&client.device);
    }

    #[test]
    fn invalid_ranges_are_refused() {
        assert!(IdRange::new(0, 0, 0).is_err());
        assert!(IdRange::new(u32::MAX, 0, 1).is_err());
        assert!(IdRange::new(0, u32::MAX - 1, 2).is_err());
        let mut owners = mapped();
        assert!(!owners.map_users(IdRange::new(300, 7, 2).unwrap()));
        assert!(!owners.map_groups(IdRange::new(900, 200_499, 2).unwrap()));
    }
}
