//! Mount options that a superblock asks for (`tune2fs -o`, `-E mount_opts=`), as far as a mount
//! does otherwise. `bsdgroups` and `discard` the engine follows; `acl`, `user_xattr`,
//! `block_validity` and `journal_data_ordered` are always so.

use uext4_ondisk::superblock::SuperBlock;

use crate::tune_names::MOUNT_DATA_MODE;

/// `s_default_mount_opts`.
const DEBUG: u32 = 0x1;
const UID16: u32 = 0x10;
const JOURNAL_DATA: u32 = 0x20;
const JOURNAL_DATA_WRITEBACK: u32 = 0x60;
const NOBARRIER: u32 = 0x100;
const NODELALLOC: u32 = 0x800;

/// A sentence for each that is not followed.
pub fn not_followed(superblock: &SuperBlock) -> Vec<String> {
    sentences(
        superblock.s_default_mount_opts.get(),
        &superblock.s_mount_opts,
    )
}

/// A sentence where times after 2038 are stored as the last second before, as the kernel says, too.
pub fn last_times(inode_size: u16) -> Option<&'static str> {
    /// Bytes of an inode with nothing but the fields of ext2.
    const OLD_INODE_SIZE: u16 = 128;
    (inode_size == OLD_INODE_SIZE).then_some(
        "inodes of 128 bytes have no times after 2038-01-19: later ones become that day's; \
         `uext4 tune -I 256 IMAGE` makes room for them",
    )
}

fn sentences(bits: u32, text: &[u8]) -> Vec<String> {
    let mut all = Vec::new();
    let mut note = |name: &str, why: &str| {
        all.push(format!(
            "the superblock's default mount option {name} is not followed: {why}"
        ));
    };
    match bits & MOUNT_DATA_MODE {
        JOURNAL_DATA => note(
            "journal_data",
            "only metadata goes through the journal, data is ordered",
        ),
        JOURNAL_DATA_WRITEBACK => note("journal_data_writeback", "data is ordered"),
        _ => {}
    }
    for (bit, name, why) in [
        (
            NOBARRIER,
            "nobarrier",
            "-o nobarrier leaves out flushes of the device",
        ),
        (
            NODELALLOC,
            "nodelalloc",
            "blocks are allocated at write-back",
        ),
        (UID16, "uid16", "all 32 bits of owners are stored"),
        (DEBUG, "debug", "`uext4 stats DIR` shows what a mount does"),
    ] {
        if bits & bit != 0 {
            note(name, why);
        }
    }
    let end = text
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(text.len());
    if end > 0 {
        // OK to index: a place in it, or its length.
        let options = text[..end].escape_ascii();
        all.push(format!(
            "the superblock's mount options \"{options}\" are not followed: give them with -o"
        ));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_default_that_is_not_followed_is_named() {
        let of = |bits| sentences(bits, &[0; 64]).join("; ");
        // acl, user_xattr, bsdgroups, journal_data_ordered, block_validity, discard.
        assert_eq!(of(0x2 | 0x4 | 0x8 | 0x40 | 0x200 | 0x400), "");
        for (bits, name) in [
            (0x1, "debug"),
            (0x10, "uid16"),
            (0x20, "journal_data"),
            (0x60, "journal_data_writeback"),
            (0x100, "nobarrier"),
            (0x800, "nodelalloc"),
        ] {
            let said = of(bits);
            assert!(
                said.contains(&format!(" {name} is not followed: ")),
                "{said}"
            );
            assert!(!said.contains(';'), "{said}");
        }
        let said = sentences(0, b"commit=9\0\0").join("");
        assert!(said.contains("\"commit=9\""), "{said}");
    }
}
