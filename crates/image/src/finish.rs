//! What is put around a finished file system: a partition table, a hash tree, or both.
//!
//! ```text
//! neither     | file system |
//! verity      | file system | hash tree |
//! gpt         | MBR, GPT | file system | GPT copy |
//! both        | MBR, GPT | file system | hash tree | GPT copy |
//! ```
//! Where everything lies is known before the file system is made, so that it is written where it
//! stays. GUIDs and salt follow from the UUID of the file system: an image is reproducible if that
//! is.

use std::sync::Arc;

use uext4_blockdev::{BlockDevice, SubDevice};

use crate::error::{Error, FinishError};
use crate::gpt::{Gpt, Layout, PartitionType};
use crate::verity::{BLOCK, RootHash, Verity};

/// What to put around a file system; by default nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FinishOptions {
    /// A partition table.
    pub gpt: Option<GptOptions>,
    /// A hash tree with this salt.
    pub verity: Option<Salt>,
}

/// How the partition with the file system is described.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GptOptions {
    /// Its type.
    pub kind: PartitionType,
    /// Its name, at most 36 UTF-16 units; by default that of the type.
    pub name: Option<String>,
}

/// What is hashed before every block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Salt {
    /// 32 bytes that follow from the UUID of the file system.
    FromUuid,
    /// These bytes, at most 256; there may be none.
    Given(Vec<u8>),
}

/// A hash tree that was made: all that opening it takes, with `veritysetup` or as a target of the
/// device mapper. Its format is version 1, the hashes are SHA-256, and blocks of data
/// and of hashes have 4,096 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HashTree {
    /// Hash of the top block.
    pub root_hash: RootHash,
    /// What is hashed before every block, in hexadecimal digits; "-" if there is nothing.
    pub salt: String,
    /// UUID in the superblock of the tree.
    pub uuid: [u8; 16],
    /// Blocks of data.
    pub data_blocks: u64,
    /// Where the data begins in the image, in bytes.
    pub data_offset: u64,
    /// Where the superblock of the tree is in the image, in bytes. The tree begins one block later.
    pub hash_offset: u64,
}

impl HashTree {
    /// The same tree in an image that begins at byte `start` of a disk.
    pub(crate) fn moved_by(mut self, start: u64) -> Self {
        self.data_offset = self.data_offset.saturating_add(start);
        self.hash_offset = self.hash_offset.saturating_add(start);
        self
    }
}

/// What will be put around one file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finish {
    gpt: Option<Gpt>,
    verity: Option<Verity>,
    /// Bytes that are left free before the file system where there is no partition table.
    offset: u64,
}

impl FinishOptions {
    /// What it will be for the file system with this UUID, which begins at byte `offset`, on a
    /// device with sectors of so many bytes: 512 for a file.
    ///
    /// # Errors
    /// [`FinishError`], for options that cannot be.
    pub fn plan(
        &self,
        uuid: [u8; 16],
        offset: u64,
        sector_size: u32,
    ) -> Result<Finish, FinishError> {
        if offset > 0 && self.gpt.is_some() {
            return Err(FinishError::Offset { offset });
        }
        let verity = match &self.verity {
            None => None,
            Some(Salt::FromUuid) => Verity::new(Verity::salt_from(&uuid), uuid),
            Some(Salt::Given(salt)) => {
                let len = salt.len();
                Some(Verity::new(salt.clone(), uuid).ok_or(FinishError::Salt { len })?)
            }
        };
        let gpt = match &self.gpt {
            None => None,
            Some(GptOptions { kind, .. }) if verity.is_some() && kind.verity().is_none() => {
                let kind = match kind.name() {
                    "" => kind.guid().to_string(),
                    name => name.to_owned(),
                };
                return Err(FinishError::NoTreeType { kind });
            }
            Some(GptOptions { kind, name }) => {
                let name = name.as_deref().unwrap_or(kind.name());
                Some(Gpt::new(*kind, name, uuid)?.with_sector_size(sector_size)?)
            }
        };
        Ok(Finish {
            gpt,
            verity,
            offset,
        })
    }
}

impl Finish {
    /// Where everything lies around a file system of `fs_len` bytes, in the smallest image.
    #[must_use]
    pub fn layout(&self, fs_len: u64) -> Layout {
        let tree_len = self.verity.as_ref().map(|verity| {
            let blocks = fs_len.div_ceil(BLOCK);
            verity.tree_len(blocks.saturating_mul(BLOCK))
        });
        if let Some(gpt) = &self.gpt {
            return gpt.layout(fs_len, tree_len);
        }
        let Some(tree_len) = tree_len else {
            let len = self.offset.saturating_add(fs_len);
            return Layout {
                fs: self.offset..len,
                verity: None,
                len,
            };
        };
        let fs_end = fs_len.div_ceil(BLOCK).saturating_mul(BLOCK);
        let fs_end = self.offset.saturating_add(fs_end);
        let len = fs_end.saturating_add(tree_len);
        Layout {
            fs: self.offset..fs_end,
            verity: Some(fs_end..len),
            len,
        }
    }

