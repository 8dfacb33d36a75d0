//! How a store turns typed keys into encoded ones, and which of them it takes.

use std::marker::PhantomData;

use crate::{
    Codec, Error, ErrorKind, Key, KeyGroup, KeyGroupRange, KeyHashVersion, MaxParallelism,
    OpenRequest, Result,
};

/// The key codec of a store, and the rules that a key must keep.
pub(crate) struct KeyRules<K, C> {
    pub(crate) codec: C,
    pub(crate) key_groups: KeyGroupRange,
    max_parallelism: MaxParallelism,
    key_hash: KeyHashVersion,
    key: PhantomData<fn() -> K>,
}

impl<K, C: Codec<K>> KeyRules<K, C> {
    pub(crate) fn new(request: &OpenRequest, codec: C) -> Self {
        KeyRules {
            codec,
            key_groups: request.key_groups,
            max_parallelism: request.max_parallelism,
            key_hash: request.key_hash,
            key: PhantomData,
        }
    }

    /// Encodes, hashes and checks a key. After an error `into` holds some key, and it is not to be
    /// used.
    #[inline(always)]
    pub(crate) fn encode(&self, key: &K, into: &mut Key) -> Result<()> {
        self.encode_any(key, into)?;
        self.check_owned(into)
    }

    /// As [`encode`](KeyRules::encode), also for keys of other instances.
    #[inline(always)]
    pub(crate) fn encode_any(&self, key: &K, into: &mut Key) -> Result<()> {
        if self.key_hash == KeyHashVersion::EngineGroups {
            return Err(groups_from_engine());
        }
        into.refill(self.max_parallelism, |out| self.codec.encode(key, out))
    }

    /// Takes bytes that the engine encoded, with the group it assigned.
    pub(crate) fn take_encoded(&self, bytes: &[u8], group: KeyGroup, into: &mut Key) -> Result<()> {
        into.refill_with_group(bytes, group)?;
        if self.key_hash != KeyHashVersion::EngineGroups
            && self.max_parallelism.group_of_hash(into.as_ref().hash()) != group
        {
            return Err(Error::new(
                ErrorKind::InvalidUsage,
                format!("key group {group} is not the one that the key's hash gives"),
            )
            .advice(
                "open the instance with KeyHashVersion::EngineGroups to assign groups yourself",
            ));
        }
        self.check_owned(into)
    }

    #[inline(always)]
    fn check_owned(&self, key: &Key) -> Result<()> {
        if !self.key_groups.contains(key.as_ref().group()) {
            return Err(crate::foreign_key(key.as_ref(), self.key_groups));
        }
        Ok(())
    }
}

impl<K, C: Clone> Clone for KeyRules<K, C> {
    fn clone(&self) -> Self {
        KeyRules { codec: self.codec.clone(), key: PhantomData, ..*self }
    }
}

#[cold]
fn groups_from_engine() -> Error {
    Error::new(
        ErrorKind::InvalidUsage,
        "the engine assigns key groups, the store cannot derive one",
    )
    .advice("pass encoded keys with the engine's groups (set_encoded_key, KeyedBackend::multi_get)")
}
