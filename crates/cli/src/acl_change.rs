//! What setfacl(1) makes of the ACLs of an inode.

use uext4::FileType;
use uext4_ondisk::acl::{Acl, AclEntry, AclTag};

use crate::acl_text::{EntryChange, is_masked, mask};

/// The ACLs of an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acls {
    /// Who may access it.
    pub access: Acl,
    /// What is created in a directory begins with it.
    pub default: Option<Acl>,
}

/// What becomes of the mask when entries that it limits change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MaskRule {
    /// It allows what they allow, unless it is set itself.
    #[default]
    UnlessSet,
    /// It allows what they allow.
    Always,
    /// It stays. A new one allows what the group has.
    Never,
}

/// A change, in the order in which its parts are made.
#[derive(Clone, Debug, Default)]
pub struct AclChange {
    /// All but the permissions of owner, group and others is removed.
    pub remove_all: bool,
    /// The default ACL is removed.
    pub remove_default: bool,
    /// These entries replace each ACL that they speak of.
    pub set: Vec<EntryChange>,
    /// These are removed, where they are.
    pub remove: Vec<EntryChange>,
    /// These are added, or replace others.
    pub modify: Vec<EntryChange>,
    /// What becomes of the mask.
    pub mask: MaskRule,
}

impl AclChange {
    /// Makes the change. Whether the result is an ACL at all is left to the engine.
    pub fn apply(&self, acls: &mut Acls, file_type: FileType) {
        let is_dir = file_type == FileType::Directory;
        if self.remove_all {
            remove_extended(&mut acls.access);
        }
        if self.remove_all || self.remove_default {
            acls.default = None;
        }
        self.change(&mut acls.access, false, is_dir);
        if acls.default.is_none() && !self.sets_default() {
            return;
        }
        let default = acls.default.get_or_insert_default();
        self.change(default, true, is_dir);
        // What a default ACL lacks, it has from the access ACL.
        for tag in [AclTag::UserObj, AclTag::GroupObj, AclTag::Other] {
            let has = |acl: &Acl| acl.entries.iter().copied().find(|entry| entry.tag == tag);
            if let (None, Some(entry)) = (has(default), has(&acls.access)) {
                default.entries.push(entry);
            }
        }
        self.make_mask(default, true);
        default.entries.sort_by_key(|entry| entry.tag);
    }

    /// Whether there is a default ACL afterwards, whatever there was.
    pub fn sets_default(&self) -> bool {
        let mut all = self.set.iter().chain(&self.modify);
        all.any(|entry| entry.is_default)
    }

    fn change(&self, acl: &mut Acl, is_default: bool, is_dir: bool) {
        let of_this = |entry: &&EntryChange| entry.is_default == is_default;
        if self.set.iter().any(|entry| of_this(&entry)) {
            acl.entries.clear();
        }
        for gone in self.remove.iter().filter(of_this) {
            acl.entries.retain(|entry| entry.tag != gone.tag);
        }
        for new in self.set.iter().chain(&self.modify).filter(of_this) {
            // What was changed so far counts.
            let has_x = is_dir || acl.entries.iter().any(|entry| entry.perm & 1 != 0);
            let perm = new.perm | u16::from(new.x_if_any && has_x);
            acl.entries.retain(|entry| entry.tag != new.tag);
            acl.entries.push(AclEntry { tag: new.tag, perm });
        }
        if !is_default {
            self.make_mask(acl, false);
            acl.entries.sort_by_key(|entry| entry.tag);
        }
    }

    /// Makes the mask of an ACL that has or needs one what the rule says.
    fn make_mask(&self, acl: &mut Acl, is_default: bool) {
        let mut all = self.set.iter().chain(&self.remove).chain(&self.modify);
        let is_of_this = |entry: &EntryChange| entry.is_default == is_default;
        let is_changed = all.clone().any(is_of_this);
        let is_mask_set = all.any(|entry| is_of_this(entry) && entry.tag == AclTag::Mask);
        if !is_changed || is_mask_set && self.mask != MaskRule::Always {
            return;
        }
        let old = mask(acl);
        let is_named = acl.entries.iter().any(|entry| entry.tag.id().is_some());
        let masked = acl.entries.iter().filter(|entry| is_masked(entry.tag));
        let perm = match (self.mask, old) {
            (_, None) if !is_named => return,
            (MaskRule::Never, Some(_)) => return,
            (MaskRule::Never, None) => {
                let group = masked.filter(|entry| entry.tag == AclTag::GroupObj);
                group.fold(0, |all, entry| all | entry.perm)
            }
            _ => masked.fold(0, |all, entry| all | entry.perm),
        };
        acl.entries.retain(|entry| entry.tag != AclTag::Mask);
        acl.entries.push(AclEntry {
            tag: AclTag::Mask,
            perm,
        });
    }
}

/// Leaves owner, group and others, the group with no more than the mask allows.
fn remove_extended(acl: &mut Acl) {
    let mask = mask(acl).unwrap_or(7);
    acl.entries
        .retain(|entry| entry.tag.id().is_none() && entry.tag != AclTag::Mask);
    for entry in &mut acl.entries {
        if entry.tag == AclTag::GroupObj {
            entry.perm &= mask;
        }
    }
}
