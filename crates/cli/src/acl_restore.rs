//! What `setfacl --restore` reads: the output of getfacl(1).

use crate::acl_text::{EntryChange, Purpose, parse};

/// One file of such a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// Its path.
    pub path: Vec<u8>,
    /// Its owner, if the text has it.
    pub uid: Option<u32>,
    /// Its group, if the text has it.
    pub gid: Option<u32>,
    /// Its set-id and sticky bits.
    pub flags: u16,
    /// The entries of its ACLs.
    pub entries: Vec<EntryChange>,
}

/// Reads all files of a text.
///
/// # Errors
/// The number of the first line that makes no sense, and why.
pub fn parse_saved(text: &[u8]) -> Result<Vec<Saved>, String> {
    let mut all = Vec::new();
    for (number, line) in (1..).zip(text.split(|&byte| byte == b'\n')) {
        let read = parse_line(line, &mut all);
        read.map_err(|why| format!("line {number}: {why}"))?;
    }
    Ok(all)
}

fn parse_line(line: &[u8], all: &mut Vec<Saved>) -> Result<(), String> {
    if let Some(name) = line.strip_prefix(b"# file: ") {
        all.push(Saved {
            path: unquoted(name),
            ..Saved::default()
        });
        return Ok(());
    }
    let line = std::str::from_utf8(line).map_err(|_| "it is not UTF-8")?;
    let number = |id: &str| {
        let number = id.trim().parse::<u32>();
        number.map_err(|_| format!("{id:?} is no number: use `getfacl -n`"))
    };
    let Some(file) = all.last_mut() else {
        return match line.split('#').next().unwrap_or_default().trim() {
            "" => Ok(()),
            _ => Err("it stands before the first \"# file:\"".to_owned()),
        };
    };
    if let Some(id) = line.strip_prefix("# owner: ") {
        file.uid = Some(number(id)?);
    } else if let Some(id) = line.strip_prefix("# group: ") {
        file.gid = Some(number(id)?);
    } else if let Some(flags) = line.strip_prefix("# flags: ") {
        let bits = [0o4000, 0o2000, 0o1000].into_iter().zip(flags.chars());
        file.flags = bits.fold(0, |all, (bit, letter)| {
            all | if letter == '-' { 0 } else { bit }
        });
    } else {
        let entry = line.split('#').next().unwrap_or_default().trim();
        if !entry.is_empty() {
            file.entries.extend(parse(entry, Purpose::Set)?);
        }
    }
    Ok(())
}

/// A name with its escapes resolved.
fn unquoted(name: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name;
    while let [first, after @ ..] = rest {
        let octal = |byte: &u8| (b'0'..=b'7').contains(byte);
        let (byte, len) = match after {
            [b'\\', ..] if *first == b'\\' => (b'\\', 2),
            [a @ b'0'..=b'3', b, c, ..] if *first == b'\\' && octal(b) && octal(c) => {
                ((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'), 4)
            }
            _ => (*first, 1),
        };
        bytes.push(byte);
        rest = &rest[len..];
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_getfacl_prints_is_read() {
        let text = b"# file: a\\\\\\012b\n# owner: 5\n# group: 6\n# flags: -st\nuser::rwx\n\
                     user:7:rwx\t#effective:r--\ngroup::r--\nmask::r--\nother::---\n\
                     default:user::rwx\n\n# file: .\nuser::r--\n";
        let all = parse_saved(text).unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].path, b"a\\\nb");
        assert_eq!((all[0].uid, all[0].gid), (Some(5), Some(6)));
        assert_eq!((all[0].flags, all[0].entries.len()), (0o3000, 6));
        assert_eq!((all[1].path.as_slice(), all[1].uid), (&b"."[..], None));
        for (text, why) in [
            (&b"user::rwx\n"[..], "line 1: it stands before"),
            (
                b"# file: a\n# owner: root\n",
                "line 2: \"root\" is no number",
            ),
            (b"# file: a\n\nuser:x:r\n", "line 3"),
        ] {
            let error = parse_saved(text).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
