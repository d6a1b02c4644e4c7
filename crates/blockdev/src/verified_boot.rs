//! Footers of Android Verified Boot: the last bytes of a partition or an image whose file system
//! the boot loader or the kernel verifies.
//!
//! ```text
//! | file system | hash tree | error correction | signed descriptors | … | footer, 64 bytes |
//! ```
//! The format is public in the documentation of `avbtool`. Its numbers are big-endian.

use std::mem::size_of;

use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::{BlockDevice, Error};

/// First bytes of a footer.
const SIGNATURE: [u8; 4] = *b"AVBf";

/// A footer as it stands at the end.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawFooter {
    signature: [u8; 4],
    major: U32,
    minor: U32,
    image_len: U64,
    descriptors_at: U64,
    descriptors_len: U64,
    rest: [u8; 28],
}

/// Bytes of a footer.
const LEN: usize = size_of::<RawFooter>();

const _: () = assert!(LEN == 64);

/// A footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footer {
    /// Where it lies on its device, in bytes.
    pub at: u64,
    /// Bytes of what was there before the footer was added.
    pub image_len: u64,
    /// Where the signed descriptors lie.
    pub descriptors_at: u64,
    /// Their bytes.
    pub descriptors_len: u64,
}

impl Footer {
    /// The footer at the end of a device, behind its first `len` bytes; `None` if there is none.
    /// What lies in those bytes is data, whatever it looks like.
    ///
    /// # Errors
    /// Those of reading the device.
    pub fn behind(device: &dyn BlockDevice, len: u64) -> Result<Option<Self>, Error> {
        let Some(at) = device.len().checked_sub(LEN as u64).filter(|&at| at >= len) else {
            return Ok(None);
        };
        let mut bytes = [0; LEN];
        device.read_at(at, &mut bytes)?;
        let raw: RawFooter = zerocopy::transmute!(bytes);
        let footer = Self {
            at,
            image_len: raw.image_len.get(),
            descriptors_at: raw.descriptors_at.get(),
            descriptors_len: raw.descriptors_len.get(),
        };
        let end = footer.descriptors_at.checked_add(footer.descriptors_len);
        let is_one = raw.signature == SIGNATURE
            && raw.major.get() == 1
            && footer.image_len <= at
            && end.is_some_and(|end| end <= at);
        Ok(is_one.then_some(footer))
    }

    /// Gives the footer up: on the device that it was read from, it becomes zeroes.
    ///
    /// # Errors
    /// Those of the device.
    pub fn wipe(&self, device: &dyn BlockDevice) -> Result<(), Error> {
        device.write_at(self.at, &[0; LEN])?;
        device.flush()
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;
    use crate::MemoryDevice;

    fn bytes(image_len: u64) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..4].copy_from_slice(&SIGNATURE);
        bytes[7] = 1;
        bytes[12..20].copy_from_slice(U64::new(image_len).as_bytes());
        bytes[20..28].copy_from_slice(U64::new(8192).as_bytes());
        bytes[28..36].copy_from_slice(U64::new(256).as_bytes());
        bytes
    }

    #[test]
    fn a_footer_is_found_behind_the_data_until_it_is_given_up() {
        let device = MemoryDevice::new(1 << 20);
        let at = (1 << 20) - 64;
        device.write_at(at, &bytes(4096)).unwrap();
        let found = Footer::behind(&device, 4096).unwrap().unwrap();
        assert_eq!((found.at, found.image_len), (at, 4096));
        assert_eq!((found.descriptors_at, found.descriptors_len), (8192, 256));
        // The file system has the last bytes: they are data of a file.
        assert_eq!(Footer::behind(&device, at + 1).unwrap(), None);
        assert_eq!(Footer::behind(&device, u64::MAX).unwrap(), None);
        found.wipe(&device).unwrap();
        assert_eq!(Footer::behind(&device, 4096).unwrap(), None);
    }

    #[test]
    fn what_makes_no_sense_is_no_footer() {
        let device = MemoryDevice::new(1 << 20);
        let at = (1 << 20) - 64;
        for (index, byte) in [(0, 0), (7, 2), (12, 1), (20, 1), (28, 0xff)] {
            let mut bytes = bytes(4096);
            bytes[index] = byte;
            device.write_at(at, &bytes).unwrap();
            assert_eq!(Footer::behind(&device, 4096).unwrap(), None, "{index}");
        }
        let short = MemoryDevice::new(63);
        assert_eq!(Footer::behind(&short, 0).unwrap(), None);
    }
}
