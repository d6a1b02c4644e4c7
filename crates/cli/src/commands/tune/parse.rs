//! The values of the options of `tune`.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use uext4_blockdev::{Clock as _, SystemClock};
use uext4_fsck::tune::{Amount, Change};
use uext4_image::HostIds;
use uext4_mkfs::{JournalOptions, Size, parse_journal};
use uext4_ondisk::num::lo32;
use uext4_ondisk::quota::QuotaKind;
use uuid::Uuid;

use crate::args::parse_suffixed;
use crate::examination;
use crate::format::random_uuid;
use crate::tune_names::{MOUNT_DATA_MODE, MOUNT_OPTIONS};

/// What a list asks for.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    pub list: Vec<Change>,
    /// The mark of another host is cleared first.
    pub clears_mmp: bool,
}

impl FromIterator<Change> for Changes {
    fn from_iter<I: IntoIterator<Item = Change>>(changes: I) -> Self {
        Self {
            list: changes.into_iter().collect(),
            clears_mmp: false,
        }
    }
}

type Parsed<T> = Result<T, String>;

fn padded<const LEN: usize>(text: &str) -> Parsed<[u8; LEN]> {
    let mut bytes = [0; LEN];
    let room = bytes.get_mut(..text.len());
    let room = room.ok_or_else(|| format!("{} bytes are too many: {LEN} fit", text.len()))?;
    room.copy_from_slice(text.as_bytes());
    Ok(bytes)
}

pub fn label(text: &str) -> Parsed<[u8; 16]> {
    padded(text)
}

pub fn text64(text: &str) -> Parsed<[u8; 64]> {
    padded(text)
}

pub fn uuid(text: &str) -> Parsed<[u8; 16]> {
    match text {
        "clear" => Ok([0; 16]),
        "random" => random(),
        "time" => uuid_of_now(),
        text => {
            let parsed = Uuid::parse_str(text).map(Uuid::into_bytes);
            parsed.map_err(|error| format!("{error}; or use random, time, clear"))
        }
    }
}

fn random() -> Parsed<[u8; 16]> {
    random_uuid().map_err(|_| "the system has no random numbers".to_owned())
}

/// Version 1, with a random node.
fn uuid_of_now() -> Parsed<[u8; 16]> {
    /// From 1582 to 1970, in units of 100 ns.
    const GREGORIAN: u64 = 0x01B2_1DD2_1381_4000;
    let (seconds, nanoseconds) = SystemClock.now();
    let ticks = seconds.max(0).cast_unsigned().wrapping_mul(10_000_000);
    let ticks = ticks
        .wrapping_add(u64::from(nanoseconds) / 100)
        .wrapping_add(GREGORIAN);
    let [low, middle, high] = [
        ticks & 0xFFFF_FFFF,
        ticks >> 32 & 0xFFFF,
        ticks >> 48 & 0x0FFF,
    ];
    let node = Uuid::from_bytes(random()?);
    let (.., rest) = node.as_fields();
    let mut rest = *rest;
    // Not the address of any network interface.
    rest[2] |= 1;
    let number = |part: u64| u16::try_from(part).unwrap_or(0);
    let uuid = Uuid::from_fields(lo32(low), number(middle), number(high) | 0x1000, &rest);
    Ok(uuid.into_bytes())
}

pub fn errors(text: &str) -> Parsed<u16> {
    match text {
        "continue" => Ok(1),
        "remount-ro" => Ok(2),
        "panic" => Ok(3),
        _ => Err("it is continue, remount-ro or panic".to_owned()),
    }
}

/// Different file systems are then examined at different boots.
pub fn max_mounts(text: &str) -> Parsed<i16> {
    if text == "random" {
        let [byte, ..] = random()?;
        return Ok(20 + i16::from(byte) % 21);
    }
    let number = text.parse().ok();
    let number = number.filter(|most| (-1..=16_000).contains(most));
    number.ok_or_else(|| "it is a number from -1 to 16000, or random".to_owned())
}

pub fn user(text: &str) -> Parsed<u16> {
    owner(text, "user", HostIds::user)
}

pub fn group(text: &str) -> Parsed<u16> {
    owner(text, "group", HostIds::group)
}

/// A number, or the number of a name. The superblock has 16 bits for it.
fn owner(text: &str, what: &str, lookup: impl Fn(&HostIds, &[u8]) -> Option<u32>) -> Parsed<u16> {
    let number: Option<u32> = text.parse().ok();
    let number = number.or_else(|| lookup(&HostIds::default(), text.as_bytes()));
    let number = number.ok_or_else(|| format!("this machine has no {what} {text}"))?;
    u16::try_from(number)
        .map_err(|_| format!("{number} is too large: the superblock holds at most 65535"))
}

