//! A device of which a part cannot be read.

use std::sync::Arc;

use uext4_blockdev::{BlockDevice, CutDevice, MemoryDevice};
use uext4_testkit::sim::{Fault, Op, SimDevice, SimOptions};

#[test]
fn what_cannot_be_read_is_an_error_or_zeroes() {
    let whole = MemoryDevice::from_bytes(vec![7; 4096]);
    let failing = Arc::new(SimDevice::new(&whole, SimOptions::default()));
    failing.inject(Fault::new(Op::Read).within(1024..1100).times(u64::MAX));
    let device = CutDevice::new(failing, 8192, 4096);
    let mut buf = vec![1; 5000];
    assert!(device.read_at(100, &mut buf[..3996]).is_err());
    device.read_zeroes(true);
    device.read_at(100, &mut buf).unwrap();
    let zeroes: Vec<u64> = (100..)
        .zip(&buf)
        .filter(|(_, byte)| **byte == 0)
        .map(|(at, _)| at)
        .collect();
    assert_eq!(zeroes, (1024..1536).chain(4096..5100).collect::<Vec<u64>>());
    device.read_zeroes(false);
    assert!(device.read_at(1024, &mut buf[..10]).is_err());
}
