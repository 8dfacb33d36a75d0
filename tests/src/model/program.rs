//! Random programs: plain steps over small key and value spaces, so that they meet often.

use super::ageing;

/// One step of a program.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Set { key: usize, ns: u8, value: u64 },
    Update { key: usize, ns: u8, by: u64 },
    FailUpdate { key: usize, ns: u8 },
    ClearValue { key: usize, ns: u8 },
    MergeValues { key: usize, into: u8 },
    Get { key: usize, ns: u8 },
    Append { key: usize, ns: u8, elements: Vec<Vec<u8>> },
    SetList { key: usize, ns: u8, elements: Vec<Vec<u8>> },
    MergeLists { key: usize, into: u8 },
    GetList { key: usize, ns: u8 },
    Put { key: usize, ns: u8, entry: i16, value: Vec<u8> },
    PutMany { key: usize, ns: u8, from: i16, count: i16 },
    Remove { key: usize, ns: u8, entry: i16 },
    ClearMap { key: usize, ns: u8 },
    Scan { key: usize, ns: u8, from: i16, to: i16, descending: bool },
    ScanAndRemove { key: usize, ns: u8, grow: i16, at_once: bool },
    Reduce { key: usize, ns: u8, by: i64 },
    ClearSum { key: usize, ns: u8 },
    Fold { key: usize, ns: u8, text: char },
    MergeFolds { key: usize, into: u8 },
    Register { key: usize, ns: u8, time: i64 },
    DeleteTimer { key: usize, ns: u8, time: i64 },
    Poll { until: i64 },
    Keys,
    BeginSnapshot,
    RunSnapshot { which: usize },
    Complete { which: usize },
    Abort { which: usize },
    Subsume { which: usize },
    NotifyUnknown { id: u64 },
    CrashAndRestore { which: usize, parallelism: u16 },
    CheckAll,
    Ageing(ageing::Step),
}

/// The keys of all programs: similar bytes on purpose.
pub(super) const KEYS: [&str; 16] = [
    "",
    "\0",
    "a",
    "a\0",
    "aa",
    "b",
    "\u{7f}",
    "\u{ff}",
    "\u{ffff}",
    "1",
    "11",
    "key",
    "key 1",
    "key 11",
    "zz",
    "a key that is much longer than the others are",
];

/// A small generator of random numbers (`SplitMix64`).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn bytes(&mut self) -> Vec<u8> {
        let length = [0, 1, 3, 23, 24, 60, 300][self.below(7) as usize];
        (0..length).map(|_| self.next() as u8).collect()
    }

    fn elements(&mut self) -> Vec<Vec<u8>> {
        (0..self.below(4)).map(|_| self.bytes()).collect()
    }

    fn time(&mut self) -> i64 {
        match self.below(20) {
            0 => i64::MIN,
            1 => i64::MAX,
            _ => self.below(40) as i64 - 10,
        }
    }

    fn entry(&mut self) -> i16 {
        self.below(24) as i16 - 12
    }
}

/// The program with this seed.
pub(super) fn generate(seed: u64, steps: u64) -> Vec<Step> {
    let mut random = Random(seed);
    (0..steps).map(|_| step(&mut random)).collect()
}

fn step(r: &mut Random) -> Step {
    // A few keys are met more often, so that something is there.
    let keys = if r.below(2) == 0 { 3 } else { KEYS.len() as u64 };
    let (key, ns) = (r.below(keys) as usize, r.below(2) as u8);
    if r.below(4) == 0 {
        return Step::Ageing(ageing_step(r, key, ns));
    }
    match r.below(100) {
        0..8 => Step::Set { key, ns, value: r.next() },
        8..12 => Step::Update { key, ns, by: r.below(100) },
        12 => Step::FailUpdate { key, ns },
        13..16 => Step::ClearValue { key, ns },
        16..18 => Step::MergeValues { key, into: ns },
        18..20 => Step::Get { key, ns },
        20..26 => Step::Append { key, ns, elements: r.elements() },
        26..28 => Step::SetList { key, ns, elements: r.elements() },
        28..30 => Step::MergeLists { key, into: ns },
        30..32 => Step::GetList { key, ns },
        32..39 => Step::Put { key, ns, entry: r.entry(), value: r.bytes() },
        39 => Step::PutMany { key, ns, from: r.entry(), count: 1 + r.below(300) as i16 },
        40..43 => Step::Remove { key, ns, entry: r.entry() },
        43 => Step::ClearMap { key, ns },
        44..48 => {
            let (from, to) = (r.entry(), r.entry());
            Step::Scan { key, ns, from, to, descending: r.below(2) == 0 }
        }
        48 => {
            let (grow, at_once) = (r.below(300) as i16, r.below(2) == 0);
            Step::ScanAndRemove { key, ns, grow, at_once }
        }
        49..54 => Step::Reduce { key, ns, by: r.below(20) as i64 - 10 },
        54 => Step::ClearSum { key, ns },
        55..58 => Step::Fold { key, ns, text: char::from(b'a' + r.below(26) as u8) },
        58..60 => Step::MergeFolds { key, into: ns },
        60..68 => Step::Register { key, ns, time: r.time() },
        68..71 => Step::DeleteTimer { key, ns, time: r.time() },
        71..75 => Step::Poll { until: r.below(30) as i64 - 10 },
        75..77 => Step::Keys,
        77..82 => Step::BeginSnapshot,
        82..88 => Step::RunSnapshot { which: r.below(4) as usize },
        88..91 => Step::Complete { which: r.below(6) as usize },
        91 => Step::Abort { which: r.below(6) as usize },
        92 => Step::Subsume { which: r.below(6) as usize },
        93 => Step::NotifyUnknown { id: r.below(1_000_000) },
        94..99 => {
            Step::CrashAndRestore { which: r.below(8) as usize, parallelism: 1 + r.below(4) as u16 }
        }
        _ => Step::CheckAll,
    }
}

fn ageing_step(r: &mut Random, key: usize, ns: u8) -> ageing::Step {
    use ageing::Step;

    let own = (r.below(4) == 0).then(|| 1 + r.below(60) as i64);
    match r.below(40) {
        0..6 => Step::Advance { millis: 1 + r.below(12) as i64 },
        6 => Step::CleanUp { budget: [1, 7, u64::MAX][r.below(3) as usize] },
        7..13 => Step::Set { key, ns, value: r.next(), own },
        13..17 => Step::Update { key, ns, by: r.below(100) },
        17..19 => Step::Get { key, ns },
        19 => Step::ClearValue { key, ns },
        20..26 => Step::Append { key, ns, elements: r.elements(), own },
        26 => Step::SetList { key, ns, elements: r.elements() },
        27..29 => Step::GetList { key, ns },
        29..34 => Step::Put { key, ns, entry: r.entry(), value: r.bytes(), own },
        34 => Step::PutAll { key, ns, from: r.entry(), count: 1 + r.below(200) as i16 },
        35..37 => Step::Remove { key, ns, entry: r.entry() },
        37 => Step::GetEntry { key, ns, entry: r.entry() },
        _ => Step::Entries { key, ns },
    }
}