    /// Where the file system begins, in bytes of the image, however long it is.
    #[must_use]
    pub fn fs_start(&self) -> u64 {
        self.layout(0).fs.start
    }

    /// Bytes of the largest file system that an image of `len` bytes has space for; a multiple of
    /// [`BLOCK`] if anything is put around it. 0 if there is no space.
    #[must_use]
    pub fn fs_max(&self, len: u64) -> u64 {
        if self.gpt.is_none() && self.verity.is_none() {
            return len.saturating_sub(self.offset);
        }
        let fits = |blocks: u64| self.layout(blocks * BLOCK).len <= len;
        // The largest number that fits is in this range.
        let (mut low, mut high) = (0, len / BLOCK);
        while low < high {
            let middle = high - (high - low) / 2;
            match fits(middle) {
                true => low = middle,
                false => high = middle - 1,
            }
        }
        low * BLOCK
    }

    /// Clears what lies where the partition tables will be, before the file system is made: what
    /// a device held is no longer found. Nothing between them is touched.
    ///
    /// # Errors
    /// Those of the device.
    pub fn prepare(&self, layout: &Layout, device: &dyn BlockDevice) -> Result<(), Error> {
        if self.gpt.is_some() {
            device.discard(0, layout.fs.start.min(device.len()))?;
            let used = layout.verity.as_ref().unwrap_or(&layout.fs).end;
            let end = device.len().saturating_sub(layout.fs.start).max(used);
            device.discard(end, device.len().saturating_sub(end))?;
        }
        Ok(())
    }

    /// The part of the image that the file system is made in.
    ///
    /// # Errors
    /// [`uext4_blockdev::Error::OutOfRange`] if it does not lie on the device.
    pub fn fs_device(
        &self,
        layout: &Layout,
        device: Arc<dyn BlockDevice>,
    ) -> Result<Arc<dyn BlockDevice>, Error> {
        if self.gpt.is_none() && self.verity.is_none() {
            // Up to the end of the device.
            return Ok(match self.offset {
                0 => device,
                offset => Arc::new(SubDevice::from_offset(device, offset)?),
            });
        }
        let len = layout.fs.end - layout.fs.start;
        Ok(Arc::new(SubDevice::new(device, layout.fs.start, len)?))
    }

    /// Describes the hash tree with this root hash; `None` if there is to be none.
    #[must_use]
    pub fn hash_tree(&self, layout: &Layout, root_hash: RootHash) -> Option<HashTree> {
        let (verity, place) = self.verity.as_ref().zip(layout.verity.as_ref())?;
        Some(HashTree {
            root_hash,
            salt: verity.salt_text(),
            uuid: verity.uuid(),
            data_blocks: (layout.fs.end - layout.fs.start).div_ceil(BLOCK),
            data_offset: layout.fs.start,
            hash_offset: place.start,
        })
    }

