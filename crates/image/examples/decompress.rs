//! Decompresses files next to each other and throws the result away: what building an image of
//! them is compared with (`scripts/bench-images`).
//!
//! ```text
//! cargo run --release -p uext4-image --example decompress -- layer1.tar.gz layer2.tar.zst
//! ```

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::sync::Mutex;
use std::thread;

fn decompress(path: &str) -> io::Result<u64> {
    let mut start = [0; 4];
    File::open(path)?.read_exact(&mut start)?;
    let file = BufReader::with_capacity(256 << 10, File::open(path)?);
    let mut decoder: Box<dyn Read> = match start {
        [0x1F, 0x8B, ..] => Box::new(flate2::bufread::MultiGzDecoder::new(file)),
        [0x28, 0xB5, 0x2F, 0xFD] => Box::new(zstd::Decoder::with_buffer(file)?),
        _ => Box::new(file),
    };
    let mut piece = vec![0; 1 << 20];
    let mut all = 0;
    loop {
        match decoder.read(&mut piece)? {
            0 => return Ok(all),
            len => all += len as u64,
        }
    }
}

fn main() -> io::Result<()> {
    let files = Mutex::new(std::env::args().skip(1).collect::<Vec<_>>().into_iter());
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let next = || files.lock().ok().and_then(|mut files| files.next());
    let work = || -> io::Result<u64> {
        let mut all = 0;
        while let Some(path) = next() {
            all += decompress(&path)?;
        }
        Ok(all)
    };
    let all = thread::scope(|scope| -> io::Result<u64> {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut all = 0;
        for thread in running {
            all += thread
                .join()
                .map_err(|_| io::Error::other("a thread failed"))??;
        }
        Ok(all)
    })?;
    println!("{all} bytes");
    Ok(())
}
