//! A record's key: encoded once, hashed once, used for every state.

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::{Error, ErrorKind, KeyGroup, MaxParallelism, Result};

/// The longest encoded key, namespace or map key that is accepted: 64 KiB.
pub const MAX_KEY_LEN: usize = 64 * 1024;

/// Which function turns key bytes into a key group. Part of every snapshot.
///
/// A changed hash would send keys to other groups than the snapshot's, so a snapshot with an
/// unknown version is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub enum KeyHashVersion {
    /// XXH3-64 (seed 0) of the encoded key; the group is
    /// [`MaxParallelism::group_of_hash`].
    #[default]
    Xxh3V1,
    /// The engine brings the key group with each key (Flink). Weir still hashes the bytes for its
    /// own tables, but never derives a group from them.
    EngineGroups,
}

/// The stable hash of encoded key bytes: the same in every process, on every platform, for ever.
#[inline]
pub fn key_hash(bytes: &[u8]) -> u64 {
    // Keys of one word are the most common ones. With a length known when this is compiled nothing
    // is left of the hash but two multiplications; otherwise it is a call with a choice of ten ways.
    match <&[u8; 8]>::try_from(bytes) {
        Ok(word) => xxh3_64(word),
        Err(_) => hash_of_any(bytes),
    }
}

#[inline(never)]
fn hash_of_any(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// The key group of a typed key, as a store that hashes its keys itself assigns it. An engine that
/// partitions records calls it with the codec of the store's keys.
///
/// ```
/// use weir_state_api::{MaxParallelism, Ordered, key_group_of, subtask_of_group};
///
/// let max = MaxParallelism::default();
/// let group = key_group_of(&Ordered, &"ann".to_string(), max)?;
/// let subtask = subtask_of_group(max, 3, group);
/// assert!(subtask < 3);
/// # Ok::<(), weir_state_api::Error>(())
/// ```
///
/// # Errors
/// When the key cannot be encoded or is longer than [`MAX_KEY_LEN`].
pub fn key_group_of<K>(
    codec: &impl crate::Codec<K>,
    key: &K,
    max_parallelism: MaxParallelism,
) -> Result<KeyGroup> {
    let mut bytes = Vec::new();
    codec.encode(key, &mut bytes)?;
    Ok(KeyRef::new(&bytes, max_parallelism)?.group())
}

/// An encoded key with its hash and key group, borrowed from whoever encoded it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyRef<'a> {
    bytes: &'a [u8],
    hash: u64,
    group: KeyGroup,
}

impl<'a> KeyRef<'a> {
    /// Hashes `bytes` and derives the key group.
    ///
    /// # Errors
    /// [`TooLarge`](ErrorKind::TooLarge) beyond [`MAX_KEY_LEN`].
    #[inline]
    pub fn new(bytes: &'a [u8], max_parallelism: MaxParallelism) -> Result<Self> {
        check_len(bytes)?;
        let hash = key_hash(bytes);
        Ok(KeyRef { bytes, hash, group: max_parallelism.group_of_hash(hash) })
    }

    /// Takes the key group from the engine instead of deriving it.
    ///
    /// # Errors
    /// [`TooLarge`](ErrorKind::TooLarge) beyond [`MAX_KEY_LEN`].
    #[inline]
    pub fn with_group(bytes: &'a [u8], group: KeyGroup) -> Result<Self> {
        check_len(bytes)?;
        Ok(KeyRef { bytes, hash: key_hash(bytes), group })
    }

    /// A key whose hash and group are known.
    #[inline(always)]
    pub(crate) fn from_parts(bytes: &'a [u8], hash: u64, group: KeyGroup) -> Self {
        KeyRef { bytes, hash, group }
    }

    /// The encoded key.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The stable 64-bit hash of the encoded key.
    #[inline]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The key group.
    #[inline]
    pub fn group(&self) -> KeyGroup {
        self.group
    }
}

/// An owned [`KeyRef`]; its buffer is reused from key to key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    bytes: Vec<u8>,
    hash: u64,
    /// The length of `bytes` once more, narrower. Borrowing a key right after it was set must not
    /// copy two neighbouring words that were stored one by one: such a wide load cannot be forwarded
    /// from the stores, so it waits until they reach the cache, and no two accesses overlap. It made
    /// a typed read of a large heap state three times slower.
    len: u32,
    group: KeyGroup,
}

impl Key {
    /// The owned form of a borrowed key.
    pub fn from_ref(key: KeyRef<'_>) -> Self {
        let len = key.bytes.len() as u32; // at most MAX_KEY_LEN
        Key { bytes: key.bytes.to_vec(), hash: key.hash, len, group: key.group }
    }

