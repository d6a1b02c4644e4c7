//! What an archive has in it that readers take differently, found without a reader: every block
//! whose checksum is right is looked at.

use std::collections::BTreeSet;

use uext4_image::ustar::{
    BLOCK, CHKSUM, GID, MAGIC, MODE, MTIME, NAME, PREFIX, SIZE, TYPEFLAG, UID,
};

/// The features of an archive.
pub fn features(archive: &[u8]) -> BTreeSet<&'static str> {
    let mut found = BTreeSet::new();
    let mut directories = Vec::new();
    for (at, block) in archive.chunks_exact(BLOCK).enumerate() {
        if !has_sum(block) {
            continue;
        }
        let name = text(&block[NAME]);
        let body = &archive[(at + 1) * BLOCK..];
        match block[TYPEFLAG] {
            b'g' => _ = found.insert("global records"),
            b'V' => _ = found.insert("volume label"),
            b'L' => {
                let long = text(&body[..body.len().min(BLOCK)]);
                if long.ends_with(b"/") {
                    found.insert("slash");
                }
            }
            b'3' | b'4' if !block[MAGIC].starts_with(b"ustar") => {
                found.insert("device in v7");
            }
            b'1' => _ = found.insert("hard link"),
            kind if !b"0\x001234567SDx".contains(&kind) => _ = found.insert("unknown type"),
            b'5' | b'D' => directories.push(name),
            _ => {}
        }
        if block[TYPEFLAG] == b'D' {
            found.insert("dumped directory");
        }
        let is_posix = block[MAGIC].starts_with(b"ustar\0");
        if !is_posix && block[PREFIX.start] != 0 {
            found.insert("prefix of another format");
        }
        if name.ends_with(b"/") {
            found.insert("slash");
        }
        if block[TYPEFLAG] == b'x' {
            of_records(&body[..body.len().min(2 * BLOCK)], &mut found);
        }
        for field in [MODE, UID, GID, SIZE, MTIME] {
            if block[field.start] == 0 && block[field].iter().any(|&byte| byte != 0) {
                found.insert("leading zero byte");
            }
        }
    }
    if directories.len() > 1 {
        found.insert("directory twice");
    }
    found
}

fn of_records(records: &[u8], found: &mut BTreeSet<&'static str>) {
    let has = |part: &[u8]| records.windows(part.len()).any(|window| window == part);
    for (feature, parts) in [
        ("slash", &[&b"/\n"[..]][..]),
        ("negative time", &[b"mtime=-"]),
        ("exponent", &[b"mtime=1e-"]),
        ("sparse", &[b"GNU.sparse."]),
    ] {
        if parts.iter().any(|part| has(part)) {
            found.insert(feature);
        }
    }
}

fn has_sum(block: &[u8]) -> bool {
    let digits = text(&block[CHKSUM]).trim_ascii();
    let digits = std::str::from_utf8(digits).unwrap_or("");
    let plain = block.iter().map(|&byte| u32::from(byte)).sum::<u32>();
    let field = block[CHKSUM]
        .iter()
        .map(|&byte| u32::from(byte))
        .sum::<u32>();
    u32::from_str_radix(digits, 8) == Ok(plain - field + 8 * 32)
}

fn text(field: &[u8]) -> &[u8] {
    field.split(|&byte| byte == 0).next().unwrap_or_default()
}
