//! Names that come and go.

use uext4_ondisk::Ino;
use uext4_ondisk::inode::FileType;

use super::misfit_name;
use super::plan::{NamesChange, Plan};
use crate::directories::reread;
use crate::error::{Error, Result};
use crate::inode_map::Kind;
use crate::lost_found;
use crate::rebuild::{self, NewName, Old, Request};
use crate::state::State;

/// Most names for which a free place is looked for one by one; for more the directory is written
/// anew.
const SINGLE_MAX: usize = 16;

/// Removes and adds the changed names of all directories.
pub fn apply(state: &State<'_>, plan: &Plan<'_>) -> Result<()> {
    for (dir, names) in plan.names() {
        let old = match state.inodes.get(dir).kind {
            Kind::File(FileType::Directory) => Old::read(state, dir)?,
            _ => None,
        };
        let Some(old) = old else {
            let added = names.changed.iter().filter(|(_, now)| now.is_some());
            for (name, _) in added {
                misfit_name(state, dir, name);
            }
            continue;
        };
        remove(state, plan, &old, names)?;
        add(state, plan, dir, names)?;
    }
    Ok(())
}

fn remove(state: &State<'_>, plan: &Plan<'_>, old: &Old, names: &NamesChange<'_>) -> Result<()> {
    let seed = state.geometry().csum_seed;
    let seed = seed.map(|seed| seed.inode(old.ino, old.raw.i_generation.get()));
    for (name, (ino, spot)) in &names.present {
        let Some(&now) = names.changed.get(name.as_slice()) else {
            continue;
        };
        if now == Some(*ino) || now.is_some_and(|now| kind_of(state, now).is_none()) {
            continue;
        }
        reread::remove(state, old.ino, seed, spot, plan.cause())?;
    }
    Ok(())
}

fn add(state: &State<'_>, plan: &Plan<'_>, dir: Ino, names: &NamesChange<'_>) -> Result<()> {
    let mut new = Vec::new();
    for (&name, now) in &names.changed {
        let Some(ino) = *now else {
            continue;
        };
        let is_there = names.present.get(name).is_some_and(|(old, _)| *old == ino);
        if is_there {
            continue;
        }
        match kind_of(state, ino) {
            Some(file_type) => new.push(NewName {
                name: name.to_vec(),
                ino,
                file_type,
            }),
            None => _ = misfit_name(state, dir, name),
        }
    }
    let mut rest = Vec::new();
    let are_few = new.len() <= SINGLE_MAX;
    for name in new {
        if !are_few || !lost_found::insert(state, dir, &name, plan.cause())? {
            rest.push(name);
        }
    }
    if rest.is_empty() {
        return Ok(());
    }
    let parent = names.parent.unwrap_or_else(|| plan.parent(dir));
    let request = Request {
        ino: dir,
        parent,
        more: &rest,
        keeps_blocks: true,
    };
    match rebuild::directory(state, request, plan.cause()) {
        Err(Error::NoSpace { .. }) => {
            for name in &rest {
                misfit_name(state, dir, &name.name);
            }
            Ok(())
        }
        result => result,
    }
}

fn kind_of(state: &State<'_>, ino: Ino) -> Option<FileType> {
    match state.inodes.get(ino).kind {
        Kind::File(file_type) => Some(file_type),
        _ => None,
    }
}