    /// Borrows the key for a backend call.
    #[inline(always)]
    pub fn as_ref(&self) -> KeyRef<'_> {
        let bytes = self.bytes.get(..self.len as usize).unwrap_or_default();
        KeyRef { bytes, hash: self.hash, group: self.group }
    }

    /// Replaces the key: `encode` writes the new bytes into the emptied buffer.
    ///
    /// # Errors
    /// Those of `encode`, and [`TooLarge`](ErrorKind::TooLarge) beyond [`MAX_KEY_LEN`]; the key is
    /// then unspecified but valid.
    #[inline(always)]
    pub fn refill(
        &mut self,
        max_parallelism: MaxParallelism,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        self.bytes.clear();
        self.len = 0;
        encode(&mut self.bytes)?;
        check_len(&self.bytes)?;
        self.len = self.bytes.len() as u32; // checked
        self.hash = key_hash(&self.bytes);
        self.group = max_parallelism.group_of_hash(self.hash);
        Ok(())
    }
}

impl Key {
    /// Replaces the key by another one.
    pub fn refill_from(&mut self, key: KeyRef<'_>) {
        self.bytes.clear();
        self.bytes.extend_from_slice(key.bytes);
        self.len = key.bytes.len() as u32; // at most MAX_KEY_LEN
        (self.hash, self.group) = (key.hash, key.group);
    }

    /// Replaces the key by bytes and a group of the engine's.
    ///
    /// # Errors
    /// [`TooLarge`](ErrorKind::TooLarge) beyond [`MAX_KEY_LEN`]; the key is then unchanged.
    pub fn refill_with_group(&mut self, bytes: &[u8], group: KeyGroup) -> Result<()> {
        self.refill_from(KeyRef::with_group(bytes, group)?);
        Ok(())
    }
}

impl Default for Key {
    /// The empty key, in key group 0.
    fn default() -> Self {
        Key { bytes: Vec::new(), hash: key_hash(&[]), len: 0, group: KeyGroup(0) }
    }
}

#[inline]
fn check_len(bytes: &[u8]) -> Result<()> {
    if bytes.len() > MAX_KEY_LEN {
        return Err(too_long("key", bytes.len()));
    }
    Ok(())
}

/// Checks the length of another part of an address.
#[inline]
pub(crate) fn check_part_len(what: &str, bytes: &[u8]) -> Result<()> {
    if bytes.len() > MAX_KEY_LEN {
        return Err(too_long(what, bytes.len()));
    }
    Ok(())
}

#[cold]
fn too_long(what: &str, len: usize) -> Error {
    Error::new(
        ErrorKind::TooLarge,
        format!("the encoded {what} has {len} bytes, the limit is {MAX_KEY_LEN}"),
    )
    .advice("use a digest of it, or put the large part into a value")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hash and group of the `u64` key 1, as `Ordered` encodes it.
    const GOLDEN_ONE: (u64, u16) = (0xf36b_4a1a_44f7_8bf3, 34);

    /// The hash decides where every stored key lives. These vectors may never change.
    #[test]
    fn golden_hashes_and_groups() {
        let max = MaxParallelism::default();
        let groups = |bytes: &[u8]| {
            let key = KeyRef::new(bytes, max).unwrap();
            (key.hash(), key.group().0)
        };
        assert_eq!(groups(b""), (0x2d06_8005_38d3_94c2, 28));
        assert_eq!(groups(b"a"), (0xe6c6_32b6_1e96_4e1f, 15));
        assert_eq!(groups(&1_u64.to_be_bytes()), GOLDEN_ONE);
    }

    #[test]
    fn groups_of_many_keys_are_spread_evenly() {
        let max = MaxParallelism::default();
        let mut counts = [0_u32; 128];
        for i in 0_u64..128_000 {
            let bytes = i.to_be_bytes();
            counts[usize::from(KeyRef::new(&bytes, max).unwrap().group().0)] += 1;
        }
        assert!(counts.iter().all(|&count| (800..1200).contains(&count)), "{counts:?}");
    }

    #[test]
    fn long_keys_are_refused_and_the_engines_group_is_kept() {
        let long = vec![0; MAX_KEY_LEN + 1];
        let max = MaxParallelism::default();
        assert_eq!(KeyRef::new(&long, max).unwrap_err().kind(), ErrorKind::TooLarge);
        assert!(KeyRef::new(&long[1..], max).is_ok());
        assert_eq!(KeyRef::with_group(b"x", KeyGroup(7)).unwrap().group(), KeyGroup(7));
    }
}
