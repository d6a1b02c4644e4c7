//! All claims there are: a new one gets its line in its room's list.

use crate::claim::{Claim, Failure};
use crate::{bh_lru, extent_status, mballoc, mbcache, writeback};

/// Every claim, room by room.
pub fn claims() -> Vec<&'static Claim> {
    [
        bh_lru::CLAIMS,
        extent_status::CLAIMS,
        mballoc::CLAIMS,
        mbcache::CLAIMS,
        writeback::CLAIMS,
    ]
    .concat()
}

/// The claims named, in the order of the registry; all of them if none is named.
///
/// # Errors
/// [`Failure::Usage`] for a name that no claim has.
pub fn named(names: &[String]) -> Result<Vec<&'static Claim>, Failure> {
    let all = claims();
    for name in names {
        if !all.iter().any(|claim| claim.name == name) {
            let known: Vec<_> = all.iter().map(|claim| claim.name).collect();
            return Err(Failure::Usage(format!(
                "no claim is called {name:?}; there are: {}",
                known.join(", ")
            )));
        }
    }
    let wanted = |claim: &&Claim| names.is_empty() || names.iter().any(|name| name == claim.name);
    Ok(all.into_iter().filter(wanted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_well_formed() {
        let all = claims();
        for (index, claim) in all.iter().enumerate() {
            assert!(
                all[..index].iter().all(|other| other.name != claim.name),
                "two claims are called {}",
                claim.name
            );
            for text in [claim.name, claim.title, claim.source, claim.analysis] {
                assert!(!text.is_empty() && !text.contains('\n'), "{}", claim.name);
            }
            assert!(!claim.policies.is_empty(), "{}", claim.name);
            for policy in claim.policies {
                (claim.accepts)(policy).unwrap();
            }
            for gate in claim.gates {
                assert!(!gate.what.contains('\n'), "{}", gate.what);
            }
        }
    }

    #[test]
    fn an_unknown_name_is_refused() {
        let error = named(&["no-such-claim".to_owned()]).unwrap_err();
        assert!(error.to_string().contains("no-such-claim"));
        assert!(matches!(error, Failure::Usage(_)));
    }
}
