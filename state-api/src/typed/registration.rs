//! Registering states: with a TTL, in namespaces, or plainly.

use std::sync::Arc;

use super::access::Slot;
use super::folding::{Aggregate, AggregatingState, ReducingState};
use super::list::ListState;
use super::map::MapState;
use super::sorted_map::SortedMapState;
use super::store::KeyedStore;
use super::timers::TimerState;
use super::value::ValueState;
use super::with_namespace::WithNamespace;
use crate::{
    BoxError, Codec, CodecId, Native, NativeType, Ordered, OrderedType, Result, StateKind, Ttl,
};

impl<K: Send + 'static, C: Codec<K>> KeyedStore<K, C> {
    /// A value state with the default codec.
    ///
    /// # Errors
    /// For this and all other registrations: [`Incompatible`](crate::ErrorKind::Incompatible) when the name
    /// is taken by another kind or codec, in this instance or in what it was restored from. The
    /// same registration again gives the same state. A state that was restored with a TTL loses it:
    /// what has expired by then is gone, the rest stays.
    pub fn value<V: NativeType + Send + 'static>(&mut self, name: &str) -> Result<ValueState<V>> {
        self.value_with(name, Native)
    }

    /// A value state with a codec of your choice.
    ///
    /// # Errors
    /// See [`value`](KeyedStore::value).
    pub fn value_with<V: Send + 'static, VC: Codec<V>>(
        &mut self,
        name: &str,
        codec: VC,
    ) -> Result<ValueState<V, VC>> {
        Registration::new(self, None).value_with(name, codec)
    }

    /// A list state with the default codec.
    ///
    /// # Errors
    /// See [`value`](KeyedStore::value).
    pub fn list<T: NativeType + Send + 'static>(&mut self, name: &str) -> Result<ListState<T>> {
        self.list_with(name, Native)
    }

    /// A list state with a codec of your choice.
    ///
    /// # Errors
    /// See [`value`](KeyedStore::value).
    pub fn list_with<T: Send + 'static, TC: Codec<T>>(
        &mut self,
        name: &str,
        codec: TC,
    ) -> Result<ListState<T, TC>> {
        Registration::new(self, None).list_with(name, codec)
    }

    /// A map state with the default codecs.
    ///
    /// # Errors
    /// See [`value`](KeyedStore::value).
    pub fn map<MK: OrderedType + Send + 'static, V: NativeType + Send + 'static>(
        &mut self,
        name: &str,
    ) -> Result<MapState<MK, V>> {
        self.map_with(name, Ordered, Native)
    }

    /// A map state with codecs of your choice.
    ///
    /// # Errors
    /// See [`value`](KeyedStore::value).
    pub fn map_with<MK, V, KC, VC>(
        &mut self,
        name: &str,
        key_codec: KC,
        value_codec: VC,
    ) -> Result<MapState<MK, V, KC, VC>>
    where
        MK: Send + 'static,
        V: Send + 'static,
        KC: Codec<MK>,
        VC: Codec<V>,
    {
        Registration::new(self, None).map_with(name, key_codec, value_codec)
    }

    /// A sorted map state with the default codecs.
    ///
    /// # Errors
    /// See [`value`](KeyedStore::value).
    pub fn sorted_map<MK: OrderedType + Send + 'static, V: NativeType + Send + 'static>(
        &mut self,
        name: &str,
    ) -> Result<SortedMapState<MK, V>> {
        self.sorted_map_with(name, Native)
    }

    /// A sorted map state with a codec of your choice for its values.
    ///
    /// # Errors
    /// See [`value`](KeyedStore::value).
    pub fn sorted_map_with<MK, V, VC>(
        &mut self,
        name: &str,
        value_codec: VC,
    ) -> Result<SortedMapState<MK, V, VC>>
    where
        MK: OrderedType + Send + 'static,
        V: Send + 'static,
        VC: Codec<V>,
    {
        Registration::new(self, None).sorted_map_with(name, value_codec)
    }

    /// A reducing state with the default codec.
    ///
    /// # Errors
    /// See [`value`](KeyedStore::value).
    pub fn reducing<V: NativeType + Send + 'static>(
        &mut self,
        name: &str,
        reduce: impl Fn(V, V) -> Result<V, BoxError> + Send + Sync + 'static,
    ) -> Result<ReducingState<V>> {
        self.reducing_with(name, Native, reduce)
    }

    /// A reducing state with a codec of your choice.
    ///
    /// # Errors
    /// See [`value`](KeyedStore::value).
    pub fn reducing_with<V: Send + 'static, VC: Codec<V>>(
        &mut self,
        name: &str,
        codec: VC,
        reduce: impl Fn(V, V) -> Result<V, BoxError> + Send + Sync + 'static,
    ) -> Result<ReducingState<V, VC>> {
        Registration::new(self, None).reducing_with(name, codec, reduce)
    }

    /// An aggregating state with the default codec of the accumulator.
    ///
    /// # Errors
    /// See [`value`](KeyedStore::value).
    pub fn aggregating<G: Aggregate>(
        &mut self,
        name: &str,
        aggregate: G,
    ) -> Result<AggregatingState<G>>
    where
        G::Accumulator: NativeType,
    {
        self.aggregating_with(name, Native, aggregate)
    }

    /// An aggregating state with a codec of your choice for the accumulator.
    ///
    /// # Errors
    /// See [`value`](KeyedStore::value).
    pub fn aggregating_with<G: Aggregate, VC: Codec<G::Accumulator>>(
        &mut self,
        name: &str,
        codec: VC,
        aggregate: G,
    ) -> Result<AggregatingState<G, VC>> {
        Registration::new(self, None).aggregating_with(name, codec, aggregate)
    }

    /// A queue of timers with namespaces of type `N`.
    ///
    /// # Errors
    /// See [`value`](KeyedStore::value).
    pub fn timers<N: OrderedType + 'static>(&mut self, name: &str) -> Result<TimerState<N>> {
        let namespace = Codec::<N>::id(&Ordered);
        let slot = self.slot(name, StateKind::Timers, namespace, None, unit(), None)?;
        Ok(TimerState::new(slot, Ordered))
    }

    /// Registers states that exist once per namespace of type `N`.
    pub fn namespaced<N: OrderedType + 'static>(&mut self) -> WithNamespace<'_, K, C, N> {
        Registration::new(self, None).namespaced()
    }

    /// Registers states whose values expire.
    ///
    /// A restored state may have had another TTL, or none: its values are converted, see
    /// [`ttl::convert`](crate::ttl::convert). Within one instance the TTL of a state does not change
    /// ([`Incompatible`](crate::ErrorKind::Incompatible)).
    ///
    /// ```
    /// # use weir_backend_heap::HeapBackendFactory;
    /// # use std::time::Duration;
    /// # use weir_state_api::{KeyedStore, Ttl};
    /// let mut store = KeyedStore::<String>::open_in_memory(&HeapBackendFactory::default())?;
    /// let hour = Ttl::new(Duration::from_secs(3_600));
    /// let last = store.with_ttl(hour).value::<String>("last")?;
    /// store.set_key(&"ann".to_string())?;
    /// last.set(&mut store, &"kept for an hour".into())?;
    /// last.set_with_ttl(&mut store, &"for a second".into(), Duration::from_secs(1))?;
    /// assert_eq!(last.get(&mut store).wait()?.as_deref(), Some("for a second"));
    /// # Ok::<(), weir_state_api::Error>(())
    /// ```
    pub fn with_ttl(&mut self, ttl: Ttl) -> Registration<'_, K, C> {
        Registration::new(self, Some(ttl))
    }
}

