//! POSIX ACLs: as an attribute's value on disk, and as getxattr and setxattr carry them.
//!
//! ```text
//! disk:  version 1 (u32) | tag u16, perm u16 [, id u32: only named users and groups] …
//! wire:  version 2 (u32) | tag u16, perm u16, id u32 …
//! ```
//! Both are little endian. Reading is as lenient as the kernel's (an odd order is shown as it is);
//! what is written passes [`Acl::validate`], the rules of setxattr.

use std::mem::size_of;

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::damage::Damage;

/// `a_version` on disk.
pub const EXT4_ACL_VERSION: u32 = 1;
/// `a_version` of the wire form.
pub const POSIX_ACL_XATTR_VERSION: u32 = 2;
/// Length of the version word that both forms begin with.
pub const ACL_HEADER_LEN: usize = 4;
/// Length of an entry on disk that names no user.
pub const ACL_SHORT_ENTRY_LEN: usize = 4;
/// Length of an entry on disk that names a user or group, and of every entry on the wire.
pub const ACL_ENTRY_LEN: usize = 8;
/// Id on the wire of an entry that names no user.
pub const ACL_UNDEFINED_ID: u32 = u32::MAX;

/// An entry with its id; the short form on disk is its first four bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // The names are the format's own.
pub struct RawAclEntry {
    pub e_tag: U16,
    pub e_perm: U16,
    pub e_id: U32,
}

const _: () = assert!(size_of::<RawAclEntry>() == ACL_ENTRY_LEN);

/// Whom an entry is for, in the order entries must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AclTag {
    /// The owner.
    UserObj,
    /// A user by id.
    User(u32),
    /// The owning group.
    GroupObj,
    /// A group by id.
    Group(u32),
    /// The most that named users and all groups get.
    Mask,
    /// Every user else.
    Other,
}

impl AclTag {
    fn from_code(code: u16, id: u32) -> Option<Self> {
        Some(match code {
            0x01 => Self::UserObj,
            0x02 => Self::User(id),
            0x04 => Self::GroupObj,
            0x08 => Self::Group(id),
            0x10 => Self::Mask,
            0x20 => Self::Other,
            _ => return None,
        })
    }

    fn code(self) -> u16 {
        match self {
            Self::UserObj => 0x01,
            Self::User(_) => 0x02,
            Self::GroupObj => 0x04,
            Self::Group(_) => 0x08,
            Self::Mask => 0x10,
            Self::Other => 0x20,
        }
    }

    /// The id of a named user or group.
    pub fn id(self) -> Option<u32> {
        match self {
            Self::User(id) | Self::Group(id) => Some(id),
            _ => None,
        }
    }
}

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AclEntry {
    /// Whom it is for.
    pub tag: AclTag,
    /// Read 4, write 2, execute 1.
    pub perm: u16,
}

/// An ACL in host form. Without entries it stands for "no ACL": the kernel shows none for it, and
/// setting it removes the attribute.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Acl {
    /// Its entries, in the order found.
    pub entries: Vec<AclEntry>,
}

fn bad(why: &'static str) -> Damage {
    Damage::Acl { why }
}

/// Splits off the version word, which must be `version`.
fn after_version<'a>(value: &'a [u8], version: u32, why: &'static str) -> Result<&'a [u8], Damage> {
    match U32::read_from_prefix(value) {
        Ok((found, rest)) if found.get() == version => Ok(rest),
        Ok(_) => Err(bad(why)),
        Err(_) => Err(bad("shorter than its version")),
    }
}

