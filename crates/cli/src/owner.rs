//! Owner and group as command lines give them, by their numbers.

/// What is given of the two: at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The user.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
}

/// Reads UID, UID:GID or :GID.
///
/// # Errors
/// A sentence about what is no number, or that nothing is given.
pub fn parse(text: &str) -> Result<Owner, String> {
    let number = |text: &str| match text {
        "" => Ok(None),
        text => {
            let number = text.parse::<u32>().ok().filter(|id| *id != u32::MAX);
            number
                .map(Some)
                .ok_or_else(|| format!("{text:?} is no number of a user or group"))
        }
    };
    let (uid, gid) = text.split_once(':').unwrap_or((text, ""));
    let owner = Owner {
        uid: number(uid)?,
        gid: number(gid)?,
    };
    match owner {
        Owner {
            uid: None,
            gid: None,
        } => Err("neither owner nor group".to_owned()),
        owner => Ok(owner),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_numbers() {
        let owner = |uid, gid| Ok(Owner { uid, gid });
        assert_eq!(parse("7"), owner(Some(7), None));
        assert_eq!(parse("7:"), owner(Some(7), None));
        assert_eq!(parse(":8"), owner(None, Some(8)));
        assert_eq!(parse("0:70000"), owner(Some(0), Some(70_000)));
        for bad in ["", ":", "root", "1:x", "-1", "4294967295"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
