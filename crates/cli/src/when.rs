//! Times as people write them, in UTC.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp as Instant};
use uext4_ondisk::inode::Timestamp;

/// Reads `@SECONDS[.FRACTION]` since 1970, `YYYY-MM-DD`, or `YYYY-MM-DD HH:MM[:SS[.FRACTION]]`,
/// with a `T` in place of the space if you like, and a `Z` or nothing at the end.
///
/// # Errors
/// What is wrong with it.
pub fn parse(text: &str) -> Result<Timestamp, String> {
    let time = match text.strip_prefix('@') {
        Some(seconds) => since_1970(seconds),
        None => calendar(text),
    };
    let time = time
        .ok_or_else(|| format!("{text:?} is no time: use @SECONDS or YYYY-MM-DD HH:MM:SS (UTC)"))?;
    // Nanoseconds count forwards, also before 1970: -1.5 is half a second after -2.
    let nsec = time.subsec_nanos().rem_euclid(1_000_000_000);
    let sec = time.as_secs() - i64::from(time.subsec_nanos() < 0);
    if !(Timestamp::MIN_SEC..=Timestamp::MAX_SEC).contains(&sec) {
        return Err(format!("{text:?} does not fit into an inode"));
    }
    let nsec = nsec.cast_unsigned();
    Ok(Timestamp { sec, nsec })
}

fn since_1970(seconds: &str) -> Option<SignedDuration> {
    let is_number = |byte| matches!(byte, b'0'..=b'9' | b'.' | b'-');
    let text = format!("{seconds}s");
    seconds.bytes().all(is_number).then(|| text.parse().ok())?
}

fn calendar(text: &str) -> Option<SignedDuration> {
    let text = text.strip_suffix('Z').unwrap_or(text);
    // The parser would take an offset or a time zone, and leave it out of account.
    let (_, time) = text.split_once([' ', 'T']).unwrap_or((text, ""));
    if text.contains(['+', '[']) || time.contains('-') {
        return None;
    }
    let time: DateTime = text.parse().ok()?;
    let time: Instant = TimeZone::UTC.to_timestamp(time).ok()?;
    Some(time.as_duration())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::time_short;

    #[test]
    fn times_are_read_as_they_are_shown() {
        for sec in [
            0,
            -1,
            951_782_400,
            1_709_251_199,
            Timestamp::MIN_SEC,
            Timestamp::MAX_SEC,
        ] {
            let shown = time_short(sec);
            assert_eq!(parse(&shown), Ok(Timestamp { sec, nsec: 0 }), "{shown}");
        }
        let nsec = 50_000_000;
        assert_eq!(parse("@7.05"), Ok(Timestamp { sec: 7, nsec }));
        assert_eq!(parse("@-7"), Ok(Timestamp { sec: -7, nsec: 0 }));
        let half = 500_000_000;
        assert_eq!(
            parse("@-1.5"),
            Ok(Timestamp {
                sec: -2,
                nsec: half
            })
        );
        assert_eq!(
            parse("@-0.5"),
            Ok(Timestamp {
                sec: -1,
                nsec: half
            })
        );
        assert_eq!(parse("1970-01-02T00:01Z").unwrap().sec, 86_460);
        for bad in [
            "",
            "now",
            "2023-02-29",
            "2024-13-01",
            "@",
            "2024-01-01 24:00",
            "@1e9",
            "1800-01-01",
            "2024-06-19T15:22:45+02:00",
            "2024-06-19 15:22-02",
            "2024-06-19T15:22[Europe/Berlin]",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
