use weir_backend_heap::HeapBackendFactory;
use weir_state_api::{
    BackendFactory, CodecId, Environment, KeyGroup, KeyGroupRange, Lookup, MaxParallelism,
    StateDescriptor, block_on,
};

use super::*;
use crate::format::LogId;
use crate::format::batch::{BatchEncoder, BatchHeader};
use crate::format::manifest::{LogRange, LoggedState};
use crate::format::record::push_put;

const PATH: &str = "live/log";
const LOG: LogId = LogId([7; 16]);

/// One object with one batch, and what the handle says about it. As it is, it is whole.
struct Written {
    header: BatchHeader,
    changes: Vec<u8>,
    /// The changes that the handle expects.
    expected: u64,
    written_for: KeyGroupRange,
    key_groups: KeyGroupRange,
}

fn key(bytes: &[u8]) -> KeyRef<'_> {
    KeyRef::new(bytes, MaxParallelism::default()).unwrap()
}

fn at(state: u16, key: KeyRef<'_>) -> Address<'_> {
    Address { state: StateId(state), key, namespace: &[], map_key: &[] }
}

/// All key groups but that of a key.
fn others(group: KeyGroup) -> KeyGroupRange {
    if group.0 < 64 { KeyGroupRange::new(64, 127) } else { KeyGroupRange::new(0, 63) }
}

impl Written {
    /// Two values of one state.
    fn whole() -> Self {
        let mut changes = Vec::new();
        push_put(&at(0, key(b"ann")), b"1", &mut changes);
        push_put(&at(0, key(b"bob")), b"2", &mut changes);
        let all = KeyGroupRange::all(MaxParallelism::default());
        Written {
            header: BatchHeader { log: LOG, first: LogPosition::START, records: 2 },
            changes,
            expected: 2,
            written_for: all,
            key_groups: all,
        }
    }

    /// Replays it into an empty instance; what the two keys have then.
    fn replayed(self) -> Result<[Option<Vec<u8>>; 2]> {
        let environment = Environment::in_memory();
        let mut bytes = Vec::new();
        BatchEncoder::new(1).encode(self.header, &self.changes, &mut bytes);
        let length = bytes.len();
        block_on(environment.store.write(PATH, bytes)).unwrap();
        let request = OpenRequest::new(environment.clone(), "op", CodecId::new("bytes", 1));
        let mut backend = block_on(HeapBackendFactory::default().open(request.clone())).unwrap();
        let codec = || CodecId::new("bytes", 1);
        let state = StateDescriptor::new("v", StateKind::Value, codec(), codec());
        let id = backend.register(&state).unwrap();
        let (from, to) = (LogPosition::START, LogPosition(self.expected));
        let range = LogRange {
            log: LOG,
            written_for: self.written_for,
            key_groups: self.key_groups,
            from,
            to,
            states: vec![LoggedState { number: 0, name: "v".into(), ttl: None }],
            segments: vec![Segment { object: 0, offset: 0, length: length as u32, from, to }],
        };
        let log = RestoredLog { range, objects: vec![ObjectRef::new(PATH, length as u64, 0)] };
        let outside = Replay {
            store: environment.store,
            spawner: environment.spawner,
            clock: environment.clock,
            copies: None,
            counters: Arc::default(),
            lent: Lent::default(),
        };
        block_on(replay(&mut *backend, &log, &request, &outside, None))?;
        let mut get = |name: &[u8]| match backend.get(&at(id.0, key(name))).unwrap() {
            Lookup::Found(value) => Some(value.to_vec()),
            _ => None,
        };
        Ok([get(b"ann"), get(b"bob")])
    }

    /// What a replay says about it.
    fn refusal(self) -> String {
        let error = self.replayed().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert_eq!(error.object_path(), Some(PATH), "{error}");
        error.to_string()
    }
}

#[test]
fn a_whole_log_is_replayed_as_far_as_it_counts() {
    let both = Written::whole().replayed().unwrap();
    assert_eq!(both, [Some(b"1".to_vec()), Some(b"2".to_vec())]);
    let mut clipped = Written::whole();
    clipped.key_groups = others(key(b"ann").group());
    let [ann, _] = clipped.replayed().unwrap();
    assert_eq!(ann, None, "another instance has it by now");
}

/// Their checksums are right: a program has written them like that.
#[test]
fn changes_that_cannot_be_of_this_log_are_refused() {
    let mut foreign = Written::whole();
    foreign.written_for = others(key(b"ann").group());
    foreign.key_groups = foreign.written_for;
    assert!(foreign.refusal().contains("a key group that the log cannot hold"));

    let mut moved = Written::whole();
    let group = others(key(b"eve").group()).first();
    let eve = KeyRef::with_group(b"eve", group).unwrap();
    moved.changes.clear();
    push_put(&at(0, eve), b"3", &mut moved.changes);
    (moved.header.records, moved.expected) = (1, 1);
    assert!(moved.refusal().contains("a key of another key group"));

    let mut nameless = Written::whole();
    nameless.changes.clear();
    push_put(&at(5, key(b"ann")), b"3", &mut nameless.changes);
    (nameless.header.records, nameless.expected) = (1, 1);
    assert!(nameless.refusal().contains("a state that the log does not name"));
}

#[test]
fn more_or_fewer_changes_than_stated_are_refused() {
    let mut fewer = Written::whole();
    (fewer.header.records, fewer.expected) = (3, 3);
    assert!(fewer.refusal().contains("at position 2 of log 07"));

    let mut more = Written::whole();
    (more.header.records, more.expected) = (1, 1);
    assert!(more.refusal().contains("at position 1 of log 07"));

    let mut cut = Written::whole();
    cut.changes.pop();
    assert!(cut.refusal().contains("at position 1 of log 07"));

    let mut unknown = Written::whole();
    unknown.changes[0] = 0x0f;
    assert!(unknown.refusal().contains("at position 0 of log 07"));
}

#[test]
fn a_batch_at_another_place_is_refused() {
    let mut later = Written::whole();
    later.header.first = LogPosition(2);
    assert!(later.refusal().contains("from 2 on stands where"));

    let mut other = Written::whole();
    other.header.log = LogId([8; 16]);
    assert!(other.refusal().contains("a batch of log 08"));
}
