//! A tree that another process serves does what one does that is opened here.

use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use uext4::data::Fallocate;
use uext4::xattr::SetMode;
use uext4::{Creation, Error, FollowLast, Ino, NewInode, SetAttributes, Volume};
use uext4_remote::changes::Observer;
use uext4_remote::client::Client;
use uext4_remote::entry::Entry;
use uext4_remote::put_mode::{Existing, PutMode};
use uext4_remote::putter::{Contents, Putter};
use uext4_remote::refusal::Cause;
use uext4_remote::server::Server;
use uext4_remote::wire::{Growth, Rename};
use uext4_remote::{RemoteTree, Tree};

use crate::exercise;

/// Notes what it hears.
#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl Observer for Notes {
    fn name(&self, dir: Ino, name: &[u8]) {
        let name = String::from_utf8_lossy(name);
        self.0.lock().unwrap().push(format!("{dir}/{name}"));
    }

    fn inode(&self, ino: Ino) {
        self.0.lock().unwrap().push(format!("{ino}"));
    }

    fn many(&self) {
        self.0.lock().unwrap().push("many".to_owned());
    }
}

struct Served {
    tree: Tree,
    fs: Volume,
    notes: Arc<Notes>,
    server: Server,
    thread: JoinHandle<()>,
}

fn served(prefix: &[u8]) -> Served {
    let (server, _) = exercise::server();
    let notes = Arc::new(Notes::default());
    let server = Server {
        observer: notes.clone(),
        ..server
    };
    let (ours, theirs) = UnixStream::pair().unwrap();
    let serving = server.clone();
    let thread = thread::spawn(move || serving.serve(&theirs).unwrap());
    let client = Client::new(ours).unwrap();
    Served {
        tree: Tree::Remote(RemoteTree::new(client, prefix)),
        fs: server.fs.clone(),
        notes,
        server,
        thread,
    }
}

/// Does a bit of everything, and says what came of it.
fn everything(tree: &Tree) -> Vec<String> {
    let mut all = Vec::new();
    let how = Creation {
        mode: 0o644,
        ..Creation::default()
    };
    let mut say = |what: &dyn std::fmt::Debug| all.push(format!("{what:?}"));
    say(&tree.create_dir_all(b"/a/b/c", &how).is_ok());
    let file = tree.create(b"/a/f", NewInode::File, &how).unwrap();
    say(&tree
        .create(b"/a/f", NewInode::File, &how)
        .map(|_| ())
        .is_err());
    say(&file.write_at(0, b"contents").unwrap());
    let mut read = [0; 20];
    let len = file.read_at(2, &mut read).unwrap();
    say(&&read[..len]);
    file.fallocate(Fallocate::Allocate { keep_size: false }, 0, 5000)
        .unwrap();
    file.set_xattr(b"user.a", Some(b"value"), SetMode::Any)
        .unwrap();
    say(&file.xattrs().unwrap());
    say(&file.xattr(b"user.b").unwrap_err().to_string());
    say(&file
        .set_xattr(b"user.b", None, SetMode::Replace)
        .unwrap_err()
        .to_string());
    file.set_attributes(&SetAttributes {
        mode: Some(0o600),
        uid: Some(7),
        ..SetAttributes::default()
    })
    .unwrap();
    let view = file.view().unwrap();
    say(&(view.mode, view.uid, view.size, view.links));
    tree.link(b"/a/f", b"/a/g").unwrap();
    say(&file.view().unwrap().links);
    tree.rename(b"/a/g", b"/a/b/h", Rename::NoReplace).unwrap();
    say(&tree
        .rename(b"/a/f", b"/a/b/h", Rename::NoReplace)
        .unwrap_err()
        .to_string());
    let (dir, name) = tree.open_parent(b"/a/b/new/").unwrap();
    say(&name);
    let link = dir
        .create_unnamed(NewInode::Symlink(b"target"), &how)
        .unwrap();
    say(&link.read_link().unwrap());
    link.give_name(&dir, b"new", false).unwrap();
    let mut names = Vec::new();
    dir.list(0, &mut |listed| {
        names.push(String::from_utf8_lossy(listed.name).into_owned());
        true
    })
    .unwrap();
    names.sort();
    say(&names);
    say(&tree.remove(b"/a").unwrap_err().to_string());
    say(&tree.remove(b"/").unwrap_err().to_string());
    say(&tree.open_parent(b"//").unwrap_err().to_string());
    tree.remove_all(b"/a/b").unwrap();
    say(&file.view().unwrap().links);
    say(&tree
        .open_path(b"/a/b", FollowLast::Yes)
        .unwrap_err()
        .to_string());
    say(&tree.open_inode(Ino(8)).unwrap_err().to_string());
    tree.sync().unwrap();
    all
}

#[test]
fn a_served_tree_does_what_one_opened_here_does() {
    let (here, _) = exercise::server();
    let expected = everything(&Tree::Local(here.fs));
    let served = served(b"");
    assert_eq!(everything(&served.tree), expected);
    drop(served.tree);
    served.thread.join().unwrap();
    let notes = served.notes.0.lock().unwrap();
    for expected in ["2/a", "many"] {
        assert!(notes.iter().any(|note| note == expected), "{notes:?}");
    }
}

