//! What headers before a member say of it: extended headers (x, g), and long names of GNU tar (L,
//! K).

use super::header::text;
use super::pax::{Pax, repeats_a_key};
use crate::error::TarDamage;

/// Most bytes of what global records say: every member to come carries it.
const GLOBAL_MAX: u64 = 16 << 10;

/// What holds for one member.
#[derive(Default)]
pub struct Before {
    /// The extended header, and what it says on top of the global records.
    own: Option<(Vec<u8>, Pax)>,
    /// L: the name.
    pub long_name: Option<Vec<u8>>,
    /// K: the target of a link.
    pub long_link: Option<Vec<u8>>,
}

impl Before {
    /// Takes the contents of a header of `kind` x, X, g, L or K; `global` is what global records
    /// said so far.
    ///
    /// # Errors
    /// [`TarDamage::Kind`] for a second header of one kind, of which some readers take the first,
    /// some the last and some both; records that cannot be read.
    pub fn take(&mut self, kind: u8, body: Vec<u8>, global: &mut Pax) -> Result<(), TarDamage> {
        let is_second = match kind {
            b'g' => {
                read_global(global, &body)?;
                if let Some((records, pax)) = &mut self.own {
                    *pax = global.clone();
                    pax.read(records)?;
                }
                false
            }
            b'L' => self.long_name.replace(text(&body).to_vec()).is_some(),
            b'K' => self.long_link.replace(text(&body).to_vec()).is_some(),
            _ => {
                let mut pax = global.clone();
                pax.read(&body)?;
                self.own.replace((body, pax)).is_some()
            }
        };
        let why = "a second one for the same member";
        match is_second {
            true => Err(TarDamage::Kind { kind, why }),
            false => Ok(()),
        }
    }

    /// All records that hold for the member: its own override the global ones, also those of a
    /// global header that stands between them and the member.
    ///
    /// # Errors
    /// [`TarDamage::Pax`] if a record and a header of GNU tar give two names or two targets: GNU
    /// tar takes that of the record, Go that of the header, bsdtar and Python go by the order.
    pub fn pax(&mut self, global: &Pax) -> Result<Pax, TarDamage> {
        let own = self.own.take();
        let pax = own.map_or_else(|| global.clone(), |(_, pax)| pax);
        let name = pax.sparse.name.as_ref().or(pax.path.as_ref());
        for (key, record, header) in [
            ("path", name, &self.long_name),
            ("linkpath", pax.link_path.as_ref(), &self.long_link),
        ] {
            let (key, why) = (key.to_owned(), "a header of GNU tar says something else");
            if record
                .zip(header.as_ref())
                .is_some_and(|(one, other)| one != other)
            {
                return Err(TarDamage::Pax { key, why });
            }
        }
        Ok(pax)
    }
}

/// Takes the records of a global header. Of two such headers GNU tar goes by the last, others by
/// both: the last must say all that the first says. Of two records with one key it goes by the
/// first, others by the last.
fn read_global(global: &mut Pax, records: &[u8]) -> Result<(), TarDamage> {
    let mut last = Pax::default();
    last.read(records)?;
    global.read(records)?;
    let bad = |why| Err(TarDamage::Kind { kind: b'g', why });
    if *global != last {
        return bad("it leaves out what an earlier one says");
    }
    if last.is_of_one_member() {
        return bad("it gives every member the same name, size or holes");
    }
    if repeats_a_key(records)? {
        return bad("it says something twice");
    }
    let (what, size, limit) = ("global records", global.len(), GLOBAL_MAX);
    match size > limit {
        true => Err(TarDamage::TooLarge { what, size, limit }),
        false => Ok(()),
    }
}
