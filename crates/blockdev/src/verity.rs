//! Superblocks of dm-verity hash trees: which device or part of a device may not change, because
//! the kernel verifies every block of it.
//!
//! A tree says how much data it covers, not where that lies. By habit it lies behind the data
//! ([`Tree::behind`]) or in a partition of its own
//! ([`Window::guards`](crate::partition::Window::guards)). The source is the page `DMVerity` of the
//! cryptsetup wiki.

use std::mem::size_of;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::verified_boot::Footer;
use crate::{BlockDevice, Error};

/// First bytes of a superblock.
const SIGNATURE: [u8; 8] = *b"verity\0\0";
/// Bytes of the longest salt.
const SALT_MAX: usize = 256;
/// A tree begins at a multiple of this many bytes behind its data.
const ALIGN: u64 = 4096;

/// Fails if a tree, or a footer of Android Verified Boot, lies behind the first `len` bytes of a
/// device, which would make any change of them an error when they are verified.
///
/// # Errors
/// [`Error::Verified`], [`Error::VerifiedBoot`]; those of reading the device.
pub fn refuse_behind(device: &dyn BlockDevice, len: u64) -> Result<(), Error> {
    if let Some(tree) = Tree::behind(device, len)? {
        return Err(Error::Verified {
            at: tree.at,
            partition: None,
        });
    }
    match Footer::behind(device, len)? {
        Some(footer) => Err(Error::VerifiedBoot { at: footer.at }),
        None => Ok(()),
    }
}

/// Gives up the tree and the footer of Android Verified Boot behind the first `len` bytes of a
/// device: they would be taken for those of a new file system of this length, which then could not
/// be changed.
///
/// # Errors
/// Those of the device.
pub fn wipe_behind(device: &dyn BlockDevice, len: u64) -> Result<(), Error> {
    if let Some(tree) = Tree::behind(device, len)? {
        tree.wipe(device)?;
    }
    match Footer::behind(device, len)? {
        Some(footer) => footer.wipe(device),
        None => Ok(()),
    }
}

/// A superblock as it stands in its first sector.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawSuperblock {
    signature: [u8; 8],
    version: U32,
    hash_type: U32,
    uuid: [u8; 16],
    algorithm: [u8; 32],
    data_block_size: U32,
    hash_block_size: U32,
    data_blocks: U64,
    salt_size: U16,
    padding: [u8; 6],
    salt: [u8; SALT_MAX],
    rest: [u8; 168],
}

/// Bytes of a superblock.
pub const SUPERBLOCK_LEN: usize = size_of::<RawSuperblock>();

const _: () = assert!(SUPERBLOCK_LEN == 512);

/// A hash tree as its superblock describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// Where the superblock lies on its device, in bytes.
    pub at: u64,
    /// UUID of the tree.
    pub uuid: [u8; 16],
    /// 0 if the salt follows what is hashed, 1 if it precedes that.
    pub hash_type: u32,
    /// The hash, as the kernel calls it: "sha256".
    pub algorithm: String,
    /// Bytes of a block of data, a power of two.
    pub data_block: u32,
    /// Bytes of a block of hashes, a power of two.
    pub hash_block: u32,
    /// Blocks of data.
    pub data_blocks: u64,
    /// What is hashed with every block, at most 256 bytes.
    pub salt: Vec<u8>,
}

impl Tree {
    /// The tree of the superblock in `bytes`, which lie at byte `at`; `None` if there is none.
    #[must_use]
    pub fn parse(bytes: &[u8], at: u64) -> Option<Self> {
        let (raw, _) = RawSuperblock::ref_from_prefix(bytes).ok()?;
        let is_block = |size: u32| size.is_power_of_two() && (512..=1 << 20).contains(&size);
        let (data_block, hash_block) = (raw.data_block_size.get(), raw.hash_block_size.get());
        let blocks = raw.data_blocks.get();
        let name = raw.algorithm.split(|&byte| byte == 0).next()?;
        let is_whole = raw.signature == SIGNATURE
            && raw.version.get() == 1
            && is_block(data_block)
            && is_block(hash_block)
            && blocks.checked_mul(data_block.into()).is_some()
            && name.iter().all(u8::is_ascii_graphic);
        let salt = raw.salt.get(..raw.salt_size.get().into())?;
        is_whole.then(|| Self {
            at,
            uuid: raw.uuid,
            hash_type: raw.hash_type.get(),
            algorithm: String::from_utf8_lossy(name).into_owned(),
            data_block,
            hash_block,
            data_blocks: blocks,
            salt: salt.to_vec(),
        })
    }

