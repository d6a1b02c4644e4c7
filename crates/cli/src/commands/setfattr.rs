//! `setfattr`: extended attributes set and removed.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use uext4::{FollowLast, SetMode};

use super::bytes;
use super::change::{Operation, Target, about};
use crate::failure::{Exit, Failure};

/// Set and remove extended attributes
///
/// Values are text; 0x and hexadecimal digits, or 0s and base64, for bytes. ACLs
/// (system.posix_acl_access) have the form that getxattr gives them. Symbolic links are followed.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  uext4 setfattr -n user.origin -v 'built here' disk.img /etc/motd
  uext4 setfattr -n security.capability -v 0x0100000200200000000000000000000000000000 \\
      disk.img /bin/ping
  uext4 setfattr -x user.origin disk.img /etc/motd")]
pub struct SetfattrArgs {
    /// What to change
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Attribute to set, with its prefix (user., security., trusted., system.)
    #[arg(short, value_name = "NAME", required_unless_present = "remove")]
    name: Option<OsString>,
    /// Its value; empty if not given
    #[arg(short, value_name = "VALUE", requires = "name")]
    value: Option<OsString>,
    /// Attribute to remove
    #[arg(short = 'x', value_name = "NAME", conflicts_with = "name")]
    remove: Option<OsString>,
    /// Change a symbolic link itself
    #[arg(long)]
    no_dereference: bool,
}

impl Operation for SetfattrArgs {
    fn apply(&self, target: &mut Target<'_>) -> Result<(), Failure> {
        let value = self.value.as_deref().map_or(&b""[..], bytes);
        let value = decode(value).ok_or_else(|| {
            Failure::new(Exit::Usage, "the value is no hexadecimal or base64 number")
        })?;
        let last = match self.no_dereference {
            true => FollowLast::No,
            false => FollowLast::Yes,
        };
        target.each(&self.paths, |target, path| {
            let inode = target.inode(path, last)?;
            let done = match (&self.name, &self.remove) {
                (Some(name), _) => inode.set_xattr(bytes(name), Some(&value), SetMode::Any),
                (_, Some(name)) => inode.set_xattr(bytes(name), None, SetMode::Replace),
                (None, None) => Ok(()),
            };
            done.map_err(about(path))
        })
    }
}

/// The bytes of a value as given.
fn decode(text: &[u8]) -> Option<Vec<u8>> {
    match text {
        [b'0', b'x' | b'X', digits @ ..] => decode_hex(digits),
        [b'0', b's' | b'S', letters @ ..] => decode_base64(letters),
        [b'"', inner @ .., b'"'] => Some(inner.to_vec()),
        text => Some(text.to_vec()),
    }
}

fn decode_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).map(|digit| digit as u8);
    let pairs = digits.chunks(2).map(|pair| match pair {
        [high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    });
    pairs.collect()
}

fn decode_base64(letters: &[u8]) -> Option<Vec<u8>> {
    let end = letters
        .iter()
        .rposition(|&b| b != b'=')
        .map_or(0, |at| at + 1);
    if letters.len() % 4 != 0 || letters.len() - end > 2 {
        return None;
    }
    let mut decoded = Vec::with_capacity(letters.len() / 4 * 3);
    let (mut bits, mut count) = (0u32, 0);
    for &letter in &letters[..end] {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            decoded.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_text_hexadecimal_or_base64() {
        assert_eq!(decode(b"plain").unwrap(), b"plain");
        assert_eq!(decode(b"\"quoted\"").unwrap(), b"quoted");
        assert_eq!(decode(b"0x00fF").unwrap(), [0, 255]);
        assert_eq!(decode(b"0saGVsbG8=").unwrap(), b"hello");
        assert_eq!(decode(b"0saGVsbG8h").unwrap(), b"hello!");
        assert_eq!(decode(b"0s").unwrap(), b"");
        for bad in [&b"0x0"[..], b"0xzz", b"0sa", b"0s!!!!"] {
            assert!(decode(bad).is_none(), "{bad:?}");
        }
    }
}
