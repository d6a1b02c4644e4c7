//! Flags and sizes, each made by mke2fs and by this crate.

use uext4_mkfs::parse_size;

use crate::oracle::{available, check};

/// Length of the device, then the flags.
const CASES: &str = include_str!("cases.txt");

/// The cases above, or those of `UEXT4_MKFS_CASES`: for trying more without touching the list.
fn cases() -> String {
    std::env::var("UEXT4_MKFS_CASES").unwrap_or_else(|_| CASES.to_owned())
}

#[test]
fn images_equal_those_of_mke2fs() {
    if !available() {
        eprintln!("skipped: needs mke2fs 1.47, dumpe2fs and e2fsck");
        return;
    }
    let mut failed = 0;
    for case in cases()
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
    {
        let (len, flags) = case.split_once(' ').unwrap_or((case, ""));
        let len = parse_size("length", len).unwrap().bytes(None).unwrap();
        let found = check(flags, len);
        failed += usize::from(!found.is_empty());
        println!("{} {case}", if found.is_empty() { "ok  " } else { "FAIL" });
        found
            .iter()
            .take(20)
            .for_each(|line| println!("      {line}"));
    }
    assert_eq!(failed, 0, "of the cases above differ");
}
