//! Contents of streams until the image is written, where they cannot go there at once: in memory,
//! and from a limit on in a file without a name.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::error::Error;

static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

/// All contents, end to end.
#[derive(Debug)]
pub struct Spool {
    dir: PathBuf,
    /// Bytes in memory at most.
    most: usize,
    memory: Vec<u8>,
    /// What did not fit into memory, once there is such.
    file: Option<File>,
    len: u64,
}

impl Spool {
    /// An empty one, of which so many bytes are in memory at most; its file will be made in `dir`.
    pub fn new(dir: &Path, most: usize) -> Self {
        Self {
            most,
            dir: dir.to_path_buf(),
            memory: Vec::new(),
            file: None,
            len: 0,
        }
    }

    /// Bytes in it.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// [`Error::Spool`] if there is no room for the file.
    pub fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let room = self.most.saturating_sub(self.memory.len());
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        self.memory.extend_from_slice(first);
        self.append(rest).map_err(|source| Error::Spool {
            dir: self.dir.clone(),
            source,
        })?;
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Appends zeroes.
    ///
    /// # Errors
    /// As [`Spool::put`].
    pub fn zeroes(&mut self, len: u64) -> Result<(), Error> {
        let mut left = len;
        while left > 0 {
            let part = left.min(ZEROES.len() as u64);
            self.put(ZEROES.get(..part as usize).unwrap_or(&ZEROES))?;
            left -= part;
        }
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(tempfile::tempfile_in(&self.dir)?),
        };
        file.write_all(bytes)
    }

    /// Fills `buf` from `at` on.
    ///
    /// # Errors
    /// What reading says; the end of what was put is an early end of file.
    pub fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        let from = usize::try_from(at).map_or(self.memory.len(), |at| at.min(self.memory.len()));
        let in_memory = self.memory.len().saturating_sub(from).min(buf.len());
        let (first, rest) = buf.split_at_mut(in_memory);
        first.copy_from_slice(&self.memory[from..from + in_memory]);
        if rest.is_empty() {
            return Ok(());
        }
        let file = self.file.as_ref().ok_or(io::ErrorKind::UnexpectedEof)?;
        let offset = at.saturating_add(in_memory as u64);
        file.read_exact_at(rest, offset.saturating_sub(self.memory.len() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY_MAX: usize = 3 << 20;

    #[test]
    fn bytes_are_read_back_across_the_end_of_memory() {
        let mut spool = Spool::new(&std::env::temp_dir(), MEMORY_MAX);
        let piece: Vec<u8> = (0..1 << 20)
            .map(|i: u32| (i >> 8) as u8 ^ i as u8)
            .collect();
        for _ in 0..MEMORY_MAX / piece.len() + 2 {
            spool.put(&piece).unwrap();
        }
        let mut got = vec![0; 3 << 20];
        let at = MEMORY_MAX as u64 - (1 << 20) - 7;
        spool.read_exact_at(&mut got, at).unwrap();
        let want = |i: usize| piece[(at as usize + i) % piece.len()];
        assert!(got.iter().enumerate().all(|(i, &byte)| byte == want(i)));
        let past = spool.read_exact_at(&mut got, spool.len() - 1).unwrap_err();
        assert_eq!(past.kind(), io::ErrorKind::UnexpectedEof);
    }
}
