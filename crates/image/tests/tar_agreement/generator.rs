//! Archives from a seed: members of every kind in every format, extended headers in every order,
//! and damage.

use uext4_image::ustar::{BLOCK, DEVMAJOR, DEVMINOR, GID, MODE, MTIME, SIZE, UID};
use uext4_testkit::SplitMix64;

use crate::archive::{Archive, Format, Header, Number, put_sum, record};
use crate::sparse;

/// An archive, and what is special about it.
pub struct Case {
    pub number: u64,
    pub bytes: Vec<u8>,
    /// What the generator put in, for a reader of a failure.
    pub steps: Vec<&'static str>,
}

impl Case {
    /// The archive of a number, always the same.
    pub fn new(number: u64) -> Self {
        let mut generator = Generator {
            random: SplitMix64::new(0x7461_7200 + number),
            archive: Archive::default(),
            steps: Vec::new(),
        };
        for _ in 0..1 + generator.random.below(5) {
            generator.part();
        }
        generator.end();
        if generator.one_in(3) {
            generator.damage();
        }
        Self {
            number,
            bytes: generator.archive.0,
            steps: generator.steps,
        }
    }
}

const NAMES: &[&[u8]] = &[
    b"a",
    b"b",
    b"c",
    b"a",
    b"b",
    b"d",
    b"d/",
    b"d/a",
    b"d/b",
    b"d/e/",
    b"d/e/f",
    b"./a",
    b"./d/",
    b"/a",
    b"/abs/x",
    b"d//x",
    b"./",
    b"l",
    b"l/x",
    b"x/y/z/w",
    b"\xC3\xBC",
    b"\xFF\xFE",
    b"v/",
    b"sp ace",
    b"d/./q",
    b"a/under",
];
const TARGETS: &[&[u8]] = &[
    b"a", b"b", b"d", b"d/a", b"./a", b"/a", b"nowhere", b"a", b"c",
];
const KINDS: &[u8] = b"000000000\x00\x005555222111134677ZDV";
const LENGTHS: &[usize] = &[0, 0, 1, 511, 512, 513, 1000, 1024, 3000];

pub struct Generator {
    pub random: SplitMix64,
    pub archive: Archive,
    pub steps: Vec<&'static str>,
}

impl Generator {
    pub fn one_in(&mut self, bound: u64) -> bool {
        self.random.below(bound) == 0
    }

