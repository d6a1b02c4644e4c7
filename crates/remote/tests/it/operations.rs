//! Requests in any order, and bytes that are none.

use std::path::Path;

use serde_bytes::Bytes;
use uext4::data::Fallocate;
use uext4::{Creation, NewInode, SetAttributes};
use uext4_remote::put_mode::{Existing, PutMode};
use uext4_remote::wire::{
    Attribute, Extent, Growth, Kind, Known, NewEntry, Rename, Request, Slot, Source, Time,
};
use uext4_testkit::SplitMix64;

use crate::exercise;

const PATHS: [&[u8]; 8] = [
    b"/",
    b"a",
    b"/a/b",
    b"b/c/d",
    b"",
    b"..",
    b"/a/",
    b"lost+found/x",
];
const NAMES: [&[u8]; 6] = [b"a", b"b", b"..", b"", b"c/d", &[b'n'; 256]];

struct Random(SplitMix64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0.next_u64() % end
    }

    fn slot(&mut self) -> Slot {
        self.below(6) as Slot
    }

    fn path(&mut self) -> &'static Bytes {
        Bytes::new(PATHS[self.below(PATHS.len() as u64) as usize])
    }

    fn name(&mut self) -> &'static Bytes {
        Bytes::new(NAMES[self.below(NAMES.len() as u64) as usize])
    }

    /// Small, or near the ends of what there is.
    fn number(&mut self) -> u64 {
        match self.below(8) {
            0 => u64::MAX - self.below(3),
            1 => (i64::MAX as u64) - self.below(3),
            2 => 1 << 32,
            _ => self.below(30_000),
        }
    }

    fn kind(&mut self) -> Kind<'static> {
        match self.below(6) {
            0 | 1 => NewInode::Directory.into(),
            2 => NewInode::Symlink(PATHS[self.below(8) as usize]).into(),
            3 => NewInode::Fifo.into(),
            _ => NewInode::File.into(),
        }
    }

    fn entry(&mut self) -> NewEntry<'static> {
        let time = || -> Time {
            uext4::Timestamp {
                sec: i64::MAX,
                nsec: u32::MAX,
            }
            .into()
        };
        let data = (0..self.below(3)).map(|_| Extent {
            offset: self.number(),
            len: self.number(),
            at: self.number(),
        });
        let data: Vec<Extent> = data.collect();
        NewEntry {
            dir: self.slot(),
            name: self.name(),
            kind: self.kind(),
            link: (self.below(6) == 0).then(|| Known {
                ino: self.below(24) as u32,
                generation: 0,
            }),
            mode: self.below(1 << 16) as u16,
            uid: self.below(1 << 32) as u32,
            gid: 7,
            atime: time(),
            mtime: time(),
            size: self.number().min(1 << 20),
            xattrs: vec![Attribute {
                name: Bytes::new(b"user.a"),
                value: self.path(),
            }],
            source: match self.below(3) {
                0 => Source::Inline(Bytes::new(&[3; 1000])),
                number => Source::Descriptor(number as u32 - 1),
            },
            data,
            how: PutMode {
                existing: match self.below(3) {
                    0 => Existing::Refuse,
                    1 => Existing::Replace,
                    _ => Existing::Remove,
                },
                whole: self.below(4) == 0,
                like: self.below(8) == 0,
            },
            to: (self.below(2) == 0).then(|| self.slot()),
        }
    }

    fn request(&mut self) -> Request<'static> {
        let how = (&Creation::default()).into();
        match self.below(27) {
            0 | 1 => Request::Open(self.path(), self.below(2) == 0, self.slot()),
            2 => Request::OpenNumber(self.number() as u32 % 32, self.slot()),
            3 => Request::OpenParent(self.path(), self.slot()),
            4 => Request::Lookup(self.slot(), self.name(), self.slot()),
            5 | 6 => Request::Create(self.path(), self.kind(), how, self.slot()),
            7 => Request::CreateAll(self.path(), how, self.slot()),
            8 => Request::CreateUnnamed(self.slot(), self.kind(), how, self.slot()),
            9 if self.below(3) == 0 => {
                Request::CreateUnnamedLike(self.slot(), self.slot(), self.slot())
            }
            9 => Request::LinkOpen(self.slot(), self.slot(), self.name()),
            10 => Request::GiveName(self.slot(), self.slot(), self.name(), self.below(2) == 0),
            11 => Request::Link(self.path(), self.path()),
            12 => Request::Remove(self.path(), self.below(2) == 0),
            13 => Request::Rename(self.path(), self.path(), Rename::Replace),
            14 => Request::Rename(self.path(), self.path(), Rename::Exchange),
            15 | 16 => Request::Put(self.entry()),
            17 => Request::Complete(self.entry()),
            18 => Request::List(self.slot(), self.number()),
            19 => Request::Read(self.slot(), self.number(), self.number() as u32),
            20 => Request::Write(self.slot(), self.number(), self.path()),
            21 => {
                let set = SetAttributes {
                    size: Some(self.number()),
                    mode: Some(self.below(1 << 16) as u16),
                    ..SetAttributes::default()
                };
                Request::Set(self.slot(), (&set).into())
            }
            22 => Request::SetXattr(self.slot(), self.name(), Some(self.path()), false),
            23 => {
                let how = Fallocate::Allocate { keep_size: true };
                Request::Fallocate(self.slot(), how.into(), self.number(), self.number())
            }
            24 => Request::Close(self.slot()),
            25 => Request::Grow(match self.below(3) {
                0 => Growth::To(self.number()),
                1 => Growth::By(self.number()),
                _ => Growth::Device,
            }),
            _ => Request::Xattrs(self.slot()),
        }
    }
}

fn rounds(quick: u64) -> u64 {
    match std::env::var_os("UEXT4_LONG") {
        Some(_) => quick * 100,
        None => quick,
    }
}

#[test]
fn requests_in_any_order_leave_a_clean_image() {
    for seed in 0..rounds(60) {
        let mut random = Random(SplitMix64::new(seed));
        let frames: Vec<Vec<u8>> = (0..8)
            .map(|_| {
                let requests = (0..random.below(30)).map(|_| random.request());
                let requests: Vec<Request<'_>> = requests.collect();
                let extend = |bytes, request| postcard::to_extend(request, bytes).unwrap();
                requests.iter().fold(Vec::new(), extend)
            })
            .collect();
        let device = exercise::exercise(frames.iter().map(Vec::as_slice));
        let found = uext4_fsck::findings(&device).unwrap();
        assert!(found.is_empty(), "seed {seed}: {found:?}");
    }
}

#[test]
fn bytes_that_are_no_request_end_only_their_connection() {
    let mut random = SplitMix64::new(11);
    for _ in 0..rounds(300) {
        let len = random.next_u64() % 200;
        let bytes: Vec<u8> = (0..len)
            .map(|_| match random.next_u64() % 3 {
                0 => random.next_u64() as u8,
                // The numbers of the requests.
                _ => (random.next_u64() % 33) as u8,
            })
            .collect();
        let device = exercise::exercise([bytes.as_slice()]);
        let found = uext4_fsck::findings(&device).unwrap();
        assert!(found.is_empty(), "{bytes:?}: {found:?}");
    }
}

#[test]
fn operations_that_the_fuzzer_is_given() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus-regressions");
    let cases: Vec<_> = std::fs::read_dir(root.join("operations"))
        .unwrap()
        .collect();
    assert!(!cases.is_empty());
    for case in cases {
        let bytes = std::fs::read(case.unwrap().path()).unwrap();
        exercise::exercise(bytes.split(|byte| *byte == 0xFF));
    }
}
