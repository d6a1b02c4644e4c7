//! Arbitrary bytes as an attribute block, as the attributes in an inode, and as their values.

use uext4_ondisk::acl::Acl;
use uext4_ondisk::checksum::CsumSeed;
use uext4_ondisk::encryption::EncryptionContext;
use uext4_ondisk::hash::CharSign;
use uext4_ondisk::xattr::{
    XATTR_BLOCK_HEADER_LEN, XATTR_IBODY_HEADER_LEN, XattrPlace, XattrValue, block_hash,
    entries_len, entry_hash, join_name, pack_body, parse_entries, split_name, verify_block,
};
use uext4_ondisk::{Ino, Pblk};

/// All of it is the block.
pub fn exercise(data: &[u8]) {
    let _ = verify_block(data, Pblk(7), None);
    let _ = verify_block(data, Pblk(7), Some(CsumSeed(1)));
    entries(data, XATTR_BLOCK_HEADER_LEN, XattrPlace::Block(Pblk(7)));
    entries(data, 0, XattrPlace::Inode(Ino(12)));
    value(data);
}

fn entries(region: &[u8], first: usize, at: XattrPlace) {
    let Ok(entries) = parse_entries(region, first, at) else {
        return;
    };
    for entry in &entries {
        if let XattrValue::Here(bytes) = entry.value {
            let _ = entry_hash(entry.name, bytes, CharSign::Signed);
            value(bytes);
        }
        if let Some(name) = join_name(entry.index, entry.name) {
            let split = split_name(&name);
            assert!(split.is_none() || split == Some((entry.index, entry.name)));
        }
    }
    let _ = block_hash(entries.iter().map(|e| e.hash));
    let mut copy = vec![0; XATTR_IBODY_HEADER_LEN + entries_len(&entries)];
    if copy.len() < 65_536 && pack_body(&mut copy, &entries).is_ok() {
        let list = &copy[XATTR_IBODY_HEADER_LEN..];
        assert_eq!(parse_entries(list, 0, at), Ok(entries));
    }
}

fn value(bytes: &[u8]) {
    let _ = EncryptionContext::parse(bytes);
    let _ = Acl::parse_wire(bytes).map(|acl| acl.validate());
    if let Ok(acl) = Acl::parse_disk(bytes) {
        assert_eq!(Acl::parse_wire(&acl.to_wire()), Ok(acl.clone()));
        assert_eq!(Acl::parse_disk(&acl.to_disk()), Ok(acl));
    }
}
