//! Frames on a stream socket: a length, a number of descriptors, bytes.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Bytes of a frame at most.
pub const FRAME_MAX: usize = 4 << 20;
/// Descriptors that pass with a frame at most; the kernel's limit is 253.
pub const DESCRIPTORS_MAX: usize = 64;
/// Bytes of the length and of the number of descriptors.
const HEADER: usize = 8;

/// A frame that was received.
#[derive(Debug)]
pub struct Frame {
    /// Its messages.
    pub bytes: Vec<u8>,
    /// What came with it.
    pub descriptors: Vec<OwnedFd>,
}

/// Sends a frame.
///
/// # Errors
/// Those of the socket; `InvalidInput` for more than a frame may have.
pub fn send(stream: &UnixStream, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let (Ok(len), Ok(count)) = (u32::try_from(bytes.len()), u32::try_from(descriptors.len()))
    else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    if bytes.len() > FRAME_MAX || descriptors.len() > DESCRIPTORS_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut header = [0; HEADER];
    header[..4].copy_from_slice(&len.to_le_bytes());
    header[4..].copy_from_slice(&count.to_le_bytes());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let parts = [IoSlice::new(&header), IoSlice::new(bytes)];
    let sent = loop {
        match sendmsg(stream, &parts, &mut ancillary, SendFlags::NOSIGNAL) {
            Err(rustix::io::Errno::INTR) => {}
            sent => break sent?,
        }
    };
    let mut stream = stream;
    let of_header = sent.min(HEADER);
    stream.write_all(&header[of_header..])?;
    stream.write_all(&bytes[sent - of_header..])
}

/// Receives a frame; `None` where the other end has closed the stream between two.
///
/// # Errors
/// Those of the socket; `InvalidData` for more than a frame may have, and for fewer descriptors
/// than it says; `UnexpectedEof` within a frame.
pub fn receive(stream: &UnixStream, mut bytes: Vec<u8>) -> io::Result<Option<Frame>> {
    let mut header = [0; HEADER];
    let mut descriptors = Vec::new();
    let mut have = 0;
    while have < HEADER {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut header[have..])];
        let received = match recvmsg(stream, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => continue,
            received => received?,
        };
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(passed) = message {
                descriptors.extend(passed);
            }
        }
        match received.bytes {
            0 if have == 0 => return Ok(None),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            more => have += more,
        }
    }
    let [a, b, c, d, e, f, g, h] = header;
    let len = u32::from_le_bytes([a, b, c, d]) as usize;
    let count = u32::from_le_bytes([e, f, g, h]) as usize;
    if len > FRAME_MAX || count != descriptors.len() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    bytes.clear();
    bytes.resize(len, 0);
    let mut stream = stream;
    stream.read_exact(&mut bytes)?;
    Ok(Some(Frame { bytes, descriptors }))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::thread;

    use super::*;

    #[test]
    fn frames_arrive_with_their_descriptors() {
        let (one, other) = UnixStream::pair().unwrap();
        let file = tempfile::tempfile().unwrap();
        rustix::io::write(&file, b"contents").unwrap();
        let sender = thread::spawn(move || {
            send(&one, b"first", &[]).unwrap();
            send(&one, &vec![7; FRAME_MAX], &[file.as_fd(), file.as_fd()]).unwrap();
            assert!(send(&one, &vec![7; FRAME_MAX + 1], &[]).is_err());
            assert!(send(&one, b"", &vec![file.as_fd(); DESCRIPTORS_MAX + 1]).is_err());
        });
        let first = receive(&other, Vec::new()).unwrap().unwrap();
        assert_eq!(
            (first.bytes.as_slice(), first.descriptors.len()),
            (&b"first"[..], 0)
        );
        let second = receive(&other, first.bytes).unwrap().unwrap();
        assert_eq!(
            (second.bytes.len(), second.descriptors.len()),
            (FRAME_MAX, 2)
        );
        let passed = File::from(second.descriptors.into_iter().next().unwrap());
        let mut read = [0; 8];
        std::os::unix::fs::FileExt::read_exact_at(&passed, &mut read, 0).unwrap();
        assert_eq!(&read, b"contents");
        sender.join().unwrap();
        assert!(receive(&other, Vec::new()).unwrap().is_none());
    }

    #[test]
    fn bytes_that_are_no_frame_are_refused() {
        let rubbish: [&[u8]; 3] = [
            &[0xFF; 8],
            // Two descriptors that do not come.
            &[4, 0, 0, 0, 2, 0, 0, 0, 1, 2, 3, 4],
            // The end in the middle.
            &[9, 0, 0, 0, 0, 0, 0, 0, 1],
        ];
        for bytes in rubbish {
            let (mut one, other) = UnixStream::pair().unwrap();
            one.write_all(bytes).unwrap();
            drop(one);
            assert!(receive(&other, Vec::new()).is_err(), "{bytes:?}");
        }
    }
}
