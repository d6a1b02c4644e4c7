//! Directory hashes against debugfs' `dx_hash`.

use uext4_ondisk::hash::{CharSign, DirHash, HashVersion, hash_name};
use uext4_testkit::{debugfs_script, has_tool};

const SEED_UUID: &str = "5d3a1c07-9be2-44f1-8a60-0123456789ab";
const SEED: [u32; 4] = [0x071C_3A5D, 0xF144_E29B, 0x2301_608A, 0xAB89_6745];

/// Names of every length, of letters and of bytes from 0x80 up.
fn names() -> Vec<Vec<u8>> {
    let mut state = 1u32;
    let mut byte = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    let mut names = vec![b"a".to_vec(), "größer".into(), "日本語.txt".into()];
    for len in 1..=255usize {
        names.push((0..len).map(|_| b'a' + byte() % 26).collect());
        names.push((0..len).map(|_| 0x80 | byte()).collect());
    }
    names
}

/// The two numbers of "Hash of NAME is 0x… (minor 0x…)".
fn parse_answer(line: &[u8]) -> Option<DirHash> {
    let text = String::from_utf8_lossy(line);
    let (hash, minor) = text.rsplit_once(" is 0x")?.1.split_once(" (minor 0x")?;
    Some(DirHash {
        hash: u32::from_str_radix(hash, 16).ok()?,
        minor_hash: u32::from_str_radix(minor.trim_end_matches(')'), 16).ok()?,
    })
}

#[test]
fn same_as_debugfs() {
    if !has_tool("debugfs") {
        return;
    }
    let names = names();
    for code in 0..6u8 {
        let version = HashVersion::from_disk(code, CharSign::Signed).unwrap();
        for (seed, option) in [([0; 4], String::new()), (SEED, format!("-s {SEED_UUID} "))] {
            let script: Vec<u8> = names
                .iter()
                .flat_map(|name| {
                    let head = format!("dx_hash -h {code} {option}");
                    [head.as_bytes(), name, b"\n"].concat()
                })
                .collect();
            let answers: Vec<_> = debugfs_script(&script, None)
                .split(|&b| b == b'\n')
                .filter_map(parse_answer)
                .collect();
            assert_eq!(answers.len(), names.len());
            for (name, answer) in names.iter().zip(answers) {
                let ours = hash_name(version, seed, name);
                assert_eq!(ours, answer, "{version:?} of {:?}", name.escape_ascii());
            }
        }
    }
}
