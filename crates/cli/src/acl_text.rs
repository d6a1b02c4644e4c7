//! ACLs as text, as getfacl(1) prints and setfacl(1) takes them, with numbers of users and groups:
//! names of this machine mean nothing in an image.

use uext4::Error;
use uext4_ondisk::acl::{ACL_UNDEFINED_ID, Acl, AclEntry, AclTag};

/// The attribute of the ACL that says who may access an inode.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute of the ACL that what is created in a directory begins with.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

/// The ACL in the value of an attribute, if there is one.
///
/// # Errors
/// Those of reading the value; damage.
pub fn from_value(value: uext4::Result<Vec<u8>>) -> uext4::Result<Option<Acl>> {
    match value {
        Ok(value) => Acl::parse_wire(&value).map(Some).map_err(Error::Corrupt),
        Err(Error::NoAttribute) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The access ACL of an inode that has no attribute for it: its permissions.
pub fn of_mode(mode: u16) -> Acl {
    let tags = [
        (AclTag::UserObj, 6),
        (AclTag::GroupObj, 3),
        (AclTag::Other, 0),
    ];
    let entry = |(tag, shift): (AclTag, u16)| AclEntry {
        tag,
        perm: mode >> shift & 7,
    };
    Acl {
        entries: tags.map(entry).to_vec(),
    }
}

/// The permissions of the mask, if there is one.
pub fn mask(acl: &Acl) -> Option<u16> {
    let mask = acl.entries.iter().find(|entry| entry.tag == AclTag::Mask);
    mask.map(|entry| entry.perm)
}

/// Whether the mask limits an entry.
pub fn is_masked(tag: AclTag) -> bool {
    matches!(tag, AclTag::User(_) | AclTag::GroupObj | AclTag::Group(_))
}

/// One entry: `user:7:r-x`.
pub fn entry_text(entry: &AclEntry) -> String {
    let perm = perm_text(entry.perm);
    match entry.tag {
        AclTag::UserObj => format!("user::{perm}"),
        AclTag::User(id) => format!("user:{id}:{perm}"),
        AclTag::GroupObj => format!("group::{perm}"),
        AclTag::Group(id) => format!("group:{id}:{perm}"),
        AclTag::Mask => format!("mask::{perm}"),
        AclTag::Other => format!("other::{perm}"),
    }
}

/// Three letters or dashes.
pub fn perm_text(perm: u16) -> String {
    let letter = |(bit, letter)| if perm & bit == 0 { '-' } else { letter };
    [(4, 'r'), (2, 'w'), (1, 'x')].map(letter).iter().collect()
}

/// What to make of one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryChange {
    /// It is in the default ACL.
    pub is_default: bool,
    /// Whom it is for.
    pub tag: AclTag,
    /// Its new permissions.
    pub perm: u16,
    /// With x, too, on directories and on files that any class may execute (`X`).
    pub x_if_any: bool,
}

/// What entries are read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// They are set, with permissions.
    Set,
    /// They are removed, and have none.
    Remove,
}

/// Reads entries that are separated by commas: `u:7:rwx,g::r-X,d:o:0`.
///
/// # Errors
/// What is wrong with the first that is not right.
pub fn parse(text: &str, purpose: Purpose) -> Result<Vec<EntryChange>, String> {
    let parse = |entry| parse_entry(entry, purpose).map_err(|why| format!("{entry:?}: {why}"));
    // As setfacl(1) takes it.
    let text = text.strip_suffix(',').unwrap_or(text);
    text.split(',').map(parse).collect()
}

/// Reads the entries of a file: one or more a line, and `#` begins a comment.
///
/// # Errors
/// As [`parse`].
pub fn parse_lines(text: &str, purpose: Purpose) -> Result<Vec<EntryChange>, String> {
    let mut all = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            all.extend(parse(line, purpose)?);
        }
    }
    Ok(all)
}

