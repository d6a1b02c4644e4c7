//! The label of a file system, in the superblock and its backups.

use uext4_ondisk::superblock::{SUPERBLOCK_OFFSET, SuperBlock};
use zerocopy::IntoBytes;

use crate::base::error::Result;
use crate::base::invalid::Invalid;
use crate::journal::sbi::Sbi;

/// Maximum length of a label in bytes.
pub const LABEL_LEN: usize = 16;

pub(crate) fn label(sbi: &Sbi) -> [u8; LABEL_LEN] {
    match sbi.rw() {
        Some(rw) => rw.superblock().s_volume_name,
        None => sbi.superblock().s_volume_name,
    }
}

/// See [`crate::Volume::set_label`].
pub(crate) fn set_label(sbi: &Sbi, text: &[u8]) -> Result<()> {
    let mut label = [0; LABEL_LEN];
    // Bytes after a zero byte would never be shown.
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    let fits = label.get_mut(..text.len());
    let fits = fits.ok_or(Invalid::Label(text.len()))?;
    fits.copy_from_slice(text);
    let handle = sbi.start(1)?;
    handle
        .rw()
        .change_superblock(|superblock| superblock.s_volume_name = label);
    drop(handle);
    set_in_backups(sbi, label);
    Ok(())
}

/// Updates the backups at once, as they cannot undo the change. A backup that is damaged, or
/// cannot be written, is left unchanged: backups are for repair, and none is needed now.
fn set_in_backups(sbi: &Sbi, label: [u8; LABEL_LEN]) {
    let geometry = sbi.geometry();
    for group in geometry.backup_groups() {
        let offset = sbi.byte_offset(geometry.group_start(group));
        let mut bytes = [0; size_of::<SuperBlock>()];
        // The first copy is behind the boot sector, and is written through the journal.
        if offset <= SUPERBLOCK_OFFSET || sbi.device().read_at(offset, &mut bytes).is_err() {
            continue;
        }
        let Ok(mut backup) = SuperBlock::parse(&bytes) else {
            continue;
        };
        backup.s_volume_name = label;
        backup.update_checksum();
        _ = sbi.device().write_at(offset, backup.as_bytes());
    }
}
