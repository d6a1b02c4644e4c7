//! The names of a small directory within its inode.
//!
//! ```text
//! i_block      parent (4) | records (56)
//! system.data  records, only if those before do not do
//! ```
//! "." and ".." are not stored. No record crosses from one region to the other, and the last one
//! of each reaches to the end of its region.

use super::{DirShape, Name, check_unique};
use crate::dir_block::{INLINE_PARENT_LEN, NewEntry, put_inline_parent};
use crate::dir_entry::rec_len_for;
use crate::inode::{FileType, I_BLOCK_LEN};
use crate::pack::PackError;
use crate::units::Ino;

/// Bytes for records in `i_block`.
const FIRST_LEN: usize = I_BLOCK_LEN - INLINE_PARENT_LEN;

/// Which region of an inode each name of a directory goes in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InlinePlan {
    /// Indexes of the names in `i_block`.
    first: Vec<u32>,
    /// Indexes of the names in the attribute.
    second: Vec<u32>,
    /// Bytes of the attribute's value: 0, or a multiple of four.
    value_len: usize,
}

impl DirShape {
    /// Plans a directory of `count` names within an inode that can hold `room` bytes of data in
    /// `system.data`. `None` if the names do not fit.
    ///
    /// # Errors
    /// [`PackError::SameName`].
    pub fn plan_inline<'a>(
        &self,
        count: u32,
        name: impl Fn(u32) -> &'a [u8],
        room: usize,
    ) -> Result<Option<InlinePlan>, PackError> {
        // Records have whole words.
        let second_len = room & !3;
        let (mut first_left, mut second_left) = (FIRST_LEN, second_len);
        let (mut first, mut second) = (Vec::new(), Vec::new());
        for i in 0..count {
            let len = rec_len_for(name(i).len());
            if let Some(left) = first_left.checked_sub(len) {
                first_left = left;
                first.push(i);
            } else if let Some(left) = second_left.checked_sub(len) {
                second_left = left;
                second.push(i);
            } else {
                return Ok(None);
            }
        }
        check_unique(0..count, &name)?;
        // As the kernel does when the first region is full: all that is left, for further names.
        let value_len = if second.is_empty() { 0 } else { second_len };
        Ok(Some(InlinePlan {
            first,
            second,
            value_len,
        }))
    }
}

impl InlinePlan {
    /// The contents of `i_block`, and the value of `system.data`.
    pub fn pack<'a>(
        &self,
        shape: &DirShape,
        parent: Ino,
        name: impl Fn(u32) -> Name<'a>,
    ) -> ([u8; I_BLOCK_LEN], Vec<u8>) {
        let mut i_block = [0; I_BLOCK_LEN];
        put_inline_parent(&mut i_block, parent);
        let mut value = vec![0; self.value_len];
        let entry = |&index: &u32| -> NewEntry<'a> {
            let name = name(index);
            NewEntry {
                name: name.name,
                ino: name.ino,
                file_type: type_of(shape, name.file_type),
            }
        };
        let fill = |region: &mut [u8], names: &[u32]| {
            let format = shape.format.region(region.len());
            format.fill(region, names.iter().map(entry));
        };
        fill(&mut i_block[INLINE_PARENT_LEN..], &self.first);
        if !value.is_empty() {
            fill(&mut value, &self.second);
        }
        (i_block, value)
    }
}

fn type_of(shape: &DirShape, file_type: FileType) -> Option<FileType> {
    shape.format.file_type(file_type)
}

#[cfg(test)]
mod tests {
    use super::super::tests::shape;
    use super::*;
    use crate::dir_block::{Spot, inline_parent, scan};

    #[test]
    fn names_fill_the_inode_and_then_the_attribute() {
        let shape = shape(true, false);
        let names: Vec<Vec<u8>> = (0..11u8).map(|i| vec![b'a' + i; 4]).collect();
        // Records of 12 bytes: four in `i_block`, five in 68 bytes.
        for (count, value_len) in [(0, 0), (4, 0), (5, 68), (9, 68)] {
            let plan = shape.plan_inline(count, |i| &names[i as usize], 71);
            let plan = plan.unwrap().unwrap();
            let (i_block, value) = plan.pack(&shape, Ino(9), |i| Name {
                name: &names[i as usize],
                ino: Ino(20 + i),
                file_type: FileType::Regular,
            });
            assert_eq!((inline_parent(&i_block), value.len()), (Ino(9), value_len));
            for (i, name) in names.iter().enumerate() {
                let exists = [&i_block[INLINE_PARENT_LEN..], &value]
                    .into_iter()
                    .filter(|region| !region.is_empty())
                    .any(|region| scan(region, None, region.len(), name) == Ok(Spot::Exists));
                assert_eq!(exists, i < count as usize, "{count}: {i}");
            }
        }
        assert_eq!(shape.plan_inline(10, |i| &names[i as usize], 71), Ok(None));
        assert_eq!(
            shape.plan_inline(2, |_| &names[0], 0),
            Err(PackError::SameName)
        );
    }
}
