//! ACLs as archives carry them: text, `user::rw-,user:1000:r--,group::r--,mask::r--,other::r--`.
//!
//! A fourth field after the permissions is the number that goes with a name (libarchive and star
//! write it); it is preferred to looking the name up. NFSv4 ACLs are another thing and not read.

use uext4_ondisk::acl::{Acl, AclEntry, AclTag};

use crate::ids::HostIds;

/// Reads an ACL from text: entries parted by commas or line ends, `#` begins a comment.
pub fn from_text(text: &[u8], ids: &HostIds) -> Result<Acl, &'static str> {
    let mut entries = Vec::new();
    for part in text.split(|b| matches!(b, b',' | b'\n')) {
        let part = part.split(|&b| b == b'#').next().unwrap_or_default();
        let part = part.trim_ascii();
        if !part.is_empty() {
            entries.push(entry(part, ids)?);
        }
    }
    // The kernel wants them ordered by tag; by number within is what setfacl does.
    entries.sort_by_key(|e| e.tag);
    let acl = Acl { entries };
    match acl.validate() {
        Ok(()) => Ok(acl),
        Err(_) => Err("entries are missing, doubled, or without a mask"),
    }
}

fn entry(text: &[u8], ids: &HostIds) -> Result<AclEntry, &'static str> {
    let fields: Vec<&[u8]> = text.split(|&b| b == b':').map(<[u8]>::trim_ascii).collect();
    let (tag, name, perm, number) = match fields[..] {
        [tag, name, perm] => (tag, name, perm, None),
        [tag, name, perm, number] => (tag, name, perm, decimal(number)),
        // `mask:rwx` and `other:r--` are older spellings.
        [tag, perm] => (tag, &b""[..], perm, None),
        _ => return Err("an entry has not three fields"),
    };
    let id = |lookup: fn(&HostIds, &[u8]) -> Option<u32>| {
        let known = number
            .or_else(|| decimal(name))
            .or_else(|| lookup(ids, name));
        known.ok_or("a name this machine does not know")
    };
    let tag = match (tag, name.is_empty()) {
        (b"user" | b"u", true) => AclTag::UserObj,
        (b"user" | b"u", false) => AclTag::User(id(HostIds::user)?),
        (b"group" | b"g", true) => AclTag::GroupObj,
        (b"group" | b"g", false) => AclTag::Group(id(HostIds::group)?),
        (b"mask" | b"m", true) => AclTag::Mask,
        (b"other" | b"o", true) => AclTag::Other,
        _ => return Err("an entry for none of user, group, mask and other"),
    };
    let perm = perm.iter().try_fold(0, |bits, b| match b {
        b'r' => Ok(bits | 4),
        b'w' => Ok(bits | 2),
        b'x' => Ok(bits | 1),
        b'-' => Ok(bits),
        _ => Err("permissions other than rwx"),
    })?;
    Ok(AclEntry { tag, perm })
}

fn decimal(text: &[u8]) -> Option<u32> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<(AclTag, u16)>, &'static str> {
        let acl = from_text(text.as_bytes(), &HostIds::default())?;
        Ok(acl.entries.iter().map(|e| (e.tag, e.perm)).collect())
    }

    #[test]
    fn text_of_gnu_tar_and_libarchive() {
        let want = vec![
            (AclTag::UserObj, 6),
            (AclTag::User(0), 5),
            (AclTag::User(1000), 4),
            (AclTag::GroupObj, 4),
            (AclTag::Mask, 5),
            (AclTag::Other, 0),
        ];
        for text in [
            "user::rw-,user:1000:r--,user:root:r-x,group::r--,mask::r-x,other::---",
            "user::rw-\nuser:no_user-here:r--:1000\nuser:x:r-x:0\ngroup::r--\t#effective:r--\n\
             mask::r-x\nother::---\n",
        ] {
            assert_eq!(read(text), Ok(want.clone()));
        }
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        for (text, why) in [
            ("user:no such user:rw-", "does not know"),
            ("user::rq-", "rwx"),
            ("owner@:rwx::allow", "none of"),
            ("x", "three fields"),
            ("user::rwx,group::r--", "missing"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
