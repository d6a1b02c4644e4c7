//! Streams of every format, whole and damaged.

use super::*;
use std::io::Write;

fn noise(len: usize) -> Vec<u8> {
    let mut state = 1u32;
    let step = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // Compressible, but not to nothing.
        (state >> 28) as u8
    };
    (0..len).map(step).collect()
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

fn xz(data: &[u8]) -> Vec<u8> {
    let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 0);
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

fn stream(input: impl Read + Send + 'static) -> Stream {
    Stream {
        input: Box::new(input),
        path: "in".into(),
        check: None,
        ahead: 2 * PIECE,
        ratio: 1000,
        memory: 80 << 20,
    }
}

fn chunks(compressed: Vec<u8>) -> Chunks {
    Chunks::start(stream(io::Cursor::new(compressed))).unwrap()
}

/// Everything, or the error that came after some of it.
fn read_all(chunks: &mut Chunks) -> (Vec<u8>, Option<Error>) {
    let mut all = Vec::new();
    loop {
        match chunks.take(300_000) {
            Ok(slice) if slice.is_empty() => return (all, None),
            Ok(slice) => all.extend_from_slice(&slice),
            Err(error) => return (all, Some(error)),
        }
    }
}

fn bzip2(data: &[u8]) -> Vec<u8> {
    let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn every_format_in_several_members() {
    let data = noise(3 * PIECE + 17);
    let (a, b) = data.split_at(PIECE + 5);
    let skippable = [0x50, 0x2A, 0x4D, 0x18, 3, 0, 0, 0, 1, 2, 3];
    let zstd = |data| zstd::encode_all(data, 1).unwrap();
    for compressed in [
        data.clone(),
        [gzip(a), gzip(b)].concat(),
        [xz(a), xz(b)].concat(),
        [bzip2(a), bzip2(b)].concat(),
        [&skippable[..], &zstd(a), &zstd(b)].concat(),
    ] {
        let mut chunks = chunks(compressed);
        let (got, error) = read_all(&mut chunks);
        assert!(error.is_none() && got == data);
        chunks.finish().unwrap();
    }
}

#[test]
fn zeroes_behind_the_last_member_are_read_over_and_rubbish_is_named() {
    let data = noise(PIECE + 12345);
    for (name, compressed) in [("gzip", gzip(&data)), ("bzip2", bzip2(&data))] {
        let padded = [&compressed[..], &[0; 100_000]].concat();
        let (all, error) = read_all(&mut chunks(padded.clone()));
        assert!(error.is_none(), "{name}: {error:?}");
        assert!(all == data);
        for rubbish in [&b"rubbish"[..], &compressed] {
            let (all, error) = read_all(&mut chunks([&padded[..], rubbish].concat()));
            assert!(all == data);
            let said = error.unwrap().to_string();
            assert!(
                said.contains(name) && said.contains("rubbish behind"),
                "{said}"
            );
        }
    }
}

#[test]
fn what_came_before_the_damage_can_be_read() {
    let data = noise(3 * PIECE);
    for whole in [
        gzip(&data),
        xz(&data),
        zstd::encode_all(&data[..], 1).unwrap(),
    ] {
        let mut chunks = chunks(whole[..whole.len() * 2 / 3].to_vec());
        let (got, error) = read_all(&mut chunks);
        assert!(got.len() >= PIECE && data.starts_with(&got));
        assert!(matches!(error, Some(Error::Decompress { .. })), "{error:?}");
    }
}

#[test]
fn a_wrong_checksum_is_found_at_the_end() {
    let mut whole = gzip(&noise(5000));
    let at = whole.len() - 5;
    whole[at] ^= 1;
    let mut chunks = chunks(whole);
    assert_eq!(chunks.take(1000).unwrap().len(), 1000);
    assert!(chunks.finish().is_err());
}

#[test]
fn an_endless_input_is_left() {
    let mut chunks = Chunks::start(stream(io::repeat(b'x'))).unwrap();
    assert_eq!(chunks.take(10).unwrap().len(), 10);
    chunks.finish().unwrap();
}

#[test]
fn a_check_sees_all_bytes_and_its_verdict_counts() {
    struct Count(u64);
    impl Check for Count {
        fn update(&mut self, bytes: &[u8]) {
            self.0 += bytes.len() as u64;
        }

        fn finish(self: Box<Self>) -> Result<(), Error> {
            let limit = self.0;
            Err(Error::TooMany {
                what: "bytes seen",
                limit,
            })
        }
    }
    let data = noise(2 * PIECE + 5);
    let checked = Stream {
        check: Some(Box::new(Count(0))),
        ..stream(io::Cursor::new(gzip(&data)))
    };
    let mut chunks = Chunks::start(checked).unwrap();
    assert_eq!(chunks.take(5).unwrap().len(), 5);
    let error = chunks.finish().unwrap_err();
    assert!(matches!(error, Error::TooMany { limit, .. } if limit == data.len() as u64));
}

#[test]
fn far_more_than_went_in_is_refused() {
    struct Counted(u64);
    impl Read for Counted {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            let len = usize::try_from(self.0).unwrap().min(buf.len());
            buf[..len].fill(0);
            self.0 -= len as u64;
            Ok(len)
        }
    }
    let len = limits::RATIO_FROM + (64 << 20);
    let bomb = zstd::encode_all(Counted(len), 1).unwrap();
    let limited = Stream {
        ratio: 10,
        ..stream(io::Cursor::new(bomb))
    };
    let mut chunks = Chunks::start(limited).unwrap();
    let error = loop {
        match chunks.take(u64::MAX) {
            Ok(slice) if slice.is_empty() => break None,
            Ok(_) => {}
            Err(error) => break Some(error),
        }
    };
    assert!(
        matches!(error, Some(Error::Bomb { ratio: 10, .. })),
        "{error:?}"
    );
}