    /// The superblock; a salt or a name that is too long is cut.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; SUPERBLOCK_LEN] {
        let mut raw = RawSuperblock {
            signature: SIGNATURE,
            version: 1.into(),
            hash_type: self.hash_type.into(),
            uuid: self.uuid,
            algorithm: [0; 32],
            data_block_size: self.data_block.into(),
            hash_block_size: self.hash_block.into(),
            data_blocks: self.data_blocks.into(),
            salt_size: 0.into(),
            padding: [0; 6],
            salt: [0; SALT_MAX],
            rest: [0; 168],
        };
        for (to, from) in raw.algorithm.iter_mut().zip(self.algorithm.bytes()) {
            *to = from;
        }
        for (to, from) in raw.salt.iter_mut().zip(&self.salt) {
            *to = *from;
        }
        // OK to truncate: at most 256.
        raw.salt_size = (self.salt.len().min(SALT_MAX) as u16).into();
        zerocopy::transmute!(raw)
    }

    /// The tree whose superblock begins at byte `at` of a device; `None` if there is none.
    ///
    /// # Errors
    /// Those of reading the device.
    pub fn read(device: &dyn BlockDevice, at: u64) -> Result<Option<Self>, Error> {
        let mut bytes = [0; SUPERBLOCK_LEN];
        if Error::check_range(at, bytes.len() as u64, device.len()).is_err() {
            return Ok(None);
        }
        device.read_at(at, &mut bytes)?;
        Ok(Self::parse(&bytes, at))
    }

    /// The tree behind the first `len` bytes of a device, which it covers.
    ///
    /// # Errors
    /// Those of reading the device.
    pub fn behind(device: &dyn BlockDevice, len: u64) -> Result<Option<Self>, Error> {
        match len.checked_next_multiple_of(ALIGN) {
            Some(at) => Self::read(device, at),
            None => Ok(None),
        }
    }

    /// Bytes of data that it covers.
    #[must_use]
    pub fn data_len(&self) -> u64 {
        self.data_blocks.saturating_mul(self.data_block.into())
    }

    /// Gives the tree up: its superblock, on the device that it was read from, becomes zeroes.
    ///
    /// # Errors
    /// Those of the device.
    pub fn wipe(&self, device: &dyn BlockDevice) -> Result<(), Error> {
        device.write_at(self.at, &[0; SUPERBLOCK_LEN])?;
        device.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    fn tree() -> Tree {
        Tree {
            at: 8192,
            uuid: [7; 16],
            hash_type: 1,
            algorithm: "sha256".to_owned(),
            data_block: 4096,
            hash_block: 4096,
            data_blocks: 2,
            salt: vec![1, 2, 3],
        }
    }

    #[test]
    fn a_tree_is_found_behind_its_data_until_it_is_given_up() {
        let device = MemoryDevice::new(1 << 20);
        device.write_at(8192, &tree().to_bytes()).unwrap();
        for len in [4097, 5000, 8192] {
            let found = Tree::behind(&device, len).unwrap();
            assert_eq!(found, Some(tree()));
            assert!(refuse_behind(&device, len).is_err());
        }
        for len in [4096, 8193, (1 << 20) - 1, 1 << 20, u64::MAX] {
            assert_eq!(Tree::behind(&device, len).unwrap(), None, "{len}");
        }
        assert_eq!(tree().data_len(), 8192);
        tree().wipe(&device).unwrap();
        refuse_behind(&device, 8192).unwrap();
    }

    #[test]
    fn what_makes_no_sense_is_no_tree() {
        let changes: [fn(&mut RawSuperblock); 6] = [
            |raw| raw.signature[0] = 0,
            |raw| raw.version = 2.into(),
            |raw| raw.data_block_size = 4097.into(),
            |raw| raw.hash_block_size = 0.into(),
            |raw| raw.data_blocks = u64::MAX.into(),
            |raw| raw.salt_size = 257.into(),
        ];
        for change in changes {
            let mut bytes = tree().to_bytes();
            change(RawSuperblock::mut_from_bytes(&mut bytes).unwrap());
            assert_eq!(Tree::parse(&bytes, 0), None);
        }
        assert_eq!(Tree::parse(&tree().to_bytes()[..511], 0), None);
    }
}
