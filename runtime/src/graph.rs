//! Building a job: sources, keyed operators, sinks, and the streams between them.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

use weir_state_api::{Error, ErrorKind, KeyedStore, Millis, OrderedType, Result};

use crate::operator::KeyedOperator;
use crate::output::{
    EdgePlan, FlatMapPlan, InboxCell, KeyOf, OutputPlan, Outputs, Partition, key_encoder,
};
use crate::record::{Data, Record};
use crate::sink::Sink;
use crate::source::Source;
use crate::task::{KeyedNode, Node, SinkNode, SourceNode};

/// A job: what is read, computed and written, independent of parallelism and backend.
///
/// ```
/// use weir_runtime::{Context, JobConfig, JobGraph, KeyedOperator, VecSink, VecSource};
/// use weir_state_api::{Result, ValueState};
///
/// struct Count(ValueState<u64>);
/// impl KeyedOperator for Count {
///     type Key = String;
///     type In = String;
///     type Out = (String, u64);
///     type Timer = ();
///     fn process(&mut self, word: String, context: &mut Context<'_, Self>) -> Result<()> {
///         let count = self.0.update(context, |old| old.unwrap_or(0) + 1).wait()?;
///         context.emit((word, count))
///     }
/// }
///
/// let words = ["to", "be", "or", "not", "to", "be"].map(|word| (0, word.to_string()));
/// let counted = VecSink::default();
/// let graph = JobGraph::new("word-count");
/// graph
///     .source("words", VecSource::new(words))?
///     .key_by(|word: &String| word.clone())
///     .process("count", |store| Ok(Count(store.value("count")?)))?
///     .sink("counted", counted.clone())?;
/// let report = weir_runtime::run(&graph, JobConfig::default())?;
/// assert_eq!(report.records_read, 6);
/// assert!(counted.take().contains(&("be".to_string(), 2)));
/// # Ok::<(), weir_state_api::Error>(())
/// ```
pub struct JobGraph {
    name: String,
    nodes: Nodes,
}

type Nodes = Rc<RefCell<Vec<Box<dyn Node>>>>;

impl JobGraph {
    /// An empty job.
    pub fn new(name: impl Into<String>) -> Self {
        JobGraph { name: name.into(), nodes: Rc::default() }
    }

    /// The job's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds a source. `name` identifies its offsets in checkpoints.
    ///
    /// # Errors
    /// For this and all other operators: [`InvalidUsage`](ErrorKind::InvalidUsage) when the name is
    /// empty, taken, or not fit for object names (letters, digits, `-`, `_`, `.`).
    pub fn source<S: Source>(&self, name: &str, source: S) -> Result<Stream<S::Out>> {
        check_name(&self.nodes, name)?;
        let outputs: Outputs<S::Out> = Rc::default();
        let node =
            SourceNode { name: name.into(), source: Arc::new(source), outputs: outputs.clone() };
        self.nodes.borrow_mut().push(Box::new(node));
        Ok(Stream { nodes: self.nodes.clone(), outputs })
    }

    pub(crate) fn nodes(&self) -> std::cell::Ref<'_, Vec<Box<dyn Node>>> {
        self.nodes.borrow()
    }
}

impl fmt::Debug for JobGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> =
            self.nodes.borrow().iter().map(|node| node.name().to_string()).collect();
        f.debug_struct("JobGraph").field("name", &self.name).field("operators", &names).finish()
    }
}

fn check_name(nodes: &Nodes, name: &str) -> Result<()> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || !name.chars().all(fits) {
        return Err(Error::new(
            ErrorKind::InvalidUsage,
            format!(
                "the operator name {name:?} is empty or has characters beside A-Z a-z 0-9 - _ ."
            ),
        ));
    }
    if nodes.borrow().iter().any(|node| node.name() == name) {
        return Err(Error::new(
            ErrorKind::InvalidUsage,
            format!("two operators are called {name:?}"),
        )
        .advice("names identify state in checkpoints: give each operator its own"));
    }
    Ok(())
}

/// A stream of records; clones are the same stream, and every consumer gets every record.
pub struct Stream<T> {
    nodes: Nodes,
    outputs: Outputs<T>,
}

impl<T> Clone for Stream<T> {
    fn clone(&self) -> Self {
        Stream { nodes: self.nodes.clone(), outputs: self.outputs.clone() }
    }
}

impl<T> fmt::Debug for Stream<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").finish_non_exhaustive()
    }
}

impl<T: Data> Stream<T> {
    /// Applies `f` to each value; runs inside the task before it.
    #[must_use]
    pub fn map<U: Data>(&self, f: impl Fn(T) -> U + Clone + Send + 'static) -> Stream<U> {
        self.step(move |record: Record<T>, emit| {
            emit(Record { time: record.time, value: f(record.value) })
        })
    }

    /// Keeps the values for which `f` holds.
    #[must_use]
    pub fn filter(&self, f: impl Fn(&T) -> bool + Clone + Send + 'static) -> Stream<T> {
        self.step(
            move |record: Record<T>, emit| {
                if f(&record.value) { emit(record) } else { Ok(()) }
            },
        )
    }

    /// Maps each value to at most one.
    #[must_use]
    pub fn filter_map<U: Data>(
        &self,
        f: impl Fn(T) -> Option<U> + Clone + Send + 'static,
    ) -> Stream<U> {
        self.step(move |record: Record<T>, emit| match f(record.value) {
            Some(value) => emit(Record { time: record.time, value }),
            None => Ok(()),
        })
    }

