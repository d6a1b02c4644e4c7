//! POSIX ACLs: what requests may ask for, what new inodes inherit, what chmod does to them.
//!
//! After POSIX 1003.1e draft 17 as acl(5) reports it. How they are stored is `ondisk`'s business;
//! storing them is that of `xattr::change`. Left out: who may do what, which callers decide.

use uext4_ondisk::Damage;
use uext4_ondisk::acl::{ACL_HEADER_LEN, Acl, AclEntry, AclTag, POSIX_ACL_XATTR_VERSION};
use uext4_ondisk::checksum::le32;
use uext4_ondisk::inode::FileType;

pub(crate) use crate::base::acl_kind::AclKind;
use crate::base::error::{Error, Result};
use crate::base::invalid::Invalid;
use crate::inode::Inode;
use crate::journal::sbi::Sbi;
use crate::xattr::{self, Reader, XattrName};

/// Permission bits of owner, group and others.
pub(super) const PERMISSIONS: u16 = 0o777;

/// The ACL a request asks for, from the form of the system calls; `None`: there is to be none.
pub(crate) fn from_wire(kind: AclKind, file_type: FileType, wire: &[u8]) -> Result<Option<Acl>> {
    let acl = match wire.get(..ACL_HEADER_LEN) {
        None if wire.is_empty() => Acl::default(),
        Some(version) if version != le32(POSIX_ACL_XATTR_VERSION) => {
            return Err(Error::Unsupported {
                what: "this version of the form of ACLs".to_owned(),
            });
        }
        _ => Acl::parse_wire(wire).map_err(not_an_acl)?,
    };
    if file_type == FileType::Symlink {
        return Err(Error::Unsupported {
            what: "an ACL of a symbolic link".to_owned(),
        });
    }
    if acl.entries.is_empty() {
        return Ok(None);
    }
    if kind == AclKind::Default && file_type != FileType::Directory {
        return Err(Error::AccessDenied {
            what: "default ACLs apply only to directories",
        });
    }
    acl.validate().map_err(not_an_acl)?;
    Ok(Some(acl))
}

/// A damaged ACL in the request is no damage of the image.
fn not_an_acl(damage: Damage) -> Error {
    match damage {
        Damage::Acl { why } => Invalid::Acl(why).into(),
        _ => Invalid::Acl("not in the form of one").into(),
    }
}

/// An ACL of an inode, if it has one.
pub(crate) fn get(sbi: &Sbi, inode: &Inode, kind: AclKind) -> Result<Option<Acl>> {
    let name = XattrName::of_acl(kind);
    let Some(value) = xattr::find_value(sbi, inode, Reader::Onlooker, name)? else {
        return Ok(None);
    };
    let acl = Acl::parse_disk(&value)?;
    Ok((!acl.entries.is_empty()).then_some(acl))
}

/// What a new inode begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inherited {
    /// Its mode, type bits and all.
    pub(crate) mode: u16,
    /// Its access ACL, where the mode does not say it all.
    pub(crate) access: Option<Acl>,
    /// Its default ACL, for directories.
    pub(crate) default: Option<Acl>,
}

/// What an inode made in `parent` begins with, if `mode` (type bits included) was asked for. The
/// umask counts only where the parent has no default ACL.
pub(crate) fn inherit(sbi: &Sbi, parent: &Inode, mode: u16, umask: u16) -> Result<Inherited> {
    let plain = |mode| Inherited {
        mode,
        access: None,
        default: None,
    };
    let file_type = FileType::from_mode(mode);
    if file_type == Some(FileType::Symlink) {
        return Ok(plain(mode));
    }
    let Some(default) = get(sbi, parent, AclKind::Default)? else {
        return Ok(plain(mode & !(umask & PERMISSIONS)));
    };
    let mut access = default.clone();
    limit(&mut access, mode);
    Ok(Inherited {
        mode: mode & !PERMISSIONS | access.mode_bits(),
        access: (!access.is_minimal()).then_some(access),
        default: (file_type == Some(FileType::Directory)).then_some(default),
    })
}

/// Takes from an inherited ACL what the request to create does not ask for.
fn limit(acl: &mut Acl, mode: u16) {
    for_each_class(acl, |entry, shift| entry.perm &= mode >> shift & 7);
}

/// Makes an access ACL say what chmod asks for: a mode's permission bits.
pub(crate) fn chmod(acl: &mut Acl, mode: u16) {
    for_each_class(acl, |entry, shift| entry.perm = mode >> shift & 7);
}

/// Calls `f` with the entries that stand for the three classes of a mode, and how far its bits are
/// shifted. That of the group is the mask, where there is one.
fn for_each_class(acl: &mut Acl, f: impl Fn(&mut AclEntry, u16)) {
    let masked = acl.entries.iter().any(|entry| entry.tag == AclTag::Mask);
    for entry in &mut acl.entries {
        match entry.tag {
            AclTag::UserObj => f(entry, 6),
            AclTag::GroupObj if !masked => f(entry, 3),
            AclTag::Mask => f(entry, 3),
            AclTag::Other => f(entry, 0),
            AclTag::GroupObj | AclTag::User(_) | AclTag::Group(_) => {}
        }
    }
}

#[cfg(test)]
mod tests;