#[test]
fn a_dictionary_beyond_the_limit_is_refused() {
    let mut options = liblzma::stream::LzmaOptions::new_preset(0).unwrap();
    options.dict_size(256 << 20);
    let mut filters = liblzma::stream::Filters::new();
    filters.lzma2(&options);
    let check = liblzma::stream::Check::Crc32;
    let stream = liblzma::stream::Stream::new_stream_encoder(&filters, check).unwrap();
    let mut encoder = liblzma::write::XzEncoder::new_stream(Vec::new(), stream);
    encoder.write_all(b"small").unwrap();
    let mut chunks = chunks(encoder.finish().unwrap());
    assert!(matches!(
        chunks.peek(),
        Err(Error::DecompressorMemory {
            format: "xz",
            limit: 0x500_0000,
            ..
        })
    ));
}

#[test]
fn a_window_beyond_the_limit_is_refused() {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.window_log(27).unwrap();
    encoder.write_all(&noise(9 << 20)).unwrap();
    let compressed = encoder.finish().unwrap();
    let read = |memory| {
        let limited = Stream {
            memory,
            ..stream(io::Cursor::new(compressed.clone()))
        };
        read_all(&mut Chunks::start(limited).unwrap())
    };
    let (all, error) = read(128 << 20);
    assert!(error.is_none() && all.len() == 9 << 20);
    let (all, error) = read(100 << 20);
    let memory_is_named = matches!(
        error,
        Some(Error::DecompressorMemory {
            format: "zstd",
            limit: 0x640_0000,
            ..
        })
    );
    assert!(all.is_empty() && memory_is_named, "{error:?}");
}

#[test]
fn decompressors_that_run_side_by_side_share_the_memory() {
    let limits = |mib: u64| limits::Limits {
        memory: mib << 20,
        ..Default::default()
    };
    for mib in [16, 50, 65, 128, 300, 512] {
        let limits = limits(mib);
        for processors in [1, 2, 64] {
            let count = limits.side_by_side(processors);
            assert!((1..=processors).contains(&count));
            let all = limits.decompressor(count) * count as u64;
            assert!(all <= limits.memory * 5 / 4, "{mib} MiB");
        }
    }
    // What compressors use at most, where there is memory for it.
    let count = limits(512).side_by_side(64);
    assert_eq!((count, limits(512).decompressor(count)), (4, 128 << 20));
}
