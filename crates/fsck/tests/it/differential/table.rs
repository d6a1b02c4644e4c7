//! Where e2fsck and we differ, and why: the judge accepts these differences and no other.
//! [docs/repair.md](../../../../../docs/repair.md) shows the same rows to users.

use uext4_testkit::mutants::Mutant;

/// One difference.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// The name of our finding, a part of what e2fsck says, or of a change.
    of: &'static str,
    /// Other findings that it brings along.
    with: &'static [&'static str],
    /// The smallest change that shows it: image, structure, field.
    example: &'static str,
    /// Which of the two is right.
    why: &'static str,
}

const fn row(of: &'static str, example: &'static str, why: &'static str) -> Row {
    Row {
        of,
        with: &[],
        example,
        why,
    }
}

impl Row {
    const fn with(self, with: &'static [&'static str]) -> Self {
        Self { with, ..self }
    }
}

/// What e2fsck neither examines nor mends.
const ELSEWHERE: Row = row(
    "Can't find external journal",
    "fast-commit, superblock: s_journal_uuid[1] 0xffffffff",
    "the kernel uses the journal that s_journal_inum names; e2fsck looks for another by its UUID",
);

const EMPTY_RECORD: Row = row(
    "Problem in HTREE directory inode",
    "large-dir, index of directory 84: file_type 0x2 of an empty record",
    "e2fsck takes the byte for a part of the length of the record's name",
);

/// What the examination finds and `e2fsck -fn` does not: the names of findings.
const STRICTER: &[Row] = &[
    row(
        "directory-file-type-unset",
        "no-csum, record 7 of directory 2: file_type 0",
        "e2fsck stores the type with -y, and with -n does not mention it",
    ),
    row(
        "superblock-revision",
        "no-csum, superblock: s_rev_level 0",
        "e2fsck stores revision 1 with -y, and with -n does not mention it",
    ),
    row(
        "resize-inode",
        "ext2, an indirect block of inode 7: number 0",
        "the kernel and resize2fs refuse to grow a file system with such a resize inode",
    ),
    row(
        "journal-damaged",
        "k2, journal superblock: s_first 0xfffffffc",
        "the kernel refuses to mount with such a journal, though its log is empty",
    ),
    row(
        "superblock-quota-number",
        "quota, block 0 of the quota file of projects: that of users",
        "the kernel refuses to mount with such a quota file; e2fsck compares no usage with it",
    )
    .with(&["quota-usage", "unattached"]),
    row(
        "journal-block-left-out",
        "orphan-list, journal block 112: t_blocknr_high 0x1",
        "the kernel refuses to mount with such a log; e2fsck leaves the block out and does not say so",
    )
    .with(&["resize-inode"]),
    row(
        "journal-short-log",
        "fast-commit, journal superblock: s_num_fc_blks 0x2000",
        "the kernel refuses to mount with such a journal",
    ),
    row(
        "journal-device",
        "ea-inode, superblock: s_journal_dev 0xdd9",
        "the kernel refuses to mount with a journal's inode and a journal's device",
    ),
    row(
        "system-file-unused",
        "ea-inode, inode 10: i_file_acl_high 0x100",
        "an inode that is not in use holds nothing; e2fsck looks only at its mode and its blocks",
    ),
    row(
        "reserved-mode",
        "mmp, inode 5: i_mode 0xfffd",
        "no file has such a type; e2fsck passes over the boot loader's inode",
    ),
    row(
        "bad-blocks-inode",
        "gdt-csum, inode 1: i_file_acl_high 0x10",
        "the list of bad blocks has no attributes; e2fsck does not look",
    ),
    row(
        "inode-extra-size",
        "k1, inode 5: i_extra_isize 0x109",
        "an inode of this size has no such room; e2fsck passes over the boot loader's inode",
    ),
    row(
        "inode-deletion-time",
        "k4, inode 8: i_dtime 0xfffffffd",
        "an inode in use was not deleted; e2fsck does not look at that of the journal",
    ),
    row(
        "inode-file-acl-high",
        "ext3, inode 7: i_file_acl_high 0xbdd",
        "the field is not used without 64bit; e2fsck does not look at the resize inode's",
    ),
    row(
        "quota-tree",
        "quota, block 2 of quota file 3: child[1] 0x1",
        "a branch of the tree leads to no block that can be there; e2fsck does not follow it",
    ),
    row(
        "quota-header",
        "quota, block 0 of quota file 4: dqh_magic 0xd9c01926",
        "quotas are turned on only with the right magic number; e2fsck does not look at it",
    ),
    row(
        "directory-index-order",
        "large-dir, index of directory 84: entry 1 hash 0",
        "names of the block before it are not found by their hashes",
    ),
    row(
        "inode-inline-size",
        "ea-inode, inode 28: attribute 0 e_name_len 0x44",
        "the kernel calls the inode damaged: the name of its attribute is longer than its room",
    )
    .with(&["xattr-name", "directory-unused-inode", "group-free-inodes", "group-used-directories", "inode-bitmap-marked", "inode-links", "unattached"]),
    row(
        "xattr-order",
        "no-csum, attribute block of inode 48: attribute 0 e_name_index 0x6c",
        "the kernel does not find the attribute: it looks for names in order; e2fsck takes them in any",
    ),
    row(
        "inode-ea-inode",
        "orphan-list, inode 21: i_flags 0x280000",
        "the kernel opens no file with this flag; e2fsck does not look at it without the feature",
    ),
    row(
        "journal-inode-from-backup",
        "k4, inode 8: i_extra_isize 0x21",
        "the kernel refuses to mount with such an inode; e2fsck looks at this field only in other inodes",
    ),
    row(
        "journal-torn",
        "orphan-list, journal superblock: s_first 0xc4",
        "the kernel refuses to mount with such a journal; e2fsck finds nothing to replay",
    ),
    row(
        "superblock-hash-version",
        "k1, superblock: s_def_hash_version 0x21",
        "the kernel refuses to mount",
    ),
    row(
        "superblock-quota-inode",
        "large-dir, superblock: s_prj_quota_inum 0x4",
        "the kernel opens no inode of this number by a name, with or without quotas; e2fsck looks at it only with them",
    ),
];

