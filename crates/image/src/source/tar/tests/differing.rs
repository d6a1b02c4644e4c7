//! What readers of tar take differently: read as GNU tar does, or refused.

use super::*;

/// The error of one member, a file of no contents named "f", after these records.
fn error_of(records: &[(&str, &[u8])]) -> String {
    Hand::new()
        .pax(records)
        .member(b'0', "f", b"")
        .end()
        .error()
}

#[test]
fn a_second_header_of_one_kind_is_refused() {
    let records = records_of(&[("mtime", b"1")]);
    for (kind, body) in [(b'x', &records[..]), (b'L', b"name\0"), (b'K', b"to\0")] {
        let hand = Hand::new()
            .member(kind, "r", body)
            .member(kind, "r", body)
            .member(b'2', "f", b"")
            .end();
        let error = hand.error();
        assert!(error.contains("byte 1024"), "{error}");
        assert!(
            error.contains("a second one for the same member"),
            "{error}"
        );
    }
}

#[test]
fn a_name_said_twice_must_be_the_same() {
    let both = |record: &[u8]| {
        Hand::new()
            .pax(&[("path", record)])
            .member(b'L', "r", b"name\0")
            .member(b'0', "f", b"")
            .end()
    };
    assert!(both(b"name").seen().contains_key("name"));
    assert!(both(b"other").error().contains("says something else"));
}

#[test]
fn a_global_header_holds_for_a_member_whose_own_header_stands_before_it() {
    let global = records_of(&[("uid", b"7"), ("gid", b"8")]);
    let hand = Hand::new()
        .pax(&[("uid", b"9")])
        .member(b'g', "global", &global)
        .member(b'0', "f", b"")
        .end();
    assert_eq!(hand.seen()["f"].owner, (9, 8));
}

#[test]
fn global_headers_that_readers_take_differently_are_refused() {
    let global = |all: &[&[(&str, &[u8])]]| {
        let add = |hand: Hand, records: &&[(&str, &[u8])]| {
            hand.member(b'g', "global", &records_of(records))
        };
        let hand = all.iter().fold(Hand::new(), add);
        hand.member(b'0', "f", b"").end()
    };
    for (all, part) in [
        (
            &[&[("path", &b"x"[..])][..]][..],
            "the same name, size or holes",
        ),
        (&[&[("size", b"0")]], "the same name, size or holes"),
        (
            &[&[("GNU.sparse.size", b"0")]],
            "the same name, size or holes",
        ),
        (
            &[&[("uid", b"1"), ("uid", b"2")]],
            "it says something twice",
        ),
        (
            &[&[("uid", b"1")], &[("gid", b"2")]],
            "leaves out what an earlier one says",
        ),
    ] {
        let error = global(all).error();
        assert!(error.contains(part), "{error}");
    }
    let seen = global(&[&[("uid", b"1")], &[("uid", b"3")]]).seen();
    assert_eq!(seen["f"].owner.0, 3);
}

#[test]
fn what_stands_before_a_label_is_about_the_label() {
    let hand = Hand::new()
        .member(b'L', "r", b"label\0")
        .pax(&[("uid", b"9")])
        .member(b'V', "v", b"")
        .member(b'0', "f", b"")
        .end();
    assert_eq!(hand.seen()["f"].owner.0, 1000);
}

#[test]
fn sizes_in_records_of_what_has_no_contents_are_refused() {
    let inner = Hand::new().member(b'0', "hidden", b"").0;
    for (kind, part) in [
        (b'5', "no contents"),
        (b'2', "no contents"),
        (b'1', "hard link"),
    ] {
        let to_a = |block: &mut [u8]| block[157] = b'a';
        let hand = Hand::new()
            .member(b'0', "a", b"")
            .pax(&[("size", b"512")])
            .changed(kind, "b", 0, &inner, to_a)
            .end();
        let error = hand.error();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn the_size_of_a_record_counts_for_a_file_whose_header_says_zero() {
    let inner = Hand::new().member(b'0', "hidden", b"").0;
    let hand = Hand::new()
        .pax(&[("size", b"512")])
        .changed(b'0', "outer", 0, &inner, |_| {})
        .end();
    let seen = hand.seen();
    assert_eq!(
        (seen["outer"].size, seen.contains_key("hidden")),
        (512, false)
    );
}

#[test]
fn files_with_contents_whose_names_end_in_a_slash_are_refused() {
    for kind in [0, b'0', b'7', b'Z'] {
        let error = Hand::new().member(kind, "d/", b"data").end().error();
        assert!(error.contains("ends in a slash"), "{error}");
    }
    let seen = Hand::new().member(b'7', "d/", b"").end().seen();
    assert_eq!(seen["d"].kind, FileType::Directory);
    let map = [("GNU.sparse.size", &b"0"[..]), ("GNU.sparse.map", b"0,0")];
    let sparse = Hand::new().pax(&map).member(b'0', "d/", b"").end();
    assert!(sparse.error().contains("a sparse file whose name ends"));
}

#[test]
fn owners_that_system_calls_take_for_none_are_refused() {
    assert!(error_of(&[("uid", b"4294967295")]).contains("out of range"));
    let largest = |block: &mut [u8]| block[116..124].copy_from_slice(b"\x80\0\0\0\xFF\xFF\xFF\xFF");
    let hand = Hand::new().changed(b'0', "f", 0, b"", largest).end();
    assert!(hand.error().contains("gid in the header: out of range"));
}

#[test]
fn numbers_are_read_even_if_a_record_overrides_them() {
    let letters = |block: &mut [u8]| block[108..116].copy_from_slice(b"owner\0\0\0");
    let hand = Hand::new()
        .pax(&[("uid", b"9")])
        .changed(b'0', "f", 0, b"", letters)
        .end();
    assert!(
        hand.error()
            .contains("uid in the header: not an octal number")
    );
}

#[test]
fn devices_in_v7_headers_have_no_number() {
    let v7 = |block: &mut [u8]| {
        block[257..265].fill(0);
        block[329..337].copy_from_slice(b"0000010\0");
    };
    let seen = Hand::new().changed(b'3', "c", 0, b"", v7).end().seen();
    assert_eq!(seen["c"].device, Some((0, 0)));
}
