//! Names and numbers of enumerations.

use super::{
    Btf, Kind,
    header::word,
    record::{ENUMERATOR, ENUMERATOR64, Record},
};

impl<'a> Btf<'a> {
    /// Returns the names and numbers of an enumeration, in order. `None` if it does not exist or is malformed.
    #[must_use]
    pub fn enumeration(&self, name: &str) -> Option<Vec<(&'a str, i64)>> {
        let id = [Kind::Enum, Kind::Enum64].into_iter().find_map(|kind| self.find(name, kind))?;
        let record = self.record(id).ok()?;
        let size = if record.kind == Some(Kind::Enum) { ENUMERATOR } else { ENUMERATOR64 };
        let named = |bytes| Some((str::from_utf8(self.string_at(word(bytes, 0)?)?).ok()?, number(&record, bytes)?));
        record.rest.chunks_exact(size).map(named).collect()
    }
}

/// Returns the number of an enumerator. It is signed if the record's flag is set.
fn number(record: &Record<'_>, enumerator: &[u8]) -> Option<i64> {
    let low = word(enumerator, 4)?;
    Some(match word(enumerator, 8) {
        Some(high) => (u64::from(high) << 32 | u64::from(low)).cast_signed(),
        None if record.flag => low.cast_signed().into(),
        None => low.into(),
    })
}