    pub fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.random.index(list.len())]
    }

    pub fn step(&mut self, step: &'static str) {
        self.steps.push(step);
    }

    fn format(&mut self) -> Format {
        self.pick(&[Format::Posix, Format::Posix, Format::Gnu, Format::V7])
    }

    pub fn name(&mut self) -> Vec<u8> {
        match self.random.below(40) {
            0 => [&[b'n'; 120][..], b"/", &[b'm'; 200]].concat(),
            1 => [b'o'; 100].to_vec(),
            2 => [b'p'; 256].to_vec(),
            3 => b"d/../a".to_vec(),
            4 => Vec::new(),
            _ => self.pick(NAMES).to_vec(),
        }
    }

    /// Contents; some look like a header, as in an archive inside an archive.
    pub fn contents(&mut self) -> Vec<u8> {
        if self.one_in(4) {
            self.step("nested");
            let mut nested = Archive::default();
            let name = self.pick(&[&b"nested"[..], b"a", b"d/b"]);
            nested.sized(Header::new(Format::Posix, b'0', name), b"from within");
            return nested.0;
        }
        let len = self.pick(LENGTHS);
        let first = self.random.below(200) as u8;
        (0..len)
            .map(|i| first.wrapping_add((i % 53) as u8))
            .collect()
    }

    fn part(&mut self) {
        match self.random.below(12) {
            0..=5 => self.plain(),
            6..=8 => self.extended(),
            9 => self.sized_by_record(),
            10 => self.hard_link(),
            _ => sparse::part(self),
        }
    }

    /// A number for a field, mostly one that every reader knows.
    fn number(&mut self, value: u64) -> Number {
        match self.random.below(60) {
            0..=4 => Number::Spaces(value),
            5..=9 => Number::Base256(i128::from(value)),
            10 => Number::Raw(b""),
            11 => Number::Raw(b"       "),
            12 => Number::Base256(-5),
            13 => Number::Base256(1 << 33),
            14 => Number::Base256(i128::from(u64::MAX) << 4),
            15 => {
                let odd = [
                    &b"-000001"[..],
                    b"0000089",
                    b"12 34",
                    b"12x4",
                    b"0x1f",
                    b"\x00123",
                ];
                Number::Raw(self.pick(&odd))
            }
            _ => Number::Octal(value),
        }
    }

    pub fn attributes(&mut self, header: &mut Header) {
        let mode = self.pick(&[0o644, 0o755, 0o4755, 0o1777, 0, 0o10_0640, 0o4_0755]);
        let id = [0, 0, 1000, 65534, 70_000, 2_097_151];
        let times = [0, 1, 1_234_567_890, 1_700_000_000, 0o17_777_777_777];
        for (field, value) in [
            (MODE, mode),
            (UID, self.pick(&id)),
            (GID, self.pick(&id)),
            (MTIME, self.pick(&times)),
        ] {
            let number = self.number(value);
            header.number(field, number);
        }
        if self.one_in(60) {
            header.number(
                UID,
                Number::Base256(self.pick(&[0xFFFF_FFFE, 0xFFFF_FFFF, 1 << 32])),
            );
        }
    }

    /// A header with a name, a kind, attributes and what the kind needs.
    fn header(&mut self) -> Header {
        let (format, kind, name) = (self.format(), self.pick(KINDS), self.name());
        let mut header = Header::new(format, kind, &name);
        self.attributes(&mut header);
        if matches!(kind, b'1' | b'2') || self.one_in(30) {
            let target = self.pick(TARGETS);
            header.link(target);
        }
        if matches!(kind, b'3' | b'4') {
            let major = self.pick(&[1, 259, 7]);
            header.number(DEVMAJOR, Number::Octal(major));
            header.number(DEVMINOR, Number::Octal(major + 3));
        }
        if format != Format::V7 && self.one_in(8) {
            self.step("prefix");
            let prefix = self.pick(&[&b"pre"[..], b"d", b"d/e/", b"/pre", b"."]);
            header.prefix(prefix);
        }
        header
    }

    /// The member that extended headers, if any, speak of.
    fn plain(&mut self) {
        let mut header = self.header();
        let kind = header.0[156];
        let contents = match kind {
            b'0' | 0 | b'7' | b'Z' | b'D' => self.contents(),
            _ => Vec::new(),
        };
        if self.one_in(30) {
            self.step("size number");
            header.size(contents.len() as u64);
            let number = self.number(contents.len() as u64);
            header.number(SIZE, number);
            return self.archive.member(header, &contents);
        }
        if contents.is_empty() && self.one_in(12) {
            self.step("size without contents");
            let size = self.pick(&[1, 512, 700]);
            header.size(size);
            return self.archive.member(header, &contents);
        }
        self.archive.sized(header, &contents);
    }

    /// Up to four extended headers in any order, and the member.
    fn extended(&mut self) {
        for _ in 0..1 + self.random.below(4) {
            match self.random.below(8) {
                0..=3 => {
                    self.step("x");
                    let records = self.records();
                    self.archive.records(b'x', &records);
                }
                4 => {
                    self.step("g");
                    let records = self.records();
                    self.archive.records(b'g', &records);
                }
                5 | 6 => {
                    self.step("L");
                    let name = self.name();
                    self.archive.long(b'L', &name);
                }
                _ => {
                    self.step("K");
                    let target = self.pick(TARGETS);
                    self.archive.long(b'K', target);
                }
            }
        }
        if !self.one_in(25) {
            self.plain();
        }
    }

    fn records(&mut self) -> Vec<u8> {
        let mut records = Vec::new();
        for _ in 0..self.random.below(4) {
            let (key, value): (&str, Vec<u8>) = match self.random.below(16) {
                0..=2 => ("path", self.name()),
                3 => ("linkpath", self.pick(TARGETS).to_vec()),
                4 => ("uid", self.decimal()),
                5 => ("gid", self.decimal()),
                6 | 7 => {
                    let times = [
                        &b"1234567890.5"[..],
                        b"-1.5",
                        b"7",
                        b"-2",
                        b"0.000000001",
                        b"1e3",
                        b"1e-09",
                        b"1.",
                        b".5",
                        b"",
                        b"99999999999999999999",
                        b"+5",
                        b"x",
                        b"-0.5",
                    ];
                    ("mtime", self.pick(&times).to_vec())
                }
                8 => (
                    "size",
                    self.pick(&[&b"0"[..], b"", b"11", b"512", b"-1"]).to_vec(),
                ),
                9 => ("uname", b"daemon".to_vec()),
                10 => ("comment", b"a=b\nc".to_vec()),
                11 => ("VENDOR.unknown", b"\0\xFF".to_vec()),
                12 => ("SCHILY.xattr.user.x", b"v".to_vec()),
                13 => ("GNU.sparse.name", self.name()),
                14 => ("path", self.pick(&[&b""[..], b"a\0b", b"/"]).to_vec()),
                _ => ("hdrcharset", self.pick(&[&b"BINARY"[..], b""]).to_vec()),
            };
            records.extend_from_slice(&record(key, &value));
        }
        if self.one_in(20) {
            self.step("bad record");
            let bad = [
                &b"5 a=b\n"[..],
                b"x a=b\n",
                b"99 a=b\n",
                b"0 a=b\n",
                b"6 abc\n",
                b"6 a=b ",
                b"\n",
                b"06 a=b\n",
                b" 7 a=b\n",
                b"4 =\n",
                b"5 =v\n",
                b"+6 a=b\n",
                b"\0\0\0",
            ];
            records.extend_from_slice(self.pick(&bad));
        }
        records
    }

    fn decimal(&mut self) -> Vec<u8> {
        let numbers = [
            &b"0"[..],
            b"1000",
            b"2097152",
            b"4294967294",
            b"4294967295",
            b"4294967296",
            b"",
            b"-1",
            b"12x",
            b"010",
            b" 5",
            b"+7",
        ];
        let at = match self.one_in(2) {
            true => self.random.index(4),
            false => self.random.index(numbers.len()),
        };
        numbers[at].to_vec()
    }

    /// The size stands in a record; the header says zero, or something else.
    fn sized_by_record(&mut self) {
        self.step("size in x");
        let contents = self.contents();
        let mut header = self.header();
        let size = record("size", contents.len().to_string().as_bytes());
        let global = self.one_in(6);
        let claimed = self.pick(&[0, 0, contents.len() as u64, 512]);
        header.size(claimed);
        if self.one_in(4) {
            let name = self.name();
            self.archive.long(b'L', &name);
        }
        self.archive
            .records(if global { b'g' } else { b'x' }, &size);
        if self.one_in(3) {
            self.step("L between x and member");
            let name = self.name();
            self.archive.long(b'L', &name);
        }
        self.archive.member(header, &contents);
    }

    /// A file and a link to it, with and without contents.
    fn hard_link(&mut self) {
        let (format, name) = (self.format(), self.pick(&[&b"a"[..], b"h", b"d/h"]));
        let contents = self.contents();
        if !self.one_in(5) {
            self.archive
                .sized(Header::new(format, b'0', name), &contents);
        }
        let link_name = self.name();
        let mut link = Header::new(format, b'1', &link_name);
        link.link(name);
        match self.random.below(4) {
            0 => {
                self.step("link with contents");
                self.archive.sized(link, &contents);
            }
            1 => {
                self.step("link with a size alone");
                link.size(contents.len() as u64);
                self.archive.member(link, b"");
            }
            2 => {
                self.step("link with a size record");
                let size = record("size", contents.len().to_string().as_bytes());
                self.archive.records(b'x', &size);
                self.archive.member(link, &contents);
            }
            _ => self.archive.member(link, b""),
        }
    }

    fn end(&mut self) {
        match self.random.below(14) {
            0 => self.step("no end"),
            1 => {
                self.step("one zero block");
                self.archive.zeroes(1);
            }
            2 => {
                self.step("lone zero block");
                self.archive.zeroes(1);
                self.plain();
                self.archive.zeroes(2);
            }
            3 => {
                self.step("garbage after the end");
                self.archive.zeroes(2);
                self.archive.0.extend_from_slice(&[b'g'; 1000]);
            }
            4 => {
                self.step("members after the end");
                self.archive.zeroes(2);
                self.plain();
                self.archive.zeroes(2);
            }
            5 => {
                self.archive.zeroes(2);
                let len = self.archive.0.len().next_multiple_of(20 * BLOCK);
                self.archive.0.resize(len, 0);
            }
            _ => self.archive.zeroes(2),
        }
    }

    fn damage(&mut self) {
        let len = self.archive.0.len();
        match self.random.below(6) {
            0 => {
                self.step("cut");
                let at = self.random.index(len);
                self.archive.0.truncate(at);
            }
            1 => {
                self.step("cut between blocks");
                let at = self.random.index(len / BLOCK + 1) * BLOCK;
                self.archive.0.truncate(at);
            }
            2 => {
                self.step("byte");
                let at = self.random.index(len);
                self.archive.0[at] = self.random.next_u64() as u8;
            }
            3 => {
                self.step("blocks lost");
                let at = self.random.index(len / BLOCK) * BLOCK;
                self.archive.0.drain(at..at + BLOCK);
            }
            _ => {
                self.step("byte, with the sum made right");
                let at = self.random.index(len / BLOCK) * BLOCK;
                let within = self.random.index(BLOCK);
                let value = match self.one_in(2) {
                    true => b'0' + self.random.below(8) as u8,
                    false => self.random.next_u64() as u8,
                };
                self.archive.0[at + within] = value;
                put_sum(&mut self.archive.0[at..at + BLOCK]);
            }
        }
    }
}
