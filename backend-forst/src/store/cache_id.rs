//! What caches know a table by.

use std::fmt;
use std::str::FromStr;

use weir_state_api::ObjectRef;
use xxhash_rust::xxh3::xxh3_128;

/// The identity of a table's content, the same for all instances and after a restart: 128 bits made
/// from the object's path, length and checksum. Names of objects are never reused, so equal ids mean
/// equal bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct CacheId(u128);

impl CacheId {
    /// The id of a table that is an object.
    pub(crate) fn of_object(object: &ObjectRef) -> Self {
        let mut identity = Vec::with_capacity(object.path.len() + 12);
        identity.extend_from_slice(&object.length.to_le_bytes());
        identity.extend_from_slice(&object.crc32.to_le_bytes());
        identity.extend_from_slice(object.path.as_bytes());
        CacheId(xxh3_128(&identity))
    }

    /// An id for a table that is in memory only.
    pub(crate) fn unique() -> Self {
        CacheId(uuid::Uuid::new_v4().as_u128())
    }

    /// Bits that are spread evenly.
    #[inline]
    pub(crate) fn low_bits(self) -> u64 {
        self.0 as u64
    }
}

impl fmt::Display for CacheId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for CacheId {
    type Err = ();

    /// Reads exactly what `Display` writes.
    fn from_str(text: &str) -> Result<Self, ()> {
        let id = u128::from_str_radix(text, 16).map(CacheId).map_err(drop)?;
        if id.to_string() == text { Ok(id) } else { Err(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_tell_content_apart_and_survive_as_text() {
        let object = ObjectRef::new("a/b", 3, 7);
        let id = CacheId::of_object(&object);
        assert_eq!(id, CacheId::of_object(&object.clone().shared()));
        for other in
            [ObjectRef::new("a/c", 3, 7), ObjectRef::new("a/b", 4, 7), ObjectRef::new("a/b", 3, 8)]
        {
            assert_ne!(id, CacheId::of_object(&other));
        }
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_ne!(CacheId::unique(), CacheId::unique());
        for text in ["", "00", "+0000000000000000000000000000001", "zz"] {
            assert!(text.parse::<CacheId>().is_err(), "{text}");
        }
        // Written into names of files: it must not change.
        assert_eq!(id.to_string(), "8128378ac40ef3851ee23abc6aff66b9");
    }
}
