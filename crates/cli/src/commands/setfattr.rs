//! `setfattr`: sets and removes extended attributes.

use std::ffi::OsString;
use std::path::PathBuf;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use clap::Args;
use uext4::FollowLast;
use uext4::xattr::SetMode;

use super::bytes;
use super::change::{Operands, Operation, Target, about};
use crate::args::long_help;
use crate::failure::{Exit, Failure};

/// Set and remove extended attributes
///
/// A value is text; for other bytes, 0x and hexadecimal digits, or 0s and base64. ACLs
/// (system.posix_acl_access) have the form that getxattr(2) returns. Symbolic links are followed.
#[derive(Args, Clone, Debug)]
#[command(disable_help_flag = true, arg = long_help())]
#[command(after_help = "Examples:
  uext4 setfattr -n user.origin -v 'built here' disk.img /etc/motd
  uext4 setfattr -n security.capability -v 0x0100000200200000000000000000000000000000 \\
      disk.img /bin/ping
  uext4 setfattr -x user.origin disk.img /etc/motd")]
pub struct SetfattrArgs {
    /// Files to change
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Attribute to set, with its prefix (user., security., trusted., system.)
    #[arg(short, long, value_name = "NAME", required_unless_present = "remove")]
    name: Option<OsString>,
    /// Value of the attribute; empty if not given
    #[arg(short, long, value_name = "VALUE", requires = "name")]
    value: Option<OsString>,
    /// Attribute to remove
    #[arg(short = 'x', long, value_name = "NAME", conflicts_with = "name")]
    remove: Option<OsString>,
    /// Change a symbolic link itself
    #[arg(short = 'h', long)]
    no_dereference: bool,
}

impl Operands for SetfattrArgs {
    fn operands(&mut self) -> Vec<&mut PathBuf> {
        self.paths.iter_mut().collect()
    }
}

impl Operation for SetfattrArgs {
    fn apply(&self, target: &mut Target<'_>) -> Result<(), Failure> {
        let value = self.value.as_deref().map_or(&b""[..], bytes);
        let value = decode(value).map_err(|what| {
            Failure::new(Exit::Usage, what)
                .hint("if it is text, put it between double quotes: -v '\"0x is text\"'")
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
            done.map_err(|error| match error {
                uext4::Error::Unsupported { .. } => about(path)(error)
                    .hint("names begin with user., security., trusted. or system."),
                error => about(path)(error),
            })
        })
    }
}

/// The bytes of a value as given.
fn decode(text: &[u8]) -> Result<Vec<u8>, String> {
    match text {
        [b'0', b'x' | b'X', digits @ ..] => {
            hex::decode(digits).map_err(|e| format!("the value is not hexadecimal: {e}"))
        }
        [b'0', b's' | b'S', letters @ ..] => BASE64_STANDARD
            .decode(letters)
            .map_err(|e| format!("the value is not base64: {e}")),
        [b'"', inner @ .., b'"'] => Ok(inner.to_vec()),
        text => Ok(text.to_vec()),
    }
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
            assert!(decode(bad).is_err(), "{bad:?}");
        }
    }
}