pub fn interval(text: &str) -> Parsed<u32> {
    const DAY: u32 = 86_400;
    let (digits, unit) = match text.strip_suffix(['d', 'w', 'm', 's']) {
        Some(digits) if text.ends_with('s') => (digits, 1),
        Some(digits) if text.ends_with('w') => (digits, 7 * DAY),
        Some(digits) if text.ends_with('m') => (digits, 30 * DAY),
        Some(digits) => (digits, DAY),
        None => (text, DAY),
    };
    let number: u32 = digits
        .parse()
        .map_err(|_| "it is a number, with d, w, m or s".to_owned())?;
    number
        .checked_mul(unit)
        .ok_or_else(|| "this is more than 136 years".to_owned())
}

pub fn checked(text: &str) -> Parsed<u64> {
    if text == "now" {
        return Ok(examination::now().into());
    }
    let wrong = || "it is now, or YYYYMMDD[HH[MM[SS]]]".to_owned();
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits || ![8, 10, 12, 14].contains(&text.len()) {
        return Err(wrong());
    }
    let full = format!("{text:0<14}");
    let number = |range: std::ops::Range<usize>| full[range].parse::<i8>().map_err(|_| wrong());
    let year: i16 = full[..4].parse().map_err(|_| wrong())?;
    let time = DateTime::new(
        year,
        number(4..6)?,
        number(6..8)?,
        number(8..10)?,
        number(10..12)?,
        number(12..14)?,
        0,
    );
    let time = time.map_err(|_| wrong())?;
    let time = TimeZone::UTC.to_timestamp(time).map_err(|_| wrong())?;
    u64::try_from(time.as_second()).map_err(|_| "it lies before 1970".to_owned())
}

/// A name of a list, and whether it is set.
struct Named<'a> {
    name: &'a str,
    is_on: bool,
}

fn names(list: &str) -> impl Iterator<Item = Named<'_>> {
    let names = list
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty());
    names.map(|name| Named {
        name: name.trim_start_matches(['^', '+']),
        is_on: !name.starts_with('^'),
    })
}

pub fn mount_options(list: &str) -> Parsed<Changes> {
    let changes = names(list).map(|Named { name, is_on }| {
        let found = MOUNT_OPTIONS.iter().find(|(known, _)| *known == name);
        let &(_, bits) = found.ok_or_else(|| {
            let known: Vec<_> = MOUNT_OPTIONS.iter().map(|(known, _)| *known).collect();
            format!("there is no {name}; there are {}", known.join(", "))
        })?;
        let others = match bits & MOUNT_DATA_MODE {
            0 => 0,
            _ => MOUNT_DATA_MODE,
        };
        Ok(Change::DefaultMount {
            clear: bits | others,
            set: if is_on { bits } else { 0 },
        })
    });
    changes.collect()
}

pub fn features(list: &str) -> Parsed<Changes> {
    let changes = Change::of_features(list).map_err(|error| error.to_string())?;
    Ok(changes.into_iter().collect())
}

pub fn quotas(list: &str) -> Parsed<Changes> {
    let changes = names(list).map(|Named { name, is_on }| {
        let kind = match name {
            "usrquota" => QuotaKind::User,
            "grpquota" => QuotaKind::Group,
            "prjquota" => QuotaKind::Project,
            _ => return Err("it is usrquota, grpquota or prjquota".to_owned()),
        };
        Ok(Change::Quota { kind, is_on })
    });
    changes.collect()
}

pub fn journal(list: &str) -> Parsed<Changes> {
    if list
        .split(',')
        .any(|word| word.trim().starts_with("device="))
    {
        return Err(
            "a journal on another device is not written, and a file system that has one is only \
             read: leave device= out for one in the image, or use `tune2fs -J device=`"
                .to_owned(),
        );
    }
    let mut said = JournalOptions::default();
    parse_journal(list, &mut said).map_err(|error| error.to_string())?;
    let bytes = |count: u64, unit: u64| {
        let bytes = count.checked_mul(unit);
        bytes.ok_or_else(|| format!("{count} is too large"))
    };
    let size = said.size_mib.map(|mib| bytes(mib, 1 << 20)).transpose()?;
    let area = said.fast_commit_kib.map(|kib| bytes(kib, 1 << 10));
    let changes = [
        size.map(Change::JournalSize),
        area.transpose()?.map(Change::FastCommitSize),
        said.location.map(amount).map(Change::JournalPlace),
    ];
    Ok(changes.into_iter().flatten().collect())
}

