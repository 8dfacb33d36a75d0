//! Registering states that exist once per namespace.

use std::marker::PhantomData;
use std::sync::Arc;

use super::access::Slot;
use super::folding::{Aggregate, AggregatingState, ReducingState};
use super::list::ListState;
use super::map::MapState;
use super::namespaced::Namespaced;
use super::store::KeyedStore;
use super::value::ValueState;
use crate::{
    BoxError, Codec, CodecId, Native, NativeType, Ordered, OrderedType, Result, StateKind,
};

/// Registers states that exist once per namespace; from [`KeyedStore::namespaced`].
#[derive(Debug)]
pub struct WithNamespace<'s, K, C, N> {
    store: &'s mut KeyedStore<K, C>,
    namespace: PhantomData<fn() -> N>,
}

impl<'s, K, C, N> WithNamespace<'s, K, C, N>
where
    K: Send + 'static,
    C: Codec<K>,
    N: OrderedType + 'static,
{
    pub(super) fn new(store: &'s mut KeyedStore<K, C>) -> Self {
        WithNamespace { store, namespace: PhantomData }
    }

    fn slot(
        &mut self,
        name: &str,
        kind: StateKind,
        map_key: Option<CodecId>,
        value: CodecId,
    ) -> Result<Slot> {
        let namespace = Codec::<N>::id(&Ordered);
        self.store.slot(name, kind, namespace, map_key, value)
    }

    /// A value per namespace.
    ///
    /// # Errors
    /// See [`KeyedStore::value`].
    pub fn value<V: NativeType + Send + 'static>(
        self,
        name: &str,
    ) -> Result<Namespaced<ValueState<V>, N>> {
        self.value_with(name, Native)
    }

    /// A value per namespace, with a codec of your choice.
    ///
    /// # Errors
    /// See [`KeyedStore::value`].
    pub fn value_with<V: Send + 'static, VC: Codec<V>>(
        mut self,
        name: &str,
        codec: VC,
    ) -> Result<Namespaced<ValueState<V, VC>, N>> {
        let slot = self.slot(name, StateKind::Value, None, codec.id())?;
        Ok(Namespaced::new(ValueState::new(slot, codec), Ordered))
    }

    /// A list per namespace.
    ///
    /// # Errors
    /// See [`KeyedStore::value`].
    pub fn list<T: NativeType + Send + 'static>(
        self,
        name: &str,
    ) -> Result<Namespaced<ListState<T>, N>> {
        self.list_with(name, Native)
    }

    /// A map per namespace.
    ///
    /// # Errors
    /// See [`KeyedStore::value`].
    pub fn map<MK: OrderedType + Send + 'static, V: NativeType + Send + 'static>(
        self,
        name: &str,
    ) -> Result<Namespaced<MapState<MK, V>, N>> {
        self.map_with(name, Ordered, Native)
    }

    /// A reduced value per namespace.
    ///
    /// # Errors
    /// See [`KeyedStore::value`].
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
    /// See [`KeyedStore::value`].
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
    /// See [`KeyedStore::value`].
    pub fn list_with<T: Send + 'static, TC: Codec<T>>(
        mut self,
        name: &str,
        codec: TC,
    ) -> Result<Namespaced<ListState<T, TC>, N>> {
        let slot = self.slot(name, StateKind::List, None, codec.id())?;
        Ok(Namespaced::new(ListState::new(slot, codec), Ordered))
    }

    /// A map per namespace, with codecs of your choice.
    ///
    /// # Errors
    /// See [`KeyedStore::value`].
    pub fn map_with<MK, V, KC, VC>(
        mut self,
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
        let slot = self.slot(name, StateKind::Map, Some(key_codec.id()), value_codec.id())?;
        Ok(Namespaced::new(MapState::new(slot, key_codec, value_codec), Ordered))
    }

    /// A reduced value per namespace, with a codec of your choice.
    ///
    /// # Errors
    /// See [`KeyedStore::value`].
    pub fn reducing_with<V: Send + 'static, VC: Codec<V>>(
        mut self,
        name: &str,
        codec: VC,
        reduce: impl Fn(V, V) -> Result<V, BoxError> + Send + Sync + 'static,
    ) -> Result<Namespaced<ReducingState<V, VC>, N>> {
        let slot = self.slot(name, StateKind::Reducing, None, codec.id())?;
        let value = ValueState::new(slot, codec);
        Ok(Namespaced::new(ReducingState::new(value, Arc::new(reduce)), Ordered))
    }

    /// An accumulator per namespace, with a codec of your choice.
    ///
    /// # Errors
    /// See [`KeyedStore::value`].
    pub fn aggregating_with<G: Aggregate, VC: Codec<G::Accumulator>>(
        mut self,
        name: &str,
        codec: VC,
        aggregate: G,
    ) -> Result<Namespaced<AggregatingState<G, VC>, N>> {
        let slot = self.slot(name, StateKind::Aggregating, None, codec.id())?;
        let value = ValueState::new(slot, codec);
        Ok(Namespaced::new(AggregatingState::new(value, Arc::new(aggregate)), Ordered))
    }
}
