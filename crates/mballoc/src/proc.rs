//! What the allocator tells of itself in the forms of `/proc/fs/ext4/*/mb_*`.

use std::fmt;

use uext4_ondisk::GroupNr;

use crate::allocator::Allocator;
use crate::index::GroupState;
use crate::stats::{CriterionStats, Stats};

struct Text<F>(F);

impl<F: Fn(&mut fmt::Formatter<'_>) -> fmt::Result> fmt::Display for Text<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.0)(f)
    }
}

fn criterion(f: &mut fmt::Formatter<'_>, name: &str, stats: &CriterionStats) -> fmt::Result {
    writeln!(f, "\t{name}_stats:")?;
    writeln!(f, "\t\thits: {}", stats.hits)?;
    writeln!(f, "\t\tgroups_considered: {}", stats.groups_considered)?;
    writeln!(f, "\t\textents_scanned: {}", stats.extents_scanned)?;
    writeln!(f, "\t\tuseless_loops: {}", stats.useless_loops)
}

fn totals(f: &mut fmt::Formatter<'_>, stats: &Stats, groups: u32) -> fmt::Result {
    for (name, value) in [
        ("extents_scanned", stats.extents_scanned),
        ("goal_hits", stats.goal_hits),
        ("len_goal_hits", stats.len_goal_hits),
        ("stream_goal_hits", stats.stream_goal_hits),
        ("breaks", stats.breaks),
    ] {
        writeln!(f, "\t\t{name}: {value}")?;
    }
    let generated = stats.buddies_generated;
    writeln!(f, "\tbuddies_generated: {generated}/{groups}")?;
    writeln!(f, "\tbuddies_time_used: {}", stats.generate_nanos)?;
    for (name, value) in [
        ("preallocated", stats.preallocated),
        ("discarded", stats.discarded),
        ("prefetched", stats.prefetched),
        ("trimmed", stats.trimmed),
        ("lock_acquired", stats.lock_acquired),
        ("lock_contended", stats.lock_contended),
        ("trylock_skipped", stats.trylock_skipped),
        ("max_groups", stats.max_groups),
        ("max_extents", stats.max_extents),
    ] {
        writeln!(f, "\t{name}: {value}")?;
    }
    Ok(())
}

impl Allocator {
    /// The text of `mb_stats`, as it is when it is written; what the kernel does not count follows.
    pub fn mb_stats(&self) -> impl fmt::Display {
        Text(|f: &mut fmt::Formatter<'_>| {
            writeln!(f, "mballoc:")?;
            if !self.counters().is_on() {
                writeln!(f, "\tmb stats collection turned off.")?;
                return writeln!(f, "\tTo enable, switch mb_stats on.");
            }
            let stats = self.stats();
            for (name, value) in [
                ("reqs", stats.reqs),
                ("success", stats.success),
                ("groups_scanned", stats.groups_scanned),
            ] {
                writeln!(f, "\t{name}: {value}")?;
            }
            let names = self.space().search.steps();
            for (name, stats) in names.iter().zip(&stats.criteria) {
                criterion(f, name, stats)?;
            }
            totals(f, &stats, self.groups().count())
        })
    }

    /// The text of `mb_groups`: what the buddy of each group tells. A group whose bitmap was not read
    /// has no numbers but that of its free blocks.
    pub fn mb_groups(&self) -> impl fmt::Display {
        Text(|f: &mut fmt::Formatter<'_>| {
            let orders = self.groups().shape.order_max;
            write!(f, "#group: free  frags first [")?;
            for order in 0..=orders {
                write!(f, " {:<5}", format!("2^{order}"))?;
            }
            writeln!(f, " ]")?;
            let bad = self.bad_groups();
            for group in 0..self.groups().count() {
                write!(f, "#{group:<5}: ")?;
                if bad.iter().any(|b| b.group.0 == group) {
                    writeln!(f, "bad")?;
                    continue;
                }
                let Some(info) = self.group_info(GroupNr(group)) else {
                    writeln!(f, "{:<5} not loaded", self.groups().state(group).free)?;
                    continue;
                };
                write!(
                    f,
                    "{:<5} {:<5} {:<5} [",
                    info.free, info.fragments, info.first
                )?;
                for count in info.counters {
                    write!(f, " {count:<5}")?;
                }
                writeln!(f, " ]")?;
            }
            Ok(())
        })
    }

    /// The text of `mb_structs_summary`: how many groups there are of each order of the largest free
    /// chunk, and of each order of the average free run.
    pub fn mb_structs_summary(&self) -> impl fmt::Display {
        Text(|f: &mut fmt::Formatter<'_>| {
            writeln!(f, "optimize_scan: 1")?;
            let order_max = self.groups().shape.order_max;
            let largest = |state: &GroupState| state.largest_order;
            let average = |state: &GroupState| average_order(state, order_max);
            self.by_order(f, "max_free_order_lists", &largest)?;
            self.by_order(f, "avg_fragment_size_lists", &average)
        })
    }

    fn by_order(
        &self,
        f: &mut fmt::Formatter<'_>,
        name: &str,
        order: &dyn Fn(&GroupState) -> Option<u32>,
    ) -> fmt::Result {
        let mut counts = vec![0; self.groups().shape.order_max as usize + 1];
        for group in 0..self.groups().count() {
            if let Some(order) = order(&self.groups().state(group)) {
                counts[order as usize] += 1;
            }
        }
        writeln!(f, "{name}:")?;
        for (order, count) in counts.into_iter().enumerate() {
            writeln!(f, "\tlist_order_{order}_groups: {count}")?;
        }
        Ok(())
    }
}

/// Order of the average free run as the kernel counts it: one less than the binary logarithm.
fn average_order(state: &GroupState, order_max: u32) -> Option<u32> {
    let average = state.average_run().checked_ilog2()?;
    Some(average.saturating_sub(1).min(order_max))
}
