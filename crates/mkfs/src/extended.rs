//! The value of `-E`.

use uext4_ondisk::BlockSize;
use uuid::fmt::Hyphenated;

use crate::Error;
use crate::size::{Size, parse_size};

/// Quota types of `quotatype=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaTypes {
    /// `usrquota`
    pub user: bool,
    /// `grpquota`
    pub group: bool,
    /// `prjquota`
    pub project: bool,
}

/// What was said with `-E`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extended {
    /// `lazy_itable_init`: leave inode tables to the kernel where descriptors are summed.
    pub lazy_itable_init: bool,
    /// `lazy_journal_init`: do not zero the journal.
    pub lazy_journal_init: bool,
    /// `discard` / `nodiscard`: give the device's blocks back first; they then read as zeroes.
    pub discard: bool,
    /// `assume_storage_prezeroed`: the device reads as zeroes already.
    pub assume_storage_prezeroed: bool,
    /// `stride`: blocks on one disk of a RAID before the next.
    pub stride: u32,
    /// `stripe_width`: blocks of a whole stripe.
    pub stripe_width: u32,
    /// `resize`: blocks up to which descriptors shall have room to grow.
    pub resize: Option<Size>,
    /// `root_owner`: uid and gid of the root directory.
    pub root_owner: (u32, u32),
    /// `offset`: bytes of the device to skip. The caller gives [`crate::format`] the window.
    pub offset: u64,
    /// `packed_meta_blocks`: all bitmaps, tables and the journal at the start.
    pub packed_meta_blocks: bool,
    /// `num_backup_sb`: backups under `sparse_super2`, 0 to 2.
    pub num_backup_sb: u8,
    /// `test_fs`: may be mounted by experimental code.
    pub test_fs: bool,
    /// `quotatype`, if said.
    pub quota_types: Option<QuotaTypes>,
    /// `mmp_update_interval`: seconds, 0 for the default.
    pub mmp_update_interval: u16,
    /// `orphan_file_size`, if said.
    pub orphan_file_size: Option<Size>,
    /// `encoding_flags=strict` in `casefold` file systems.
    pub strict_encoding: bool,
    /// `no_copy_xattrs`: for filling from a directory.
    pub no_copy_xattrs: bool,
    /// `hash_seed`, if said: the caller's [`crate::Options::hash_seed`].
    pub hash_seed: Option<[u8; 16]>,
}

impl Default for Extended {
    fn default() -> Self {
        Self {
            lazy_itable_init: true,
            lazy_journal_init: false,
            discard: true,
            assume_storage_prezeroed: false,
            stride: 0,
            stripe_width: 0,
            resize: None,
            root_owner: (0, 0),
            offset: 0,
            packed_meta_blocks: false,
            num_backup_sb: 2,
            test_fs: false,
            quota_types: None,
            mmp_update_interval: 0,
            orphan_file_size: None,
            strict_encoding: false,
            no_copy_xattrs: false,
            hash_seed: None,
        }
    }
}

/// Parses the value of `-E` over what was said before.
///
/// # Errors
/// [`Error::UnknownName`], [`Error::Option`].
pub fn parse_extended(list: &str, extended: &mut Extended) -> Result<(), Error> {
    for item in list.split(',').filter(|item| !item.is_empty()) {
        let (name, value) = match item.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (item, None),
        };
        if !set_flag(name, value, extended)? && !set_value(name, value, extended)? {
            return Err(Error::UnknownName {
                flag: "-E",
                name: name.to_owned(),
            });
        }
    }
    Ok(())
}

/// Options that stand alone or take 0 or 1; false if `name` is none of them.
fn set_flag(name: &str, value: Option<&str>, extended: &mut Extended) -> Result<bool, Error> {
    let flag = match name {
        "lazy_itable_init" => &mut extended.lazy_itable_init,
        "lazy_journal_init" => &mut extended.lazy_journal_init,
        "assume_storage_prezeroed" => &mut extended.assume_storage_prezeroed,
        "packed_meta_blocks" => &mut extended.packed_meta_blocks,
        "discard" => &mut extended.discard,
        "nodiscard" => {
            extended.discard = false;
            return Ok(true);
        }
        "test_fs" => &mut extended.test_fs,
        "no_copy_xattrs" => &mut extended.no_copy_xattrs,
        _ => return Ok(false),
    };
    *flag = match value {
        None => true,
        Some(text) => number(flag_name(name), Some(text), u64::MAX)? != 0,
    };
    Ok(true)
}

