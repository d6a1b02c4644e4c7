//! Files that were stored within their inodes, and leave them: what they held is not lost.

use std::sync::Arc;

use uext4::{FollowLast, Image, OpenOptions, Volume};
use uext4_blockdev::{BlockDevice, MemoryDevice, VirtualClock};

use super::judge::recover;
use super::recorder::{Cuts, Recorder};
use crate::mke2fs::mke2fs;
use crate::writing::device::judge;

const OLD: [u8; 130] = [0x5a; 130];

fn made() -> MemoryDevice {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    std::fs::create_dir(&source).unwrap();
    for name in ["grown", "cut", "filled"] {
        std::fs::write(source.join(name), OLD).unwrap();
    }
    let image = dir.path().join("x.img");
    let flags = ["-t", "ext4", "-b", "1024", "-I", "256", "-O", "inline_data"];
    mke2fs(&image, &flags, Some(&source), "8192k");
    MemoryDevice::from_bytes(std::fs::read(&image).unwrap())
}

fn read(image: MemoryDevice, name: &[u8]) -> Vec<u8> {
    let fs = Image::open(Arc::new(image), &OpenOptions::default()).unwrap();
    let inode = fs.resolve(name, FollowLast::No).unwrap();
    let mut bytes = vec![0; inode.size as usize];
    assert_eq!(fs.read_at(&inode, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

#[test]
fn files_stored_in_inodes() {
    let empty = made();
    let device = Arc::new(Recorder::new(&empty));
    let clock = Arc::new(VirtualClock::new(1_700_000_000));
    let options = OpenOptions::default();
    let fs = Volume::open(device.clone(), clock, &options).unwrap();
    let open = |name: &[u8]| fs.root().unwrap().lookup(name).unwrap();
    let (grown, cut, filled) = (open(b"grown"), open(b"cut"), open(b"filled"));
    grown.write_at(3000, b"new").unwrap();
    fs.sync().unwrap();
    cut.set_attributes(&uext4::SetAttributes {
        size: Some(100),
        ..uext4::SetAttributes::default()
    })
    .unwrap();
    cut.fsync().unwrap();
    filled.append(&[1; 5000]).unwrap();
    filled.fsync().unwrap();
    drop((grown, cut, filled));
    fs.close().unwrap();
    let mut cuts = Cuts::new(&empty);
    for (_, event) in device.take_events() {
        cuts.push(&event);
        for image in [cuts.all(), cuts.some(1), cuts.some(2)] {
            let recovered = Arc::new(image);
            recover(Arc::clone(&recovered) as Arc<dyn BlockDevice>).unwrap();
            for (name, kept) in [(&b"grown"[..], 130), (b"cut", 100), (b"filled", 130)] {
                let found = read(recovered.snapshot(), name);
                assert!(found.len() >= kept && found[..kept] == OLD[..kept]);
            }
        }
    }
    judge(&cuts.all(), "files that left their inodes");
}