    /// Maps each value to any number of values.
    #[must_use]
    pub fn flat_map<U: Data, I: IntoIterator<Item = U>>(
        &self,
        f: impl Fn(T) -> I + Clone + Send + 'static,
    ) -> Stream<U> {
        self.step(move |Record { time, value }, emit| {
            f(value).into_iter().try_for_each(|value| emit(Record { time, value }))
        })
    }

    /// Puts the event time of each record beside its value, for functions that see values only.
    #[must_use]
    pub fn with_time(&self) -> Stream<(Millis, T)> {
        self.step(|Record { time, value }, emit| emit(Record { time, value: (time, value) }))
    }

    fn step<U: Data, F>(&self, f: F) -> Stream<U>
    where
        F: Fn(Record<T>, &mut dyn FnMut(Record<U>) -> Result<()>) -> Result<()>
            + Clone
            + Send
            + 'static,
    {
        let next: Outputs<U> = Rc::default();
        let plan = FlatMapPlan { f, next: next.clone(), input: PhantomData };
        self.outputs.borrow_mut().push(Rc::new(plan));
        Stream { nodes: self.nodes.clone(), outputs: next }
    }

    /// Merges two streams of the same type. A join maps both sides to one enum first.
    #[must_use]
    pub fn union(&self, other: &Stream<T>) -> Union<T> {
        Union { nodes: self.nodes.clone(), inputs: vec![self.clone(), other.clone()] }
    }

    /// Partitions the stream by key: records of one key meet in one subtask, in the order they were
    /// sent by each sender.
    pub fn key_by<K>(&self, key_of: impl Fn(&T) -> K + Send + Sync + 'static) -> KeyedStream<K, T>
    where
        K: Send + 'static,
        K: OrderedType,
    {
        Union { nodes: self.nodes.clone(), inputs: vec![self.clone()] }.key_by(key_of)
    }

    /// Writes the stream with a sink. Subtask `i` of the sink gets the records of subtask `i` of
    /// the operator before.
    ///
    /// # Errors
    /// See [`JobGraph::source`].
    pub fn sink<S: Sink<T>>(&self, name: &str, sink: S) -> Result<()> {
        check_name(&self.nodes, name)?;
        let inboxes: InboxCell<T> = Rc::default();
        connect(std::slice::from_ref(self), &inboxes, &Rc::new(Partition::Forward));
        let node = SinkNode { name: name.into(), sink: Arc::new(sink), inboxes };
        self.nodes.borrow_mut().push(Box::new(node));
        Ok(())
    }
}

/// Several streams of one type, to be keyed together.
pub struct Union<T> {
    nodes: Nodes,
    inputs: Vec<Stream<T>>,
}

impl<T: Data> Union<T> {
    /// Adds one more stream.
    #[must_use]
    pub fn union(mut self, other: &Stream<T>) -> Self {
        self.inputs.push(other.clone());
        self
    }

    /// Partitions all streams by key. Records of different streams meet in no defined order: an
    /// operator whose result must not depend on it waits for the watermark.
    pub fn key_by<K>(self, key_of: impl Fn(&T) -> K + Send + Sync + 'static) -> KeyedStream<K, T>
    where
        K: Send + 'static,
        K: OrderedType,
    {
        KeyedStream { nodes: self.nodes, inputs: self.inputs, key_of: Arc::new(key_of) }
    }
}

impl<T> fmt::Debug for Union<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Union").field("inputs", &self.inputs.len()).finish()
    }
}

fn connect<T: Data>(inputs: &[Stream<T>], inboxes: &InboxCell<T>, partition: &Rc<Partition<T>>) {
    for (input, stream) in inputs.iter().enumerate() {
        let edge = EdgePlan { inboxes: inboxes.clone(), input, partition: partition.clone() };
        let plan: Rc<dyn OutputPlan<T>> = Rc::new(edge);
        stream.outputs.borrow_mut().push(plan);
    }
}

/// A stream partitioned by key.
pub struct KeyedStream<K, T> {
    nodes: Nodes,
    inputs: Vec<Stream<T>>,
    key_of: KeyOf<T, K>,
}

impl<K: Send + 'static, T: Data> KeyedStream<K, T>
where
    K: OrderedType,
{
    /// Runs an operator on each key. `create` opens its states, once per subtask and attempt;
    /// `name` identifies them in checkpoints.
    ///
    /// # Errors
    /// See [`JobGraph::source`].
    pub fn process<O>(
        self,
        name: &str,
        create: impl Fn(&mut KeyedStore<K>) -> Result<O> + Send + Sync + 'static,
    ) -> Result<Stream<O::Out>>
    where
        O: KeyedOperator<Key = K, In = T>,
        O::Timer: OrderedType,
    {
        check_name(&self.nodes, name)?;
        let inboxes: InboxCell<T> = Rc::default();
        if self.inputs.iter().any(|input| !Rc::ptr_eq(&input.nodes, &self.nodes)) {
            return Err(Error::new(
                ErrorKind::InvalidUsage,
                format!("an input of operator {name:?} belongs to another JobGraph"),
            ));
        }
        connect(&self.inputs, &inboxes, &Rc::new(Partition::Key(key_encoder(self.key_of.clone()))));
        let outputs: Outputs<O::Out> = Rc::default();
        let node = KeyedNode::<O> {
            name: name.into(),
            create: Arc::new(create),
            key_of: self.key_of,
            inputs: self.inputs.len(),
            inboxes,
            outputs: outputs.clone(),
        };
        self.nodes.borrow_mut().push(Box::new(node));
        Ok(Stream { nodes: self.nodes, outputs })
    }
}

impl<K, T> fmt::Debug for KeyedStream<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedStream").field("inputs", &self.inputs.len()).finish_non_exhaustive()
    }
}