/// Options that need a value; false if `name` is none of them.
fn set_value(name: &str, value: Option<&str>, extended: &mut Extended) -> Result<bool, Error> {
    let u32_max = u32::MAX.into();
    match name {
        "stride" => extended.stride = number("-E stride", value, u32_max)? as u32,
        "stripe_width" | "stripe-width" => {
            extended.stripe_width = number("-E stripe_width", value, u32_max)? as u32;
        }
        "num_backup_sb" => extended.num_backup_sb = number("-E num_backup_sb", value, 2)? as u8,
        "mmp_update_interval" => {
            extended.mmp_update_interval = number("-E mmp_update_interval", value, 300)? as u16;
        }
        "resize" => extended.resize = Some(parse_size("-E resize", needed("-E resize", value)?)?),
        "orphan_file_size" => {
            let text = needed("-E orphan_file_size", value)?;
            extended.orphan_file_size = Some(parse_size("-E orphan_file_size", text)?);
        }
        "offset" => {
            let offset = parse_size("-E offset", needed("-E offset", value)?)?;
            // A plain number is bytes here.
            extended.offset = match offset {
                Size::Bytes(n) | Size::Plain(n) => n,
            };
        }
        "root_owner" => extended.root_owner = owner(value)?,
        "quotatype" => extended.quota_types = Some(quota_types(needed("-E quotatype", value)?)?),
        "hash_seed" => {
            let text = needed("-E hash_seed", value)?;
            extended.hash_seed = Some(parse_uuid("-E hash_seed", text)?);
        }
        "encoding" => match needed("-E encoding", value)? {
            "utf8" | "utf8-12.1" => {}
            other => return Err(bad("-E encoding", other, "only utf8 is known")),
        },
        "encoding_flags" => match needed("-E encoding_flags", value)? {
            "strict" => extended.strict_encoding = true,
            "^strict" => extended.strict_encoding = false,
            other => return Err(bad("-E encoding_flags", other, "only strict is known")),
        },
        _ => return Ok(false),
    }
    Ok(true)
}

fn bad(flag: &'static str, value: &str, why: &'static str) -> Error {
    Error::Option {
        flag,
        value: value.to_owned(),
        why,
    }
}

/// The static spelling of a flag's name, for errors.
fn flag_name(name: &str) -> &'static str {
    match name {
        "lazy_itable_init" => "-E lazy_itable_init",
        "lazy_journal_init" => "-E lazy_journal_init",
        "assume_storage_prezeroed" => "-E assume_storage_prezeroed",
        "packed_meta_blocks" => "-E packed_meta_blocks",
        _ => "-E",
    }
}

fn needed<'a>(flag: &'static str, value: Option<&'a str>) -> Result<&'a str, Error> {
    value.ok_or_else(|| bad(flag, "", "needs a value"))
}

fn number(flag: &'static str, value: Option<&str>, max: u64) -> Result<u64, Error> {
    let text = needed(flag, value)?;
    text.parse()
        .ok()
        .filter(|&n| n <= max)
        .ok_or_else(|| bad(flag, text, "not a number within its bounds"))
}

/// `uid:gid`. A caller that runs the program is for the front end to say, so there is no form
/// without a value.
fn owner(value: Option<&str>) -> Result<(u32, u32), Error> {
    let text = needed("-E root_owner", value)?;
    let parts = text.split_once(':');
    parts
        .and_then(|(uid, gid)| Some((uid.parse().ok()?, gid.parse().ok()?)))
        .ok_or_else(|| bad("-E root_owner", text, "not uid:gid"))
}

fn quota_types(list: &str) -> Result<QuotaTypes, Error> {
    let mut types = QuotaTypes {
        user: false,
        group: false,
        project: false,
    };
    for name in list.split(':') {
        match name {
            "usrquota" => types.user = true,
            "grpquota" => types.group = true,
            "prjquota" => types.project = true,
            _ => return Err(bad("-E quotatype", name, "usrquota, grpquota or prjquota")),
        }
    }
    Ok(types)
}

/// Parses a UUID in its usual form.
///
/// # Errors
/// [`Error::Option`] naming `flag`.
pub fn parse_uuid(flag: &'static str, text: &str) -> Result<[u8; 16], Error> {
    let uuid: Result<Hyphenated, _> = text.parse();
    let uuid = uuid.map_err(|_| bad(flag, text, "not a UUID"))?;
    Ok(uuid.into_uuid().into_bytes())
}

/// Blocks a [`Size`] of a flag means: a plain number counts blocks.
pub(crate) fn size_in_blocks(size: Size, block_size: BlockSize) -> u64 {
    match size {
        Size::Bytes(bytes) => bytes >> block_size.log2(),
        Size::Plain(blocks) => blocks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        let mut e = Extended::default();
        parse_extended(
            "stride=16,stripe-width=32,lazy_itable_init=0,nodiscard,root_owner=5:6",
            &mut e,
        )
        .unwrap();
        assert_eq!((e.stride, e.stripe_width), (16, 32));
        assert_eq!(e.root_owner, (5, 6));
        assert!(!e.lazy_itable_init && !e.discard);
        parse_extended("lazy_itable_init,quotatype=usrquota:prjquota", &mut e).unwrap();
        assert!(e.lazy_itable_init);
        let types = e.quota_types.unwrap();
        assert!(types.user && !types.group && types.project);
    }

    #[test]
    fn wrong_items_are_named() {
        for item in [
            "bogus",
            "bogus=1",
            "stride",
            "num_backup_sb=3",
            "root_owner=a:b",
        ] {
            let err = parse_extended(item, &mut Extended::default()).unwrap_err();
            let name = item.split('=').next().unwrap();
            assert!(err.to_string().contains(name), "{err}");
        }
    }

    #[test]
    fn uuids() {
        let uuid = parse_uuid("-U", "01234567-89ab-CDEF-0123-456789abcdef").unwrap();
        assert_eq!(uuid[..8], [0x01, 0x23, 0x45, 0x67, 0x89, 0xAB, 0xCD, 0xEF]);
        for text in [
            "",
            "0123456789abcdef0123456789abcdef",
            "01234567-89ab-cdef-0123-456789abcdeg",
        ] {
            assert!(parse_uuid("-U", text).is_err());
        }
    }
}