/// Registers a state whose values expire; from [`KeyedStore::with_ttl`].
#[derive(Debug)]
pub struct Registration<'s, K, C = Ordered> {
    store: &'s mut KeyedStore<K, C>,
    ttl: Option<Ttl>,
    namespace: CodecId,
}

impl<'s, K: Send + 'static, C: Codec<K>> Registration<'s, K, C> {
    fn new(store: &'s mut KeyedStore<K, C>, ttl: Option<Ttl>) -> Self {
        Registration { store, ttl, namespace: unit() }
    }

    /// The same for a state that exists once per namespace of type `N`.
    pub fn namespaced<N: OrderedType + 'static>(mut self) -> WithNamespace<'s, K, C, N> {
        self.namespace = Codec::<N>::id(&Ordered);
        WithNamespace::new(self)
    }

    fn slot(
        self,
        name: &str,
        kind: StateKind,
        map_key: Option<CodecId>,
        value: CodecId,
    ) -> Result<Slot> {
        self.store.slot(name, kind, self.namespace, map_key, value, self.ttl)
    }

    /// A value state with the default codec.
    ///
    /// # Errors
    /// See [`KeyedStore::value`]; [`InvalidUsage`](crate::ErrorKind::InvalidUsage) for a TTL below one
    /// millisecond.
    pub fn value<V: NativeType + Send + 'static>(self, name: &str) -> Result<ValueState<V>> {
        self.value_with(name, Native)
    }

    /// A value state with a codec of your choice.
    ///
    /// # Errors
    /// See [`value`](Registration::value).
    pub fn value_with<V: Send + 'static, VC: Codec<V>>(
        self,
        name: &str,
        codec: VC,
    ) -> Result<ValueState<V, VC>> {
        let slot = self.slot(name, StateKind::Value, None, codec.id())?;
        Ok(ValueState::new(slot, codec))
    }

    /// A list state with the default codec.
    ///
    /// # Errors
    /// See [`value`](Registration::value).
    pub fn list<T: NativeType + Send + 'static>(self, name: &str) -> Result<ListState<T>> {
        self.list_with(name, Native)
    }

    /// A list state with a codec of your choice.
    ///
    /// # Errors
    /// See [`value`](Registration::value).
    pub fn list_with<T: Send + 'static, TC: Codec<T>>(
        self,
        name: &str,
        codec: TC,
    ) -> Result<ListState<T, TC>> {
        let slot = self.slot(name, StateKind::List, None, codec.id())?;
        Ok(ListState::new(slot, codec))
    }

    /// A map state with the default codecs.
    ///
    /// # Errors
    /// See [`value`](Registration::value).
    pub fn map<MK: OrderedType + Send + 'static, V: NativeType + Send + 'static>(
        self,
        name: &str,
    ) -> Result<MapState<MK, V>> {
        self.map_with(name, Ordered, Native)
    }

    /// A map state with codecs of your choice.
    ///
    /// # Errors
    /// See [`value`](Registration::value).
    pub fn map_with<MK, V, KC, VC>(
        self,
        name: &str,
        key_codec: KC,
        value_codec: VC,
    ) -> Result<MapState<MK, V, KC, VC>>
    where
        MK: Send + 'static,
        V: Send + 'static,
        KC: Codec<MK>,
        VC: Codec<V>,
    {
        let slot = self.slot(name, StateKind::Map, Some(key_codec.id()), value_codec.id())?;
        Ok(MapState::new(slot, key_codec, value_codec))
    }

    /// A sorted map state with the default codecs.
    ///
    /// # Errors
    /// See [`value`](Registration::value).
    pub fn sorted_map<MK: OrderedType + Send + 'static, V: NativeType + Send + 'static>(
        self,
        name: &str,
    ) -> Result<SortedMapState<MK, V>> {
        self.sorted_map_with(name, Native)
    }

    /// A sorted map state with a codec of your choice for its values.
    ///
    /// # Errors
    /// See [`value`](Registration::value).
    pub fn sorted_map_with<MK, V, VC>(
        self,
        name: &str,
        value_codec: VC,
    ) -> Result<SortedMapState<MK, V, VC>>
    where
        MK: OrderedType + Send + 'static,
        V: Send + 'static,
        VC: Codec<V>,
    {
        let map_key = Codec::<MK>::id(&Ordered);
        let slot = self.slot(name, StateKind::SortedMap, Some(map_key), value_codec.id())?;
        Ok(SortedMapState::new(MapState::new(slot, Ordered, value_codec)))
    }

    /// A reducing state with the default codec.
    ///
    /// # Errors
    /// See [`value`](Registration::value).
    pub fn reducing<V: NativeType + Send + 'static>(
        self,
        name: &str,
        reduce: impl Fn(V, V) -> Result<V, BoxError> + Send + Sync + 'static,
    ) -> Result<ReducingState<V>> {
        self.reducing_with(name, Native, reduce)
    }

    /// A reducing state with a codec of your choice.
    ///
    /// # Errors
    /// See [`value`](Registration::value).
    pub fn reducing_with<V: Send + 'static, VC: Codec<V>>(
        self,
        name: &str,
        codec: VC,
        reduce: impl Fn(V, V) -> Result<V, BoxError> + Send + Sync + 'static,
    ) -> Result<ReducingState<V, VC>> {
        let slot = self.slot(name, StateKind::Reducing, None, codec.id())?;
        Ok(ReducingState::new(ValueState::new(slot, codec), Arc::new(reduce)))
    }

    /// An aggregating state with the default codec of the accumulator.
    ///
    /// # Errors
    /// See [`value`](Registration::value).
    pub fn aggregating<G: Aggregate>(self, name: &str, aggregate: G) -> Result<AggregatingState<G>>
    where
        G::Accumulator: NativeType,
    {
        self.aggregating_with(name, Native, aggregate)
    }

    /// An aggregating state with a codec of your choice for the accumulator.
    ///
    /// # Errors
    /// See [`value`](Registration::value).
    pub fn aggregating_with<G: Aggregate, VC: Codec<G::Accumulator>>(
        self,
        name: &str,
        codec: VC,
        aggregate: G,
    ) -> Result<AggregatingState<G, VC>> {
        let slot = self.slot(name, StateKind::Aggregating, None, codec.id())?;
        Ok(AggregatingState::new(ValueState::new(slot, codec), Arc::new(aggregate)))
    }
}

fn unit() -> CodecId {
    Codec::<()>::id(&Ordered)
}
