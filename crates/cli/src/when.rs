//! Times as people write them, in UTC.

use uext4_ondisk::inode::Timestamp;

const NANOS_PER_SEC: u32 = 1_000_000_000;

/// Reads `@SECONDS[.FRACTION]` since 1970, `YYYY-MM-DD`, or `YYYY-MM-DD HH:MM[:SS[.FRACTION]]`, with a
/// `T` in place of the space if you like, and a `Z` or nothing at the end.
///
/// # Errors
/// What is wrong with it.
pub fn parse(text: &str) -> Result<Timestamp, String> {
    let bad = || format!("{text:?} is no time: use @SECONDS or YYYY-MM-DD HH:MM:SS (UTC)");
    let (whole, nsec) = match text.split_once('.') {
        Some((whole, fraction)) => (whole, nanoseconds(fraction).ok_or_else(bad)?),
        None => (text.trim_end_matches('Z'), 0),
    };
    let sec = match whole.strip_prefix('@') {
        Some(seconds) => seconds.parse().ok(),
        None => calendar(whole),
    };
    let sec: i64 = sec.ok_or_else(bad)?;
    // Nanoseconds count forwards, also before 1970: -1.5 is half a second after -2.
    let (sec, nsec) = match whole.starts_with("@-") && nsec > 0 {
        true => (sec.saturating_sub(1), NANOS_PER_SEC - nsec),
        false => (sec, nsec),
    };
    if !(Timestamp::MIN_SEC..=Timestamp::MAX_SEC).contains(&sec) {
        return Err(format!("{text:?} is outside of what an inode can hold"));
    }
    Ok(Timestamp { sec, nsec })
}

fn nanoseconds(fraction: &str) -> Option<u32> {
    let digits = fraction.trim_end_matches('Z');
    let all = digits.bytes().all(|b| b.is_ascii_digit());
    if !all || digits.is_empty() || digits.len() > 9 {
        return None;
    }
    let value: u32 = digits.parse().ok()?;
    Some(value * 10u32.pow(9 - digits.len() as u32))
}

fn calendar(text: &str) -> Option<i64> {
    let (date, time) = match text.split_once([' ', 'T']) {
        Some((date, time)) => (date, time),
        None => (text, "00:00"),
    };
    let mut parts = date.splitn(3, '-').map(number);
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let mut parts = time.splitn(3, ':').map(number);
    let (hour, minute) = (parts.next()??, parts.next()??);
    let second = parts.next().unwrap_or(Some(0))?;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    let valid = (1..=days).contains(&day) && hour < 24 && minute < 60 && second < 60;
    valid.then(|| days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second)
}

fn number(text: &str) -> Option<i64> {
    let digits = (1..=4).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok())?
}

/// Years are counted from March, so that the leap day is the last of its year.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month > 2 { year } else { year - 1 };
    let from_march = (month + 9) % 12;
    let leaps = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leaps + (153 * from_march + 2) / 5 + day - 1 - 719_468
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
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