/// Plain numbers are blocks, as tune2fs has it.
fn amount(size: Size) -> Amount {
    match size {
        Size::Plain(blocks) => Amount::Blocks(blocks),
        Size::Bytes(bytes) => Amount::Bytes(bytes),
    }
}

pub fn extended(list: &str) -> Parsed<Changes> {
    let mut changes = Changes::default();
    let (mut encoding, mut is_strict) = (None, None);
    let words = list.split(',').map(str::trim);
    for word in words.filter(|word| !word.is_empty()) {
        match word.split_once('=') {
            Some(("encoding", name)) => encoding = Some(name),
            Some(("encoding_flags", flag)) => is_strict = Some(strictness(flag)?),
            None if word == "clear_mmp" => changes.clears_mmp = true,
            _ => changes.list.push(extended_one(word)?),
        }
    }
    match (encoding, is_strict) {
        (Some("utf8" | "utf8-12.1"), is_strict) => changes.list.push(Change::Encoding {
            is_strict: is_strict.unwrap_or(false),
        }),
        (Some(_), _) => return Err("encoding= is utf8 or utf8-12.1".to_owned()),
        (None, Some(_)) => return Err("encoding_flags= needs encoding=, too".to_owned()),
        (None, None) => {}
    }
    Ok(changes)
}

fn strictness(flag: &str) -> Parsed<bool> {
    match flag {
        "strict" => Ok(true),
        "nostrict" => Ok(false),
        _ => Err("encoding_flags= is strict or nostrict".to_owned()),
    }
}

fn extended_one(word: &str) -> Parsed<Change> {
    let (name, value) = word.split_once('=').unwrap_or((word, ""));
    let number = || {
        value
            .parse::<u32>()
            .map_err(|_| format!("{name}= needs a number"))
    };
    let small = || u16::try_from(number()?).map_err(|_| format!("{name}={value} is too large"));
    Ok(match name {
        "mount_opts" => Change::MountOptions(padded::<64>(value).and_then(|bytes| {
            // The last byte ends it.
            match bytes[63] {
                0 => Ok(bytes),
                _ => Err("mount_opts has at most 63 bytes".to_owned()),
            }
        })?),
        "hash_alg" => Change::Hash(match value {
            "legacy" => 0,
            "half_md4" => 1,
            "tea" => 2,
            _ => return Err("hash_alg is legacy, half_md4 or tea".to_owned()),
        }),
        "hash_seed" => Change::HashSeed(uuid(value)?),
        "stride" => Change::Stride(small()?),
        "stripe_width" | "stripe-width" => Change::StripeWidth(number()?),
        "mmp_update_interval" => Change::MmpInterval(small()?),
        "orphan_file_size" => Change::OrphanFileSize(amount(parse_suffixed(value)?)),
        "force_fsck" => Change::ForceFsck,
        "test_fs" => Change::TestFs(true),
        "^test_fs" => Change::TestFs(false),
        _ => {
            return Err(format!(
                "there is no {name}: `uext4 tune --help` lists what there is"
            ));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_tune2fs_reads_them() {
        assert_eq!(interval("2w"), Ok(1_209_600));
        assert_eq!(interval("3m"), Ok(7_776_000));
        assert_eq!(checked("20200102"), Ok(1_577_923_200));
        assert_eq!(interval("5s"), Ok(5));
        let journal = journal("size=4,location=12M,fast_commit_size=64").unwrap();
        let journal = format!("{:?}", journal.list);
        assert_eq!(
            journal,
            "[JournalSize(4194304), FastCommitSize(65536), JournalPlace(Bytes(12582912))]"
        );
        assert!(super::journal("device=/dev/sda").is_err());
        assert!(extended("encoding_flags=strict").is_err());
        assert!(extended("encoding=latin1").is_err());
        assert!(extended("stride=16,clear_mmp").unwrap().clears_mmp);
        assert!(label("abcdefghijklmnopq").is_err());
        assert!(extended("stride=16,hash_alg=sha").is_err());
        assert!((0..99).all(|_| matches!(max_mounts("random"), Ok(20..=40))));
        assert_eq!(max_mounts("-1"), Ok(-1));
        assert!(max_mounts("16001").is_err() && max_mounts("often").is_err());
        assert_eq!((user("root"), group("8")), (Ok(0), Ok(8)));
        assert!(user("no such user").is_err() && group("65536").is_err());
        assert_eq!(uuid("time").unwrap()[6] >> 4, 1);
    }
}
