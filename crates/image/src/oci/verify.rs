//! Compares the size and the digest of bytes that pass with those that are expected.

use std::io::{self, Read};
use std::sync::Arc;

use super::digest::{Digest, Hasher};
use super::error::{Error, Fault, Part};

/// Hashes bytes as they come and compares at the end. Belongs to no thread.
#[derive(Clone, Debug)]
pub struct Verifier {
    image: Arc<str>,
    part: Part,
    expected: Digest,
    /// Bytes expected, if that is known.
    size: Option<u64>,
    hasher: Hasher,
    /// Bytes so far.
    len: u64,
}

impl Verifier {
    pub(super) fn new(image: &Arc<str>, part: Part, expected: &Digest, size: Option<u64>) -> Self {
        Self {
            image: Arc::clone(image),
            part,
            expected: expected.clone(),
            size,
            hasher: Hasher::new(expected.algorithm()),
            len: 0,
        }
    }

    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.len = self.len.saturating_add(bytes.len() as u64);
    }

    /// All bytes have come.
    ///
    /// # Errors
    /// [`Fault::Size`] if they are more or fewer than expected, [`Fault::Mismatch`] if their
    /// digest is another one.
    pub fn finish(self) -> Result<(), Error> {
        let image = Arc::clone(&self.image);
        self.compare().map_err(|fault| fault.of(&image))
    }

    pub(super) fn compare(self) -> Result<(), Fault> {
        let (part, len) = (self.part, self.len);
        if let Some(expected) = self.size
            && expected != len
        {
            let actual = len;
            return Err(Fault::Size {
                part,
                expected,
                actual,
            });
        }
        let computed = self.hasher.finish();
        match computed == self.expected {
            true => Ok(()),
            false => Err(Fault::Mismatch {
                part,
                expected: self.expected,
                computed,
                len,
            }),
        }
    }
}

/// A reader that hashes what passes. Where the input ends, the read fails with the [`Error`]
/// inside an [`io::Error`] if the bytes are not those expected: `error.downcast::<Error>()` has
/// it. The bytes are verified only when a read has returned 0.
#[derive(Debug)]
pub struct Verified<R> {
    inner: R,
    /// Gone when the end has been seen and was right.
    verifier: Option<Verifier>,
}

impl<R: Read> Verified<R> {
    /// Reads from `inner`, of which nothing has been read yet.
    pub fn new(inner: R, verifier: Verifier) -> Self {
        let verifier = Some(verifier);
        Self { inner, verifier }
    }

    /// True if the whole input has passed and was what is expected.
    pub fn is_verified(&self) -> bool {
        self.verifier.is_none()
    }
}

impl<R: Read> Read for Verified<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.inner.read(buf)?;
        match &mut self.verifier {
            Some(verifier) if len > 0 => verifier.update(&buf[..len]),
            Some(verifier) if !buf.is_empty() => {
                let result = verifier.clone().finish();
                result.map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
                self.verifier = None;
            }
            _ => {}
        }
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verifier(bytes: &[u8], size: Option<u64>) -> Verifier {
        let image = Arc::from("oci:x");
        Verifier::new(&image, Part::LayerTar(3), &Digest::sha256_of(bytes), size)
    }

    #[test]
    fn what_passes_is_compared_at_the_end_and_not_before() {
        let mut good = Verified::new(&b"some bytes"[..], verifier(b"some bytes", Some(10)));
        let mut read = [0; 10];
        good.read_exact(&mut read).unwrap();
        assert!(!good.is_verified());
        assert_eq!(good.read(&mut []).unwrap(), 0);
        assert!(!good.is_verified());
        assert_eq!(good.read(&mut read).unwrap(), 0);
        assert!(good.is_verified());
        assert_eq!(good.read(&mut read).unwrap(), 0);
    }

    #[test]
    fn other_bytes_fail_with_both_digests_and_the_layer() {
        let mut bad = Verified::new(&b"other bytes"[..], verifier(b"some bytes", None));
        let mut all = Vec::new();
        for _ in 0..2 {
            let error = bad.read_to_end(&mut all).unwrap_err();
            let error = error.downcast::<Error>().unwrap();
            let text = error.to_string();
            assert!(text.starts_with("oci:x: layer 3, decompressed: "), "{text}");
            let Fault::Mismatch {
                expected,
                computed,
                len,
                ..
            } = error.fault
            else {
                panic!("{text}");
            };
            assert_eq!(expected, Digest::sha256_of(b"some bytes"));
            assert_eq!(computed, Digest::sha256_of(b"other bytes"));
            assert_eq!(len, 11);
        }
    }

    #[test]
    fn a_wrong_size_is_reported_as_such() {
        let mut short = verifier(b"some bytes", Some(10));
        short.update(b"some");
        let Fault::Size {
            expected, actual, ..
        } = short.finish().unwrap_err().fault
        else {
            panic!("not the size");
        };
        assert_eq!((expected, actual), (10, 4));
    }
}
