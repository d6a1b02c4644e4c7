//! How names, modes, times and sizes look to people.
//!
//! Names come from images, and an image may be hostile: what a terminal could take as a command is
//! escaped the way `ls -b` does, always, so that a pipe sees the same as the eye.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;

use uext4_ondisk::inode::{FileType, Timestamp};

/// A name or path for a line of text: backslashes, control characters and what is not UTF-8 are
/// escaped as in C.
pub fn escaped(bytes: &[u8]) -> String {
    // Most names are so.
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && *byte != b'\\';
    if bytes.iter().all(is_plain) {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    let mut shown = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => shown.push_str("\\\\"),
                '\n' => shown.push_str("\\n"),
                '\t' => shown.push_str("\\t"),
                '\r' => shown.push_str("\\r"),
                _ if is_harmful(c) => {
                    octal(&mut shown, c.encode_utf8(&mut [0; 4]).as_bytes());
                }
                _ => shown.push(c),
            }
        }
        octal(&mut shown, chunk.invalid());
    }
    shown
}

/// A name as a word for a shell, so that a command line can be copied as it is shown.
pub fn for_shell(word: &OsStr) -> String {
    let bytes = word.as_bytes();
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"%+,-./:=@_".contains(byte);
    let text = escaped(bytes);
    if !bytes.is_empty() && bytes.iter().all(is_plain) {
        return text;
    }
    match text.as_bytes() == bytes {
        true => format!("'{}'", text.replace('\'', r"'\''")),
        false => format!("$'{}'", text.replace('\'', r"\'")),
    }
}

/// A text whose names may be escaped already, with what is harmful in it escaped.
pub fn harmless(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_harmful) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => shown.push_str("\\n"),
            '\t' => shown.push_str("\\t"),
            '\r' => shown.push_str("\\r"),
            _ if is_harmful(c) => octal(&mut shown, c.encode_utf8(&mut [0; 4]).as_bytes()),
            _ => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// Control characters, and those that change the direction of the text around them.
fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn octal(shown: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(shown, "\\{byte:03o}");
    }
}

/// `drwxr-xr-x`
pub fn mode_text(file_type: FileType, mode: u16) -> String {
    let kind = match file_type {
        FileType::Regular => '-',
        FileType::Directory => 'd',
        FileType::CharDevice => 'c',
        FileType::BlockDevice => 'b',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
        FileType::Symlink => 'l',
    };
    let mut text = String::with_capacity(10);
    text.push(kind);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & 1 != 0, mode & special != 0) {
            (true, true) => letter,
            (false, true) => letter.to_ascii_uppercase(),
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// The word the manifest and `--json` use for a type.
pub fn type_word(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Regular => "file",
        FileType::Directory => "dir",
        FileType::CharDevice => "chr",
        FileType::BlockDevice => "blk",
        FileType::Fifo => "fifo",
        FileType::Socket => "sock",
        FileType::Symlink => "symlink",
    }
}

/// `2024-02-29 23:59:59`, in UTC; what no calendar of four digits has is `@SECONDS`.
pub fn time_short(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map_or_else(
        |_| format!("@{seconds}"),
        |time| time.strftime("%Y-%m-%d %H:%M:%S").to_string(),
    )
}

/// `2024-02-29 23:59:59.000000001 UTC`
pub fn time_long(time: Timestamp) -> String {
    format!("{}.{:09} UTC", time_short(time.sec), time.nsec)
}

/// `1.5 GiB`; exact bytes below 1 KiB.
pub fn size_text(bytes: u64) -> String {
    let mut unit = 0;
    let mut value = bytes as f64;
    while value >= 1024.0 && unit < UNITS.len() - 1 {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{bytes} B")
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// `01234567-89ab-cdef-0123-456789abcdef`
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    uuid::Uuid::from_bytes_ref(uuid).to_string()
}

/// A size as `ls -h` shows it: in units of 1024, rounded up, with a decimal below 10.
pub fn size_short(bytes: u64) -> String {
    let mut unit = 0;
    while unit < 6 && bytes >> (10 * (unit + 1)) > 0 {
        unit += 1;
    }
    if unit == 0 {
        return bytes.to_string();
    }
    // Tenths of the unit, rounded up; 1023.5 K and more is 1.0 M.
    let one = 1_u128 << (10 * unit);
    let tenths = (u128::from(bytes) * 10).div_ceil(one);
    let name = |unit: u32| char::from(b"BKMGTPE"[unit as usize]);
    match tenths {
        0..100 => format!("{}.{}{}", tenths / 10, tenths % 10, name(unit)),
        _ => match u128::from(bytes).div_ceil(one) {
            1024 if unit < 6 => format!("1.0{}", name(unit + 1)),
            whole => format!("{whole}{}", name(unit)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_ls() {
        for (bytes, shown) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (10_240, "10K"),
            (10_241, "11K"),
            (1_048_575, "1.0M"),
            (3_000_000, "2.9M"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(size_short(bytes), shown, "{bytes}");
        }
    }

    #[test]
    fn a_shell_reads_the_name_that_was_meant() {
        for (name, word) in [
            ("/a/disk-1.img", "/a/disk-1.img"),
            ("", "''"),
            ("my disk.img", "'my disk.img'"),
            ("it's", r"'it'\''s'"),
            ("$(rm)", "'$(rm)'"),
            ("a\nb'", r"$'a\nb\''"),
        ] {
            assert_eq!(for_shell(name.as_ref()), word);
            let said = std::process::Command::new("bash")
                .args(["-c", &format!("printf %s {word}")])
                .output();
            if let Ok(said) = said {
                assert_eq!(said.stdout, name.as_bytes());
            }
        }
    }

    #[test]
    fn harmful_names_are_escaped() {
        assert_eq!(escaped("plain ü 名".as_bytes()), "plain ü 名");
        assert_eq!(escaped(b"a\nb\\c\x1b[31m"), "a\\nb\\\\c\\033[31m");
        assert_eq!(escaped(b"\xff\xfe"), "\\377\\376");
        assert_eq!(escaped("\u{202e}".as_bytes()), "\\342\\200\\256");
    }

    #[test]
    fn modes_read_like_ls() {
        assert_eq!(mode_text(FileType::Regular, 0o4755), "-rwsr-xr-x");
        assert_eq!(mode_text(FileType::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(mode_text(FileType::Regular, 0o6644), "-rwSr-Sr--");
        assert_eq!(mode_text(FileType::Symlink, 0o1000), "l--------T");
    }

    #[test]
    fn dates_over_the_whole_range() {
        assert_eq!(time_short(0), "1970-01-01 00:00:00");
        assert_eq!(time_short(-1), "1969-12-31 23:59:59");
        assert_eq!(time_short(951_782_400), "2000-02-29 00:00:00");
        assert_eq!(time_short(Timestamp::MIN_SEC), "1901-12-13 20:45:52");
        assert_eq!(time_short(Timestamp::MAX_SEC), "2446-05-10 22:38:55");
    }

    #[test]
    fn sizes_and_uuids() {
        assert_eq!(size_text(1023), "1023 B");
        assert_eq!(size_text(1536), "1.5 KiB");
        assert_eq!(size_text(u64::MAX), "16.0 EiB");
        assert_eq!(
            uuid_text(&[0xab; 16]),
            "abababab-abab-abab-abab-abababababab"
        );
    }
}