impl Acl {
    /// Reads an attribute's value as it lies on disk.
    ///
    /// # Errors
    /// [`Damage::Acl`] for a version other than 1, an unknown tag, or a cut-off entry.
    pub fn parse_disk(value: &[u8]) -> Result<Self, Damage> {
        let mut rest = after_version(value, EXT4_ACL_VERSION, "version on disk is not 1")?;
        let mut entries = Vec::with_capacity(rest.len() / ACL_SHORT_ENTRY_LEN);
        while !rest.is_empty() {
            let (head, after) =
                <[U16; 2]>::read_from_prefix(rest).map_err(|_| bad("cut-off entry"))?;
            let mut tag = AclTag::from_code(head[0].get(), 0).ok_or_else(|| bad("unknown tag"))?;
            rest = after;
            if let AclTag::User(id) | AclTag::Group(id) = &mut tag {
                let (found, after) =
                    U32::read_from_prefix(rest).map_err(|_| bad("cut-off entry"))?;
                *id = found.get();
                rest = after;
            }
            entries.push(AclEntry {
                tag,
                perm: head[1].get(),
            });
        }
        Ok(Self { entries })
    }

    /// Reads the form getxattr returns. The id of an entry that names no user is ignored.
    ///
    /// # Errors
    /// [`Damage::Acl`] for a version other than 2, an unknown tag, or a cut-off entry.
    pub fn parse_wire(value: &[u8]) -> Result<Self, Damage> {
        let rest = after_version(
            value,
            POSIX_ACL_XATTR_VERSION,
            "version on the wire is not 2",
        )?;
        let raw = <[RawAclEntry]>::ref_from_bytes(rest).map_err(|_| bad("cut-off entry"))?;
        let entry = |raw: &RawAclEntry| {
            Some(AclEntry {
                tag: AclTag::from_code(raw.e_tag.get(), raw.e_id.get())?,
                perm: raw.e_perm.get(),
            })
        };
        let entries: Option<Vec<_>> = raw.iter().map(entry).collect();
        entries
            .map(|entries| Self { entries })
            .ok_or_else(|| bad("unknown tag"))
    }

    /// The value as it lies on disk.
    pub fn to_disk(&self) -> Vec<u8> {
        self.encode(EXT4_ACL_VERSION, |raw, tag| match tag.id() {
            Some(_) => raw.as_bytes().len(),
            None => ACL_SHORT_ENTRY_LEN,
        })
    }

    /// The form getxattr returns.
    pub fn to_wire(&self) -> Vec<u8> {
        self.encode(POSIX_ACL_XATTR_VERSION, |_, _| ACL_ENTRY_LEN)
    }

    fn encode(&self, version: u32, len: impl Fn(&RawAclEntry, AclTag) -> usize) -> Vec<u8> {
        let mut value = U32::new(version).to_bytes().to_vec();
        for entry in &self.entries {
            let raw = RawAclEntry {
                e_tag: entry.tag.code().into(),
                e_perm: entry.perm.into(),
                e_id: entry.tag.id().unwrap_or(ACL_UNDEFINED_ID).into(),
            };
            value.extend_from_slice(&raw.as_bytes()[..len(&raw, entry.tag)]);
        }
        value
    }

    /// Tests what setxattr demands: owner, group and others once each, named users after the
    /// owner, named groups after the group, and a mask if any thread is named.
    ///
    /// # Errors
    /// [`Damage::Acl`] with the first rule that is broken.
    pub fn validate(&self) -> Result<(), Damage> {
        let rank = |e: &AclEntry| e.tag.code();
        if self.entries.iter().any(|e| e.perm & !7 != 0) {
            return Err(bad("permission bits other than rwx"));
        }
        if self
            .entries
            .iter()
            .any(|e| e.tag.id() == Some(ACL_UNDEFINED_ID))
        {
            return Err(bad("a named user or group without id"));
        }
        if self.entries.windows(2).any(|w| rank(&w[0]) > rank(&w[1])) {
            return Err(bad("entries out of order"));
        }
        let count = |tag: AclTag| self.entries.iter().filter(|e| e.tag == tag).count();
        for (tag, why) in [
            (AclTag::UserObj, "not exactly one entry for the owner"),
            (AclTag::GroupObj, "not exactly one entry for the group"),
            (AclTag::Other, "not exactly one entry for others"),
        ] {
            if count(tag) != 1 {
                return Err(bad(why));
            }
        }
        let named = self.entries.iter().any(|e| e.tag.id().is_some());
        match count(AclTag::Mask) {
            0 if named => Err(bad("named users or groups without a mask")),
            0 | 1 => Ok(()),
            _ => Err(bad("more than one mask")),
        }
    }

