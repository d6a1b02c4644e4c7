//! `getfattr`: prints extended attributes.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use uext4::xattr::Xattr;
use uext4::{Error, FollowLast, Image};

use super::{Output, bytes};
use crate::args::long_help;
use crate::failure::{Complaints, Exit, Failure};
use crate::json::Json;
use crate::paths;
use crate::show::escaped;

/// Show extended attributes
///
/// Prints names, and with -d or -n values: text in quotes, other bytes as 0x and hexadecimal
/// digits, as setfattr accepts them. Symbolic links are followed.
#[derive(Args, Clone, Debug)]
#[command(disable_help_flag = true, arg = long_help())]
#[command(after_help = "Examples:
  uext4 getfattr disk.img /bin/ping
  uext4 getfattr -d disk.img /bin/ping
  uext4 getfattr -n security.capability --json disk.img /bin/ping | jq")]
pub struct GetfattrArgs {
    /// Files
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Print values too
    #[arg(short, long)]
    dump: bool,
    /// Print only this attribute, with its value
    #[arg(short, long, value_name = "NAME")]
    name: Option<OsString>,
    /// Print those of a symbolic link itself
    #[arg(short = 'h', long)]
    no_dereference: bool,
    /// Print one JSON array of objects; values are in hexadecimal
    #[arg(long)]
    json: bool,
}

/// Prints them.
pub fn run(args: &GetfattrArgs, fs: &Image, out: &mut Output) -> Result<Exit, Failure> {
    let mut complaints = Complaints::new();
    let mut json = Json::new();
    json.open_array();
    for path in &args.paths {
        let path = bytes(path.as_os_str());
        match args.xattrs(fs, path) {
            Err(failure) => complaints.failure(failure)?,
            Ok(xattrs) if args.json => {
                json.open_object();
                json.key("path").text(path);
                json.key("xattrs").open_object();
                for xattr in &xattrs {
                    json.key_text(&xattr.name).hex(&xattr.value);
                }
                json.close_object();
                json.close_object();
            }
            Ok(xattrs) if xattrs.is_empty() => {}
            Ok(xattrs) => args.print(path, &xattrs, out)?,
        }
    }
    if args.json {
        json.print_array(out)?;
    }
    Ok(complaints.exit())
}

impl GetfattrArgs {
    fn xattrs(&self, fs: &Image, path: &[u8]) -> Result<Vec<Xattr>, Failure> {
        let last = match self.no_dereference {
            true => FollowLast::No,
            false => FollowLast::Yes,
        };
        let about = |error| Failure::engine(escaped(path), &error);
        let inode = paths::resolve(fs, path, last)?;
        let mut xattrs = fs.xattrs(&inode).map_err(about)?;
        if let Some(name) = &self.name {
            xattrs.retain(|xattr| xattr.name == bytes(name));
            if xattrs.is_empty() {
                return Err(about(Error::NoAttribute));
            }
        }
        Ok(xattrs)
    }

    fn print(&self, path: &[u8], xattrs: &[Xattr], out: &mut Output) -> Result<(), Failure> {
        writeln!(out, "# file: {}", escaped(path))?;
        for xattr in xattrs {
            write!(out, "{}", escaped(&xattr.name))?;
            if self.dump || self.name.is_some() {
                write!(out, "={}", shown(&xattr.value))?;
            }
            writeln!(out)?;
        }
        writeln!(out)?;
        Ok(())
    }
}

/// A value that setfattr takes.
fn shown(value: &[u8]) -> String {
    let plain = |b: &u8| (0x20..0x7f).contains(b) && !matches!(b, b'"' | b'\\');
    if value.iter().all(plain) {
        return format!("\"{}\"", String::from_utf8_lossy(value));
    }
    format!("0x{}", hex::encode(value))
}