#[test]
fn a_directory_stands_for_the_root() {
    let served = served(b"some/dir");
    let how = Creation::directory();
    served.fs.create_dir_all("/some/dir", &how).unwrap();
    let expected = everything(&served.tree);
    let (here, _) = exercise::server();
    assert_eq!(everything(&Tree::Local(here.fs)), expected);
    assert!(served.fs.open_path("/some/dir/a/f", FollowLast::No).is_ok());
}

fn entry<'a>(kind: NewInode<'a>, data: &'a [std::ops::Range<u64>]) -> Entry<'a> {
    Entry {
        kind,
        mode: 0o640,
        uid: 3,
        gid: 4,
        atime: Default::default(),
        mtime: Default::default(),
        size: data.last().map_or(0, |last| last.end),
        data,
        xattrs: &[],
    }
}

#[test]
fn names_that_are_put_have_their_outcomes() {
    let served = served(b"");
    let root = served.tree.open_path(b"/", FollowLast::Yes).unwrap();
    let mode = PutMode {
        existing: Existing::Refuse,
        ..PutMode::default()
    };
    let mut putter = Putter::new(&served.tree, &root, mode).unwrap();
    let put = |putter: &mut Putter, tag, name: &[u8], kind: NewInode<'_>, fails: bool| {
        let mut read = |at: u64, buf: &mut [u8]| match fails {
            true => Err(std::io::ErrorKind::UnexpectedEof.into()),
            false => {
                buf.fill(at as u8 + 1);
                Ok(())
            }
        };
        // Beyond what is sent in a request, with a hole.
        let data = match kind {
            NewInode::File => vec![0..9000, 50_000..150_000],
            _ => Vec::new(),
        };
        let contents = Contents {
            read: &mut read,
            file: None,
        };
        putter
            .put(tag, name, &entry(kind, &data), contents)
            .unwrap();
    };
    put(&mut putter, 1, b"d", NewInode::Directory, false);
    put(&mut putter, 2, b"f", NewInode::File, false);
    put(&mut putter, 3, b"f", NewInode::File, false);
    put(&mut putter, 4, b"unread", NewInode::File, true);
    putter.leave(5, &entry(NewInode::Directory, &[])).unwrap();
    put(&mut putter, 6, b"x/y", NewInode::Directory, false);
    put(&mut putter, 7, b"below", NewInode::File, false);
    putter.leave(8, &entry(NewInode::Directory, &[])).unwrap();
    put(&mut putter, 9, b"last", NewInode::Fifo, false);
    putter.settle().unwrap();
    let mut outcomes: Vec<(u64, bool)> = putter
        .outcomes()
        .map(|outcome| (outcome.tag, outcome.result.is_ok()))
        .collect();
    outcomes.sort_unstable();
    // What is in a directory that could not be made has none.
    let expected = [
        (1, true),
        (2, true),
        (3, false),
        (4, false),
        (5, true),
        (6, false),
    ];
    assert_eq!(outcomes[..6], expected);
    assert_eq!(outcomes.last(), Some(&(9, true)));
    assert!(outcomes.iter().all(|(tag, _)| *tag != 7));
    let file = served.fs.read("/d/f").unwrap();
    assert_eq!((file.len(), file[0], file[20_000]), (150_000, 1, 0));
    let dir = served.fs.open_path("/d", FollowLast::Yes).unwrap().inode();
    assert_eq!((dir.uid, dir.mode & 0o7777), (3, 0o640));
    assert!(served.fs.open_path("/d/unread", FollowLast::Yes).is_err());
}

#[test]
fn a_client_hears_that_the_other_end_is_gone() {
    let served = served(b"");
    served.tree.sync().unwrap();
    served.server.gate.close();
    let failed = served.tree.sync().unwrap_err();
    let Error::Remote { message, .. } = failed else {
        panic!("{failed}");
    };
    assert!(message.contains("1 requests were done"), "{message}");
}

#[test]
fn what_growing_gave_and_why_it_was_refused_pass_as_they_are() {
    let served = served(b"");
    let Tree::Remote(tree) = &served.tree else {
        panic!("opened here");
    };
    let grown = tree.grow(Growth::To(1 << 40)).unwrap().unwrap();
    let block_size = served.fs.geometry().block_size.bytes();
    assert_eq!(
        (grown.before, grown.after, grown.block_size),
        (1024, (1 << 40) / u64::from(block_size), block_size)
    );
    let refusal = tree.grow(Growth::By(5)).unwrap().unwrap_err();
    assert_eq!(
        (refusal.cause, refusal.message.as_str()),
        (Cause::DeviceTooSmall, "5 bytes more are needed")
    );
    // The connection goes on.
    served.tree.sync().unwrap();
}

#[test]
fn a_server_that_brings_nothing_to_grow_with_refuses_it() {
    let (server, _) = exercise::server();
    let server = Server {
        grower: None,
        ..server
    };
    let (ours, theirs) = UnixStream::pair().unwrap();
    let thread = thread::spawn(move || server.serve(&theirs).unwrap());
    let tree = RemoteTree::new(Client::new(ours).unwrap(), b"");
    let refusal = tree.grow(Growth::Device).unwrap().unwrap_err();
    assert!(refusal.message.contains("growing"), "{refusal:?}");
    drop(tree);
    thread.join().unwrap();
}