    /// True if the permission bits of a mode say all there is: the kernel then stores no attribute
    /// for an access ACL.
    pub fn is_minimal(&self) -> bool {
        !self
            .entries
            .iter()
            .any(|e| e.tag.id().is_some() || e.tag == AclTag::Mask)
    }

    /// The nine permission bits that go with this access ACL; the mask, where there is one, shows
    /// as the group's.
    pub fn mode_bits(&self) -> u16 {
        let perm = |tag| {
            let entry = self.entries.iter().find(|e| e.tag == tag);
            entry.map(|e| e.perm & 7)
        };
        let group = perm(AclTag::Mask).or(perm(AclTag::GroupObj));
        perm(AclTag::UserObj).unwrap_or(0) << 6
            | group.unwrap_or(0) << 3
            | perm(AclTag::Other).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn acl(entries: &[(AclTag, u16)]) -> Acl {
        Acl {
            entries: entries
                .iter()
                .map(|&(tag, perm)| AclEntry { tag, perm })
                .collect(),
        }
    }

    fn sample() -> Acl {
        acl(&[
            (AclTag::UserObj, 6),
            (AclTag::User(1000), 4),
            (AclTag::GroupObj, 4),
            (AclTag::Group(5), 7),
            (AclTag::Mask, 5),
            (AclTag::Other, 1),
        ])
    }

    #[test]
    fn disk_form_is_short_without_named_entries() {
        let disk = sample().to_disk();
        assert_eq!(disk.len(), 4 + 4 * 4 + 2 * 8);
        assert_eq!(disk[..12], [1, 0, 0, 0, 1, 0, 6, 0, 2, 0, 4, 0]);
        let wire = Acl::parse_disk(&disk).unwrap().to_wire();
        assert_eq!(wire.len(), 4 + 6 * 8);
        assert_eq!(wire[..12], [2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255]);
        assert_eq!(Acl::parse_wire(&wire).unwrap().to_disk(), disk);
    }

    #[test]
    fn mode_shows_the_mask_as_group() {
        assert_eq!(sample().mode_bits(), 0o651);
        assert!(!sample().is_minimal());
    }

    #[test]
    fn broken_rules_are_named() {
        let cases = [
            (acl(&[]), "not exactly one entry for the owner"),
            (
                acl(&[
                    (AclTag::UserObj, 6),
                    (AclTag::User(1), 4),
                    (AclTag::GroupObj, 4),
                    (AclTag::Other, 0),
                ]),
                "named users or groups without a mask",
            ),
            (
                acl(&[
                    (AclTag::GroupObj, 6),
                    (AclTag::UserObj, 4),
                    (AclTag::Other, 0),
                ]),
                "entries out of order",
            ),
            (
                acl(&[
                    (AclTag::UserObj, 8),
                    (AclTag::GroupObj, 4),
                    (AclTag::Other, 0),
                ]),
                "permission bits other than rwx",
            ),
        ];
        for (acl, why) in cases {
            assert_eq!(acl.validate(), Err(Damage::Acl { why }));
        }
        assert_eq!(sample().validate(), Ok(()));
    }

    #[test]
    fn cut_off_values_are_named() {
        let disk = sample().to_disk();
        for len in [0, 3, 5, 6, 10, disk.len() - 1] {
            assert!(Acl::parse_disk(&disk[..len]).is_err(), "{len}");
        }
        let wire = sample().to_wire();
        for len in [0, 3, 5, 8, wire.len() - 1] {
            assert!(Acl::parse_wire(&wire[..len]).is_err(), "{len}");
        }
        assert!(Acl::parse_disk(&wire).is_err());
        assert!(Acl::parse_wire(&disk).is_err());
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(mut value: Vec<u8>, version in 1u8..=2) {
            if value.len() >= 4 {
                value[..4].copy_from_slice(&[version, 0, 0, 0]);
            }
            let _ = Acl::parse_disk(&value).map(|acl| acl.to_wire());
            let _ = Acl::parse_wire(&value).map(|acl| acl.validate());
        }
    }
}