/// What e2fsck objects to and the examination does not.
const MISSED: &[Row] = &[
    row(
        "Feature orphan_present is set but orphan file is clean",
        "orphan-file, descriptor of group 0: bg_flags 0x8",
        "a crash leaves it where no file was being deleted, and the next mount clears it",
    ),
    EMPTY_RECORD,
    row(
        "Resize_inode not enabled, but the resize inode is non-zero",
        "meta-bg, inode 7: a copy of inode 57",
        "a note: without the feature the inode is not used",
    ),
    row(
        "is not clean",
        "orphan-file, orphan file, block 18: orphan[0] 0x11",
        "a note: the file is cut to its own size by the next mount",
    ),
    ELSEWHERE,
];

/// What no examination and no plan is made for, where e2fsck has no objection or cleans it.
const REFUSED: &[Row] = &[row(
    "is marked as mounted by",
    "mmp, MMP block: mmp_seq 0x265",
    "another host may write meanwhile, and what is read is no state of it; e2fsck -n does not look",
)];

/// What e2fsck objects to after a repair.
const UNCLEAN: &[Row] = &[ELSEWHERE, EMPTY_RECORD];

/// What a repair keeps less of than e2fsck.
const LOSSIER: &[Row] = &[row(
    "journal data block for block 282: is exchanged with journal data block for block 1",
    "fast-commit, copies of blocks 282 and 1 in the log exchanged, a fast commit's checksum wrong",
    "e2fsck gives up the whole log for the fast commit; here all is replayed that has its checksum",
)];

/// Why e2fsck makes none of these findings, if there is a reason for each.
pub fn stricter(names: &[&str]) -> Option<&'static str> {
    let rows: Vec<_> = STRICTER
        .iter()
        .filter(|row| names.contains(&row.of))
        .collect();
    let is_explained = |name: &&str| {
        rows.iter()
            .any(|row| row.of == *name || row.with.contains(name))
    };
    names
        .iter()
        .all(is_explained)
        .then(|| rows.first().map(|row| row.why))?
}

fn within(rows: &'static [Row], said: &str) -> Option<&'static str> {
    let row = rows.iter().find(|row| said.contains(row.of));
    row.map(|row| row.why)
}

/// Why we do not object to what e2fsck says.
pub fn missed(said: &str) -> Option<&'static str> {
    within(MISSED, said)
}

/// Why we refuse it.
pub fn refused(said: &str) -> Option<&'static str> {
    within(REFUSED, said)
}

/// Why e2fsck objects to what was repaired.
pub fn unclean(said: &str) -> Option<&'static str> {
    within(UNCLEAN, said)
}

/// Why less is kept of this mutant.
pub fn lossier(mutant: &Mutant) -> Option<&'static str> {
    within(LOSSIER, &mutant.to_string())
}

#[test]
fn every_difference_from_e2fsck_is_documented() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(root.join("../../docs/repair.md")).unwrap();
    for row in [STRICTER, MISSED, REFUSED, UNCLEAN, LOSSIER]
        .into_iter()
        .flatten()
    {
        let line = format!("| `{}` | {} | {} |", row.of, row.example, row.why);
        assert!(text.contains(&line), "docs/repair.md has no row\n{line}");
    }
}
