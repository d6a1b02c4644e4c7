//! On whose behalf a thread works: it decides whether the blocks that are kept for the superuser may be
//! used. Permissions are not decided here.

use std::cell::Cell;

/// Whoever asked for what a thread does. The superuser, where nothing else was said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

thread_local! {
    static CURRENT: Cell<Caller> = const { Cell::new(Caller { uid: 0, gid: 0 }) };
}

/// Puts back who was there before.
struct Before(Caller);

impl Drop for Before {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

impl Caller {
    /// Who this thread works for.
    pub fn current() -> Self {
        CURRENT.get()
    }

    /// Does `f` on the caller's behalf. What other threads do for it later, writing back what is
    /// promised already, is on nobody's.
    pub fn run<R>(self, f: impl FnOnce() -> R) -> R {
        let _before = Before(CURRENT.replace(self));
        f()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_for_what_is_run_and_no_longer() {
        let caller = Caller { uid: 5, gid: 6 };
        assert_eq!(caller.run(Caller::current), caller);
        assert_eq!(Caller::current(), Caller::default());
        let panics = std::panic::catch_unwind(|| caller.run(|| panic!("as it must")));
        assert!(panics.is_err());
        assert_eq!(Caller::current().uid, 0);
    }
}
