//! Reading an image whose file system another process writes.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use tempfile::NamedTempFile;
use uext4::{Creation, Error, FollowLast, Image, NewInode, OpenOptions, Volume};
use uext4_blockdev::{Access, FileDevice, Origin, SystemClock};
use uext4_remote::client::{Client, Passed};
use uext4_remote::server::Server;
use uext4_remote::snapshot::{self, Disk, Within};
use uext4_remote::wire::Request;

use crate::exercise;

struct Served {
    server: Server,
    client: Client,
    thread: JoinHandle<()>,
    _image: NamedTempFile,
}

/// A file system in a file, with a server that may have a disk.
fn served(has_disk: bool) -> Served {
    let (server, device) = exercise::server();
    server.fs.close().unwrap();
    let image = NamedTempFile::new().unwrap();
    let mut bytes = vec![0; device.len() as usize];
    device.read_at(0, &mut bytes).unwrap();
    std::fs::write(image.path(), bytes).unwrap();
    let whole = FileDevice::open(image.path(), Access::ReadWrite).unwrap();
    let reader = whole.reader().unwrap();
    let origin = Arc::new(Origin::new(Arc::new(whole)));
    let options = OpenOptions::default();
    let fs = Volume::open(origin.clone(), Arc::new(SystemClock), &options).unwrap();
    let disk = has_disk.then(|| {
        Arc::new(Disk {
            origin,
            image: reader,
            offset: None,
            partition: Some(3),
        })
    });
    let server = Server { fs, disk, ..server };
    let (ours, theirs) = UnixStream::pair().unwrap();
    let serving = server.clone();
    let thread = thread::spawn(move || serving.serve(&theirs).unwrap());
    Served {
        server,
        client: Client::new(ours).unwrap(),
        thread,
        _image: image,
    }
}

fn contents(image: &Image, path: &str) -> Result<Vec<u8>, Error> {
    let inode = image.resolve(path, FollowLast::No)?;
    let mut bytes = vec![0; inode.size as usize];
    let read = image.read_at(&inode, 0, &mut bytes)?;
    bytes.truncate(read);
    Ok(bytes)
}

#[test]
fn a_snapshot_shows_what_there_was_before_it_and_nothing_later() {
    let it = served(true);
    let fs = &it.server.fs;
    let file = fs.create("/file", NewInode::File, &Creation::default());
    let file = file.unwrap();
    file.write_at(0, &[1; 50_000]).unwrap();
    let (device, within) = snapshot::of(&it.client, Path::new("image")).unwrap();
    assert_eq!(
        within,
        Within {
            offset: None,
            partition: Some(3)
        }
    );
    for round in 2..5 {
        file.write_at(0, &[round; 50_000]).unwrap();
        fs.rename("/file", "/other", uext4::RenameMode::Replace)
            .unwrap();
        fs.sync().unwrap();
        fs.rename("/other", "/file", uext4::RenameMode::Replace)
            .unwrap();
        let image = Image::open(device.clone(), &OpenOptions::default()).unwrap();
        assert!(contents(&image, "/file").unwrap() == [1; 50_000]);
        assert!(matches!(contents(&image, "/other"), Err(Error::NotFound)));
    }
    // A second one is of now, and ends the first.
    let (now, _) = snapshot::of(&it.client, Path::new("image")).unwrap();
    let image = Image::open(now, &OpenOptions::default()).unwrap();
    assert!(contents(&image, "/file").unwrap() == [4; 50_000]);
    let error = device.read_at(0, &mut [0; 10]).unwrap_err();
    assert!(error.to_string().contains("has ended"), "{error}");
}

#[test]
fn a_reader_learns_that_the_other_end_is_gone() {
    let it = served(true);
    let (ours, theirs) = UnixStream::pair().unwrap();
    let serving = it.server.clone();
    let other = thread::spawn(move || {
        // It ends with the first frame.
        let end = theirs.try_clone().unwrap();
        thread::spawn(move || serving.serve(&theirs).unwrap());
        end
    });
    let client = Client::new(ours).unwrap();
    let end = other.join().unwrap();
    let (device, _) = snapshot::of(&client, Path::new("image")).unwrap();
    device.read_at(1024, &mut [0; 1024]).unwrap();
    end.shutdown(std::net::Shutdown::Both).unwrap();
    // At once: no thread has to run before.
    let error = device.read_at(1024, &mut [0; 1024]).unwrap_err();
    assert!(error.to_string().contains("ended"), "{error}");
    drop(it.client);
    it.thread.join().unwrap();
}

#[test]
fn a_store_that_a_write_would_wait_for_is_refused() {
    let it = served(true);
    let (pipe, _end) = std::io::pipe().unwrap();
    let file = File::open("/proc/self/status").unwrap();
    let null = File::open("/dev/null").unwrap();
    for store in [pipe.as_fd(), file.as_fd(), null.as_fd()] {
        let refused = it
            .client
            .call_passing(Passed::Own(store), Request::Snapshot);
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("no shared memory"), "{error}");
    }
    let none = it.client.call(&Request::Snapshot(7)).unwrap_err();
    assert!(none.to_string().contains("no shared memory"), "{none}");
    let without = served(false);
    let error = snapshot::of(&without.client, Path::new("image")).unwrap_err();
    assert!(
        error.to_string().contains("snapshots of this mount"),
        "{error}"
    );
}
