//! The socket of a daemon that has no path: those who come must have the image, and only the
//! daemon that has it locked is shown it.

use std::fs::{self, File};
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::thread;

use rustix::fs::OFlags;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use uext4_fuse::addresses::{self, Kind};
use uext4_fuse::mountinfo::Number;
use uext4_remote::client::Client;
use uext4_remote::snapshot;
use uext4_remote::wire::{Answer, Request};

use crate::host::{UEXT4, has_tool, mke2fs, run, scratch, text, uext4_ok};
use crate::mounted::{Mount, can_mount};

const QUESTION: &str = concat!("operations 2 ", env!("CARGO_PKG_VERSION"), "\n");

/// The line that the socket of an image answers the question with, shown this file.
fn asked(image: &Path, shown: Option<&File>) -> (String, UnixStream) {
    let doors = addresses::of_image(&fs::metadata(image).unwrap());
    let stream = addresses::connect(&doors[0].address).unwrap();
    let descriptors: Vec<_> = shown.iter().map(|file| file.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if shown.is_some() {
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)));
    }
    let question = [IoSlice::new(QUESTION.as_bytes())];
    sendmsg(&stream, &question, &mut ancillary, SendFlags::NOSIGNAL).unwrap();
    (line(&stream), stream)
}

fn line(mut stream: &UnixStream) -> String {
    let mut line = Vec::new();
    let mut byte = [0];
    while line.last() != Some(&b'\n') && stream.read(&mut byte).unwrap() == 1 {
        line.extend_from_slice(&byte);
    }
    String::from_utf8(line).unwrap()
}

#[test]
fn only_those_who_have_the_image_open_are_served_without_a_path() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(&["-t", "ext4"], 32);
    fs::write(mount.dir().join("secret"), "contents").unwrap();
    let image = mount.image();
    let open = |writes: bool, flags: OFlags| {
        let mut options = File::options();
        let options = options.read(true).write(writes);
        let flags = options.custom_flags(flags.bits().cast_signed());
        flags.open(&image).unwrap()
    };
    let other = File::open("/proc/self/exe").unwrap();
    let place = open(false, OFlags::PATH);
    for shown in [None, Some(&other), Some(&place)] {
        let (answer, _stream) = asked(&image, shown);
        assert!(answer.contains("must show the image"), "{answer}");
    }
    // Nothing but commands is answered.
    let doors = addresses::of_image(&fs::metadata(&image).unwrap());
    let mut stream = addresses::connect(&doors[0].address).unwrap();
    stream.write_all(b"metrics\n").unwrap();
    assert_eq!(line(&stream), "");
    // One that can be read gives what reading it gives.
    let (answer, stream) = asked(&image, Some(&open(false, OFlags::empty())));
    assert!(answer.starts_with("ok file "), "{answer}");
    let client = Client::new(stream).unwrap();
    for request in [Request::OpenNumber(2, 1), Request::Sync] {
        assert!(client.call(&request).is_err(), "{request:?}");
    }
    assert!(snapshot::of(&client, &image).is_ok());
    let (_, stream) = asked(&image, Some(&open(true, OFlags::empty())));
    let client = Client::new(stream).unwrap();
    assert!(client.call(&Request::OpenNumber(2, 1)).is_ok());
    let synced = client.call(&Request::Sync);
    assert!(matches!(synced, Ok(Answer::Done)), "{synced:?}");
    drop(client);
    mount.judged();
}

#[test]
fn commands_of_another_mount_namespace_show_the_image() {
    if !can_mount() || !has_tool("unshare") {
        return;
    }
    let mount = Mount::new(&["-t", "ext4"], 32);
    const SCRIPT: &str = "umount -l $2 && mount -t tmpfs none /run || exit 9
        $0 mkdir $1 /made && $0 ls $1 / && $0 rm -r $1 /made && $0 put $1 /proc/version /put";
    let (image, dir) = (mount.image(), mount.dir());
    let listed = run(
        "unshare",
        &["-m", "sh", "-ec", SCRIPT, UEXT4, text(&image), text(&dir)],
    );
    assert!(String::from_utf8(listed).unwrap().contains("made"));
    assert!(dir.join("put").exists() && !dir.join("made").exists());
    mount.judged();
}

#[test]
fn one_who_pretends_to_be_the_daemon_is_neither_asked_nor_shown_the_image() {
    let dir = scratch();
    let image = dir.path().join("image");
    mke2fs(&image, &["-t", "ext4"], 16);
    let number = Number {
        major: 0,
        minor: u32::MAX,
    };
    let found = fs::metadata(&image).unwrap();
    let address = addresses::new(Kind::Door, number, Some(&found)).unwrap();
    let bound = SocketAddr::from_abstract_name(&address).unwrap();
    let listener = UnixListener::bind_addr(&bound).unwrap();
    let heard = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut heard = Vec::new();
        // The end of the connection, or that it was cut.
        _ = stream.read_to_end(&mut heard);
        heard
    });
    uext4_ok(&["mkdir", text(&image), "/made"]);
    assert_eq!(heard.join().unwrap(), b"");
    assert!(!uext4_ok(&["stat", text(&image), "/made"]).is_empty());
}

#[test]
fn clients_that_ask_for_nothing_make_room_for_commands() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(&["-t", "ext4"], 32);
    let device = fs::metadata(mount.dir()).unwrap().dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let socket = Path::new("/run/uext4").join(format!("{major}:{minor}"));
    if !socket.exists() {
        println!("skipped: the socket of this user is elsewhere");
        return;
    }
    let connect = || {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.write_all(QUESTION.as_bytes()).unwrap();
        assert!(line(&stream).starts_with("ok "));
        stream
    };
    // One has a file open, and is not idle.
    let client = Client::new(connect()).unwrap();
    client.call(&Request::OpenNumber(2, 1)).unwrap();
    let idle: Vec<UnixStream> = (0..40).map(|_| connect()).collect();
    uext4_ok(&["mkdir", text(&mount.image()), "/made"]);
    assert!(mount.dir().join("made").exists());
    assert!(client.call(&Request::View(1)).is_ok());
    drop(idle);
    drop(client);
    mount.judged();
}
