//! Plans that are read again, and those that are refused.

use uext4_blockdev::MemoryDevice;
use uext4_testkit::{SimDevice, SimOptions};

use super::*;
use crate::finding::Place;
use crate::problem::GroupProblem;

/// A device, and a plan of two writes for one finding as text.
fn plan() -> (Arc<dyn BlockDevice>, Vec<u8>) {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(64 << 10));
    let text = plan_of(&device, true).0;
    (device, text)
}

fn plan_of(device: &Arc<dyn BlockDevice>, consistent: bool) -> (Vec<u8>, Overlay, Writes) {
    let examined = Recorded::new(Arc::clone(device));
    // A block that it does not write.
    examined.read_at(30 << 10, &mut [0; 1024]).unwrap();
    let overlay = Overlay::new(examined.clone(), BlockSize::MIN, u64::MAX);
    let change = |bytes: &mut [u8]| (bytes[3], bytes[5], bytes[900]) = (1, 2, 3);
    overlay.update(Pblk(1), Cause(7), change).unwrap();
    overlay.update(Pblk(9), Cause(7), change).unwrap();
    let finding = Finding::new(GroupProblem::ALL[0], Place::whole());
    let log = LogRun {
        blocks: 4,
        start: 20,
    };
    let writes = Writes::of_plan(BlockSize::MIN, vec![1, 9], Some(vec![log]), 64 << 10);
    let writes = writes.unwrap();
    let outcome = Planned {
        findings: &[(Cause(7), finding)],
        consistent,
        lost: None,
        examined: &examined,
    };
    let mut text = Vec::new();
    write(&mut text, &overlay, &writes, &outcome).unwrap();
    (text, overlay, writes)
}

#[test]
fn a_plan_that_leads_to_no_consistent_file_system_is_refused() {
    let (device, _) = plan();
    let text = plan_of(&device, false).0;
    let error = read(&mut &text[..], &device, 0).unwrap_err().to_string();
    assert!(error.contains("consistent"), "{error}");
}

#[test]
fn an_unfinished_repair_comes_before_a_plan() {
    let cut = SimDevice::new(&MemoryDevice::new(64 << 10), SimOptions::default());
    let (device, _) = plan();
    let (_, overlay, writes) = plan_of(&device, true);
    // The log's four blocks and the pointer.
    cut.cut_at_write(5);
    assert!(writes.write(&cut, &overlay).is_err());
    let device: Arc<dyn BlockDevice> = Arc::new(cut.contents());
    let text = plan_of(&device, true).0;
    let error = read(&mut &text[..], &device, 0).unwrap_err().to_string();
    assert!(error.contains("finish it first"), "{error}");
}

#[test]
fn a_plan_that_was_read_makes_the_same_changes() {
    let (device, text) = plan();
    let plan = read(&mut &text[..], &device, u64::MAX).unwrap();
    let start = plan.writes.log().map(|runs| runs[0].start);
    assert_eq!((plan.writes.count(), start), (2, Some(20)));
    let mut content = [0; 1024];
    for block in [1, 9] {
        plan.overlay.read_block(Pblk(block), &mut content).unwrap();
        assert_eq!(
            (content[3], content[4], content[5], content[900]),
            (1, 0, 2, 3)
        );
    }
    let lines = String::from_utf8(text).unwrap();
    let write = lines
        .lines()
        .find(|line| line.contains("\"write\":9"))
        .unwrap();
    let write: WriteLine = serde_json::from_str(write).unwrap();
    assert_eq!(write.causes, [1]);
    let places: Vec<_> = write
        .changes
        .iter()
        .map(|c| (c.at, c.becomes.as_str()))
        .collect();
    assert_eq!(places, [(3, "010002"), (900, "03")]);
}

#[test]
fn a_block_with_many_causes_can_be_read_again() {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(64 << 10));
    let overlay = Overlay::new(Arc::clone(&device), BlockSize::MIN, u64::MAX);
    let causes: Vec<Cause> = (0..200_000).map(Cause).collect();
    overlay.replace_for(Pblk(9), &causes, &[1; 1024]).unwrap();
    let finding = Finding::new(GroupProblem::ALL[0], Place::whole());
    let findings: Vec<_> = causes.iter().map(|&c| (c, finding.clone())).collect();
    let planned = Planned {
        findings: &findings,
        consistent: true,
        lost: None,
        examined: &Recorded::new(Arc::clone(&device)),
    };
    let writes = Writes::of_plan(BlockSize::MIN, vec![1, 9], None, 64 << 10);
    let mut text = Vec::new();
    write(&mut text, &overlay, &writes.unwrap(), &planned).unwrap();
    let longest = text.split(|byte| *byte == b'\n').map(<[u8]>::len).max();
    assert!(longest > Some(1 << 20), "{longest:?}");
    let plan = read(&mut &text[..], &device, 1 << 30).unwrap();
    assert_eq!(plan.overlay.changed(), 1);
    let error = read(&mut &text[..], &device, 0).unwrap_err().to_string();
    assert!(error.contains("--memory"), "{error}");
}

#[test]
fn a_plan_of_another_state_is_refused() {
    let (device, text) = plan();
    device.write_at(9 * 1024 + 77, &[1]).unwrap();
    let error = read(&mut &text[..], &device, 0).unwrap_err().to_string();
    assert!(error.contains("block 9 differs"), "{error}");
    device.write_at(1024 + 77, &[1]).unwrap();
    let error = read(&mut &text[..], &device, 0).unwrap_err().to_string();
    assert!(error.contains("superblock"), "{error}");
}

#[test]
fn a_plan_is_refused_where_only_what_it_was_made_from_differs() {
    let (device, text) = plan();
    read(&mut &text[..], &device, 0).unwrap();
    device.write_at((30 << 10) + 77, &[1]).unwrap();
    let error = read(&mut &text[..], &device, 0).unwrap_err().to_string();
    assert!(error.contains("made from differs"), "{error}");
}

#[test]
fn a_plan_that_was_changed_or_cut_is_refused() {
    let (device, text) = plan();
    let changed = String::from_utf8(text.clone())
        .unwrap()
        .replace("010002", "010102");
    let error = read(&mut changed.as_bytes(), &device, 0)
        .unwrap_err()
        .to_string();
    assert!(error.contains("digest"), "{error}");
    for len in 0..text.len() {
        assert!(read(&mut &text[..len], &device, 0).is_err(), "{len} bytes");
    }
}
