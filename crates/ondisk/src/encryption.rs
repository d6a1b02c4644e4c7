//! The encryption context: the attribute that says how an encrypted inode is encrypted.
//!
//! Left out: keys, and everything done with them.

use std::mem::size_of;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::damage::Damage;
use crate::num::len64;

/// Name of the attribute under [`crate::xattr::INDEX_ENCRYPTION`].
pub const ENCRYPTION_CONTEXT_NAME: &[u8] = b"c";
/// Length of a context of version 1.
pub const CONTEXT_V1_LEN: usize = size_of::<ContextV1>();
/// Length of a context of version 2.
pub const CONTEXT_V2_LEN: usize = size_of::<ContextV2>();

/// A context of version 1.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
#[allow(missing_docs)] // The names are the format's own.
pub struct ContextV1 {
    pub version: u8,
    pub contents_encryption_mode: u8,
    pub filenames_encryption_mode: u8,
    pub flags: u8,
    pub master_key_descriptor: [u8; 8],
    pub nonce: [u8; 16],
}

/// A context of version 2.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
#[allow(missing_docs)] // The names are the format's own.
pub struct ContextV2 {
    pub version: u8,
    pub contents_encryption_mode: u8,
    pub filenames_encryption_mode: u8,
    pub flags: u8,
    pub log2_data_unit_size: u8,
    pub reserved: [u8; 3],
    pub master_key_identifier: [u8; 16],
    pub nonce: [u8; 16],
}

const _: () = {
    assert!(CONTEXT_V1_LEN == 28);
    assert!(CONTEXT_V2_LEN == 40);
};

/// A context of either version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncryptionContext {
    /// Version 1: keys found by descriptor.
    V1(ContextV1),
    /// Version 2: keys found by their hash.
    V2(ContextV2),
}

impl EncryptionContext {
    /// Reads the attribute's value.
    ///
    /// # Errors
    /// [`Damage::Field`] for an unknown version or a length that is not the version's.
    pub fn parse(value: &[u8]) -> Result<Self, Damage> {
        let bad = |field, value: usize, why| Damage::Field {
            structure: "encryption context",
            field,
            value: len64(value),
            why,
        };
        let length = || bad("length", value.len(), "28 in version 1, 40 in version 2");
        match value.first() {
            Some(1) => Ok(Self::V1(
                ContextV1::read_from_bytes(value).map_err(|_| length())?,
            )),
            Some(2) => Ok(Self::V2(
                ContextV2::read_from_bytes(value).map_err(|_| length())?,
            )),
            Some(&other) => Err(bad("version", other.into(), "neither 1 nor 2")),
            None => Err(length()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_and_length_go_together() {
        for (version, len, ok) in [
            (1, 28, true),
            (2, 40, true),
            (1, 40, false),
            (2, 28, false),
            (3, 40, false),
        ] {
            let mut value = vec![0; len];
            value[0] = version;
            assert_eq!(
                EncryptionContext::parse(&value).is_ok(),
                ok,
                "{version} {len}"
            );
        }
        assert!(EncryptionContext::parse(&[]).is_err());
    }
}
