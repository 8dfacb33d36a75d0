//! Registering states that exist once per namespace.

use std::marker::PhantomData;

use super::folding::{Aggregate, AggregatingState, ReducingState};
use super::list::ListState;
use super::map::MapState;
use super::namespaced::Namespaced;
use super::registration::Registration;
use super::sorted_map::SortedMapState;
use super::value::ValueState;
use crate::{BoxError, Codec, Native, NativeType, Ordered, OrderedType, Result};

/// Registers states that exist once per namespace; from
/// [`KeyedStore::namespaced`](crate::KeyedStore::namespaced) or [`Registration::namespaced`].
#[derive(Debug)]
pub struct WithNamespace<'s, K, C, N> {
    state: Registration<'s, K, C>,
    namespace: PhantomData<fn() -> N>,
}

impl<'s, K, C, N> WithNamespace<'s, K, C, N>
where
    K: Send + 'static,
    C: Codec<K>,
    N: OrderedType + 'static,
{
    pub(super) fn new(state: Registration<'s, K, C>) -> Self {
        WithNamespace { state, namespace: PhantomData }
    }

    /// A value per namespace.
    ///
    /// # Errors
    /// See [`KeyedStore::value`](crate::KeyedStore::value).
    pub fn value<V: NativeType + Send + 'static>(
        self,
        name: &str,
    ) -> Result<Namespaced<ValueState<V>, N>> {
        self.value_with(name, Native)
    }

    /// A value per namespace, with a codec of your choice.
    ///
    /// # Errors
    /// See [`KeyedStore::value`](crate::KeyedStore::value).
    pub fn value_with<V: Send + 'static, VC: Codec<V>>(
        self,
        name: &str,
        codec: VC,
    ) -> Result<Namespaced<ValueState<V, VC>, N>> {
        Ok(Namespaced::new(self.state.value_with(name, codec)?, Ordered))
    }

    /// A list per namespace.
    ///
    /// # Errors
    /// See [`KeyedStore::value`](crate::KeyedStore::value).
    pub fn list<T: NativeType + Send + 'static>(
        self,
        name: &str,
    ) -> Result<Namespaced<ListState<T>, N>> {
        self.list_with(name, Native)
    }

    /// A map per namespace.
    ///
    /// # Errors
    /// See [`KeyedStore::value`](crate::KeyedStore::value).
    pub fn map<MK: OrderedType + Send + 'static, V: NativeType + Send + 'static>(
        self,
        name: &str,
    ) -> Result<Namespaced<MapState<MK, V>, N>> {
        self.map_with(name, Ordered, Native)
    }

    /// A sorted map per namespace.
    ///
    /// # Errors
    /// See [`KeyedStore::value`](crate::KeyedStore::value).
    pub fn sorted_map<MK: OrderedType + Send + 'static, V: NativeType + Send + 'static>(
        self,
        name: &str,
    ) -> Result<Namespaced<SortedMapState<MK, V>, N>> {
        self.sorted_map_with(name, Native)
    }

    /// A sorted map per namespace, with a codec of your choice for its values.
    ///
    /// # Errors
    /// See [`KeyedStore::value`](crate::KeyedStore::value).
    pub fn sorted_map_with<MK, V, VC>(
        self,
        name: &str,
        value_codec: VC,
    ) -> Result<Namespaced<SortedMapState<MK, V, VC>, N>>
    where
        MK: OrderedType + Send + 'static,
        V: Send + 'static,
        VC: Codec<V>,
    {
        Ok(Namespaced::new(self.state.sorted_map_with(name, value_codec)?, Ordered))
    }

    /// A reduced value per namespace.
    ///
    /// # Errors
    /// See [`KeyedStore::value`](crate::KeyedStore::value).
    pub fn reducing<V: NativeType + Send + 'static>(
        self,
        name: &str,
        reduce: impl Fn(V, V) -> Result<V, BoxError> + Send + Sync + 'static,
    ) -> Result<Namespaced<ReducingState<V>, N>> {
        self.reducing_with(name, Native, reduce)
    }

    /// An accumulator per namespace.
    ///
    /// # Errors
    /// See [`KeyedStore::value`](crate::KeyedStore::value).
    pub fn aggregating<G: Aggregate>(
        self,
        name: &str,
        aggregate: G,
    ) -> Result<Namespaced<AggregatingState<G>, N>>
    where
        G::Accumulator: NativeType,
    {
        self.aggregating_with(name, Native, aggregate)
    }

    /// A list per namespace, with a codec of your choice.
    ///
    /// # Errors
    /// See [`KeyedStore::value`](crate::KeyedStore::value).
    pub fn list_with<T: Send + 'static, TC: Codec<T>>(
        self,
        name: &str,
        codec: TC,
    ) -> Result<Namespaced<ListState<T, TC>, N>> {
        Ok(Namespaced::new(self.state.list_with(name, codec)?, Ordered))
    }

    /// A map per namespace, with codecs of your choice.
    ///
    /// # Errors
    /// See [`KeyedStore::value`](crate::KeyedStore::value).
    pub fn map_with<MK, V, KC, VC>(
        self,
        name: &str,
        key_codec: KC,
        value_codec: VC,
    ) -> Result<Namespaced<MapState<MK, V, KC, VC>, N>>
    where
        MK: Send + 'static,
        V: Send + 'static,
        KC: Codec<MK>,
        VC: Codec<V>,
    {
        Ok(Namespaced::new(self.state.map_with(name, key_codec, value_codec)?, Ordered))
    }

    /// A reduced value per namespace, with a codec of your choice.
    ///
    /// # Errors
    /// See [`KeyedStore::value`](crate::KeyedStore::value).
    pub fn reducing_with<V: Send + 'static, VC: Codec<V>>(
        self,
        name: &str,
        codec: VC,
        reduce: impl Fn(V, V) -> Result<V, BoxError> + Send + Sync + 'static,
    ) -> Result<Namespaced<ReducingState<V, VC>, N>> {
        Ok(Namespaced::new(self.state.reducing_with(name, codec, reduce)?, Ordered))
    }

    /// An accumulator per namespace, with a codec of your choice.
    ///
    /// # Errors
    /// See [`KeyedStore::value`](crate::KeyedStore::value).
    pub fn aggregating_with<G: Aggregate, VC: Codec<G::Accumulator>>(
        self,
        name: &str,
        codec: VC,
        aggregate: G,
    ) -> Result<Namespaced<AggregatingState<G, VC>, N>> {
        Ok(Namespaced::new(self.state.aggregating_with(name, codec, aggregate)?, Ordered))
    }
}