    /// Writes the hash tree of the finished file system, and the partition tables last: until
    /// then the device has no file system that is found. Returns the root hash if there is a tree.
    ///
    /// # Errors
    /// Those of the device.
    pub fn write(
        &self,
        layout: &Layout,
        device: &Arc<dyn BlockDevice>,
    ) -> Result<Option<RootHash>, Error> {
        let mut root_hash = None;
        if let (Some(verity), Some(place)) = (&self.verity, &layout.verity) {
            let fs = self.fs_device(layout, Arc::clone(device))?;
            let len = place.end - place.start;
            let tree = SubDevice::new(Arc::clone(device), place.start, len)?;
            root_hash = Some(verity.write(&*fs, &tree)?);
        }
        if let Some(gpt) = &self.gpt {
            device.flush()?;
            gpt.write(layout, root_hash.as_ref(), &**device)?;
        }
        Ok(root_hash)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use uext4_blockdev::{Access, FileDevice, MemoryDevice, partition};
    use uext4_testkit::{has_tool, run, scratch};

    use super::*;
    use crate::gpt::GptError;

    const UUID: [u8; 16] = [7; 16];

    fn gpt(kind: &str) -> Option<GptOptions> {
        let kind = kind.parse().unwrap();
        Some(GptOptions { kind, name: None })
    }

    /// Every combination.
    fn plans() -> [Finish; 4] {
        let verity = Some(Salt::FromUuid);
        [
            (None, None),
            (None, verity.clone()),
            (gpt("linux"), None),
            (gpt("root-x86-64"), verity),
        ]
        .map(|(gpt, verity)| FinishOptions { gpt, verity }.plan(UUID, 0, 512).unwrap())
    }

    #[test]
    fn the_largest_file_system_fits_and_a_larger_one_does_not() {
        for finish in plans() {
            for len in [0, 4095, 4096, 8191, 3 << 20, 9_999_999, 1 << 40, 1 << 50] {
                let most = finish.fs_max(len);
                assert!(
                    most == 0 || finish.layout(most).len <= len,
                    "{finish:?} {len}"
                );
                assert!(finish.layout(most + BLOCK).len > len, "{finish:?} {len}");
            }
        }
    }

    #[test]
    fn everything_is_where_the_layout_says() {
        let dir = scratch();
        let path = dir.path().join("image");
        for finish in plans() {
            _ = std::fs::remove_file(&path);
            // No whole block.
            let layout = finish.layout((20 << 20) + 1024);
            let device = FileDevice::create(&path, layout.len).unwrap();
            let device: Arc<dyn BlockDevice> = Arc::new(device);
            finish.prepare(&layout, &*device).unwrap();
            let fs = finish.fs_device(&layout, Arc::clone(&device)).unwrap();
            fs.write_at(5 << 20, &[9; 70_000]).unwrap();
            let root = finish.write(&layout, &device).unwrap();
            assert_eq!(root.is_some(), layout.verity.is_some());
            let bytes = std::fs::read(&path).unwrap();
            let part =
                |place: &std::ops::Range<u64>| &bytes[place.start as usize..place.end as usize];
            assert_eq!(part(&layout.fs)[5 << 20..][..70_000], [9; 70_000]);
            if let (Some(root), Some(tree)) = (root, &layout.verity)
                && has_tool("veritysetup")
            {
                let [fs_path, tree_path] = ["fs", "tree"].map(|name| dir.path().join(name));
                std::fs::write(&fs_path, part(&layout.fs)).unwrap();
                std::fs::write(&tree_path, part(tree)).unwrap();
                let root = root.to_string();
                let (fs, tree) = (fs_path.as_os_str(), tree_path.as_os_str());
                run("veritysetup", ["verify".as_ref(), fs, tree, root.as_ref()]);
            }
            let used = std::fs::metadata(&path).unwrap().blocks() * 512;
            assert!(used < 1 << 20, "{used} bytes");
        }
    }

    #[test]
    fn what_a_disk_held_is_gone_before_the_file_system_is_made() {
        let finish = &plans()[2];
        let layout = finish.layout(8 << 20);
        let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(layout.len + (5 << 20)));
        finish.write(&layout, &device).unwrap();
        assert_eq!(partition::scan(&*device).unwrap().len(), 1);
        finish.prepare(&layout, &*device).unwrap();
        assert_eq!(
            partition::read(&*device).unwrap(),
            partition::Table::default()
        );
        assert_eq!(device.next_data(0).unwrap(), None);
    }

    #[test]
    fn what_is_in_the_partitions_already_stays() {
        for finish in &plans()[2..] {
            let layout = finish.layout((9 << 20) - 40_000);
            let device = MemoryDevice::new(layout.len);
            let last = layout.verity.as_ref().unwrap_or(&layout.fs).end - 1;
            for at in [layout.fs.start, layout.fs.end - 1, last] {
                device.write_at(at, &[1]).unwrap();
                finish.prepare(&layout, &device).unwrap();
                let mut found = [0];
                device.read_at(at, &mut found).unwrap();
                assert_eq!(found, [1], "byte {at}");
            }
        }
    }

    #[test]
    fn options_that_cannot_be_are_refused() {
        let plan = |gpt, verity| {
            FinishOptions { gpt, verity }
                .plan(UUID, 0, 512)
                .unwrap_err()
        };
        let error = plan(gpt("linux"), Some(Salt::FromUuid)).to_string();
        assert!(error.contains("type linux have no type"), "{error}");
        let error = plan(None, Some(Salt::Given(vec![0; 257])));
        assert_eq!(error, FinishError::Salt { len: 257 });
        let name = Some("n".repeat(37));
        let kind = PartitionType::LINUX;
        let error = plan(Some(GptOptions { kind, name }), None);
        assert!(
            matches!(error, FinishError::Gpt(GptError::Name { .. })),
            "{error}"
        );
        let finish = FinishOptions {
            gpt: gpt("linux"),
            verity: None,
        };
        assert!(finish.plan(UUID, 0, 2048).is_err() && finish.plan(UUID, 0, 4096).is_ok());
    }

    #[test]
    fn a_file_device_that_is_read_only_is_an_error() {
        let dir = scratch();
        let path = dir.path().join("image");
        let finish = &plans()[3];
        let layout = finish.layout(1 << 20);
        drop(FileDevice::create(&path, layout.len).unwrap());
        let device: Arc<dyn BlockDevice> =
            Arc::new(FileDevice::open(&path, Access::ReadOnly).unwrap());
        assert!(finish.prepare(&layout, &*device).is_err());
        assert!(finish.write(&layout, &device).is_err());
    }
}