fn parse_entry(text: &str, purpose: Purpose) -> Result<EntryChange, String> {
    let mut fields: Vec<&str> = text.split(':').collect();
    let is_default = matches!(fields[0], "d" | "default") && fields.len() > 1;
    if is_default {
        fields.remove(0);
    }
    let tag = match (fields.remove(0), fields.first()) {
        ("u" | "user", Some(&"")) => AclTag::UserObj,
        ("u" | "user", Some(id)) => AclTag::User(number(id)?),
        ("g" | "group", Some(&"")) => AclTag::GroupObj,
        ("g" | "group", Some(id)) => AclTag::Group(number(id)?),
        (name @ ("m" | "mask" | "o" | "other"), _) => {
            // The field for an id may be left out.
            if fields.first() != Some(&"") {
                fields.insert(0, "");
            }
            match name {
                "m" | "mask" => AclTag::Mask,
                _ => AclTag::Other,
            }
        }
        ("u" | "user" | "g" | "group", None) => return Err("a user or group is missing".into()),
        (id, _) => {
            fields.insert(0, id);
            AclTag::User(number(id)?)
        }
    };
    let (perm, x_if_any) = match (purpose, &fields[1..]) {
        (Purpose::Set, [perm]) if !perm.is_empty() => parse_perm(perm)?,
        (Purpose::Set, _) => return Err("it has no permissions, such as r-x".into()),
        (Purpose::Remove, [] | [""]) => (0, false),
        (Purpose::Remove, _) => return Err("an entry is removed without permissions".into()),
    };
    Ok(EntryChange {
        is_default,
        tag,
        perm,
        x_if_any,
    })
}

fn number(id: &str) -> Result<u32, String> {
    let number = id.parse().ok().filter(|id| *id != ACL_UNDEFINED_ID);
    number.ok_or_else(|| format!("{id:?} is no number of a user or group"))
}

/// The bits, and whether an X is among them.
fn parse_perm(text: &str) -> Result<(u16, bool), String> {
    if let [digit @ b'0'..=b'7'] = text.as_bytes() {
        return Ok((u16::from(digit - b'0'), false));
    }
    let mut perm = (0, false);
    for letter in text.chars() {
        match letter {
            'r' => perm.0 |= 4,
            'w' => perm.0 |= 2,
            'x' => perm.0 |= 1,
            'X' => perm.1 = true,
            '-' => {}
            _ => return Err(format!("{letter:?} is not one of r, w, x, X, -")),
        }
    }
    Ok(perm)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_in_every_form_and_printed_in_one() {
        for (text, shown) in [
            ("u:7:rwx", "user:7:rwx"),
            ("user::6", "user::rw-"),
            ("g:8:x", "group:8:--x"),
            ("group::-", "group::---"),
            ("m:r", "mask::r--"),
            ("mask::rw", "mask::rw-"),
            ("o:0", "other::---"),
            ("other::r-x", "other::r-x"),
            ("5:r", "user:5:r--"),
            ("d:u:7:rwx", "user:7:rwx"),
            ("default:o::r", "other::r--"),
        ] {
            let entries = parse(text, Purpose::Set).unwrap();
            let [EntryChange { tag, perm, .. }] = entries[..] else {
                panic!("{text}");
            };
            assert_eq!(entry_text(&AclEntry { tag, perm }), shown);
            assert_eq!(entries[0].is_default, text.starts_with('d'), "{text}");
        }
        for (text, tag) in [
            ("u:7", AclTag::User(7)),
            ("g:8:", AclTag::Group(8)),
            ("m", AclTag::Mask),
            ("mask::", AclTag::Mask),
            ("o:", AclTag::Other),
            ("u:", AclTag::UserObj),
            ("5", AclTag::User(5)),
        ] {
            let removed = parse(text, Purpose::Remove);
            assert_eq!(removed.map(|all| all[0].tag), Ok(tag), "{text}");
        }
        assert!(parse("u::rX", Purpose::Set).unwrap()[0].x_if_any);
        let lines = "# file: x\nuser:3:rw-\t#effective:r--\n\n g:5:r,o:-\n";
        assert_eq!(parse_lines(lines, Purpose::Set).unwrap().len(), 3);
    }

    #[test]
    fn entries_that_make_no_sense_say_why() {
        for (text, purpose, why) in [
            ("u", Purpose::Set, "missing"),
            ("u:7", Purpose::Set, "no permissions"),
            ("u:7:", Purpose::Set, "no permissions"),
            ("u:root:r", Purpose::Set, "\"root\" is no number"),
            ("u:4294967295:r", Purpose::Set, "no number"),
            ("u:7:rq", Purpose::Set, "'q'"),
            ("u:7:r:w", Purpose::Set, "no permissions"),
            ("", Purpose::Set, "no number"),
            ("d", Purpose::Set, "no number"),
            ("d:", Purpose::Set, "no number"),
            ("u:7:r", Purpose::Remove, "without permissions"),
        ] {
            let error = parse(text, purpose).unwrap_err();
            assert!(error.contains(why), "{text:?}: {error}");
        }
    }
}
