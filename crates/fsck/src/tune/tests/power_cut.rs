//! The power is cut at the writes of every switch: the next run ends with the old or the new
//! state.
//!
//! `UEXT4_LONG` cuts at every write, on every image, and has e2fsck judge each.

use uext4_testkit::e2fsprogs::complaints;
use uext4_testkit::{SimDevice, SimOptions};

use super::*;

/// Cuts of a switch in the quick run, besides those at its last three writes.
const CUTS_QUICK: u64 = 3;

/// A change of an image, before a byte of it is written.
struct Cut<'a> {
    whole: &'a MemoryDevice,
    tuned: &'a Tuned,
    case: &'a Case,
    /// The superblock that the whole change leaves.
    after: Vec<u8>,
}

impl Cut<'_> {
    fn write(&self, device: &dyn BlockDevice) -> Result<u64> {
        let Tuned {
            overlay, writes, ..
        } = self.tuned;
        apply::in_place(device, overlay, writes, None, &|_| ())
    }

    /// What is wrong after a cut at one of the writes.
    fn complaint(&self, at: u64) -> Option<String> {
        let options = SimOptions {
            seed: at,
            ..SimOptions::default()
        };
        let sim = SimDevice::new(self.whole, options);
        sim.cut_at_write(at);
        if self.write(&sim).is_ok() {
            return Some("was not cut".to_owned());
        }
        let left: Arc<dyn BlockDevice> = Arc::new(sim.contents());
        if let Some(repair) = UnfinishedRepair::find(&*left).unwrap() {
            apply::finish(&*left, &repair, &|_| ()).unwrap();
        }
        let found = crate::findings(&left).unwrap();
        if !found.is_empty() {
            return Some(format!("{found:?}"));
        }
        let superblock = superblock_of(&*left);
        if superblock != self.after && superblock != superblock_of(self.whole) {
            return Some("the superblock is neither the old nor the new one".to_owned());
        }
        // What was cut off before anything was durable is changed by the next run. After it, some
        // changes are refused: what they make is there.
        let again = tune_device(&left, &self.case.changes);
        if superblock != self.after {
            again.unwrap();
        }
        if superblock_of(&*left) != self.after {
            return Some("the next run leaves another superblock".to_owned());
        }
        judged(&left)
    }
}

/// What e2fsck says, in the long run.
fn judged(left: &Arc<dyn BlockDevice>) -> Option<String> {
    std::env::var_os("UEXT4_LONG")?;
    let path = tempfile::NamedTempFile::new().unwrap();
    save(path.path(), left);
    complaints(path.path())
}

fn superblock_of(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; primary::LEN];
    device
        .read_at(uext4_ondisk::superblock::SUPERBLOCK_OFFSET, &mut bytes)
        .unwrap();
    bytes
}

#[test]
fn a_power_cut_leaves_the_old_or_the_new_state_of_every_switch() {
    if !has_tools() {
        return;
    }
    let (mut wrong, mut cuts) = (Vec::new(), Vec::new());
    for (nr, base) in BASES.iter().enumerate() {
        let image = filled(base);
        let all = cases::all();
        let cases = all.iter().enumerate();
        for (_, case) in cases.filter(|(number, _)| !is_skipped(*number, nr)) {
            cuts.push(cut_all(&image, case, &mut wrong));
        }
    }
    for (base, case) in reshape::shapes().into_iter().chain(journal::journals()) {
        cuts.push(cut_all(&filled(base), &case, &mut wrong));
    }
    let changes = cuts.iter().filter(|&&cuts| cuts != 0).count();
    println!("{changes} changes, {} cuts", cuts.iter().sum::<u64>());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Cuts one change at its writes; returns how often.
fn cut_all(image: &TestImage, case: &Case, wrong: &mut Vec<String>) -> u64 {
    let whole = MemoryDevice::from_bytes(fs::read(image.path()).unwrap());
    let device: Arc<dyn BlockDevice> = Arc::new(whole.snapshot());
    // What is refused writes nothing.
    let Ok(tuned) = tune(&device, &options(), &case.changes, &()) else {
        return 0;
    };
    let sim = SimDevice::new(&whole, SimOptions::default());
    let mut cut = Cut {
        whole: &whole,
        tuned: &tuned,
        case,
        after: Vec::new(),
    };
    cut.write(&sim).unwrap();
    cut.after = superblock_of(&sim);
    let writes = sim.stats().changes();
    let is_long = std::env::var_os("UEXT4_LONG").is_some();
    let step = if is_long { 1 } else { writes / CUTS_QUICK + 1 };
    let mut cuts = 0;
    for at in (0..writes).filter(|at| at.is_multiple_of(step) || at + 3 >= writes) {
        cuts += 1;
        let complaint = cut.complaint(at);
        wrong.extend(complaint.map(|what| format!("{:?} {at}: {what}", case.arguments)));
    }
    if is_long {
        println!(
            "{:?}: {cuts} cuts, {} failed so far",
            case.arguments,
            wrong.len()
        );
    }
    cuts
}
