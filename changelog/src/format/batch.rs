//! A batch: consecutive changes of one log, compressed, with a checksum. Objects are batches one behind
//! the other, of as many logs as there are.

use weir_state_api::wire::corrupt;
use weir_state_api::{Error, ErrorKind, Result};

use super::position::{LogId, LogPosition};

const MAGIC: [u8; 8] = *b"WEIRCLOG";

/// The version of batches that is written, and the only one that is read.
pub(crate) const VERSION: u32 = 1;

/// The length of what precedes a batch's changes.
pub(crate) const HEADER_LEN: usize = 56;

const CHECKED_LEN: usize = 52;
const STORED_RAW: u8 = 0;
const STORED_ZSTD: u8 = 1;

/// What a batch holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    pub(crate) log: LogId,
    /// Where its first change stands.
    pub(crate) first: LogPosition,
    pub(crate) records: u32,
}

/// Makes batches; its buffers and the compressor's are reused.
pub(crate) struct BatchEncoder {
    compressor: Option<zstd::bulk::Compressor<'static>>,
}

impl std::fmt::Debug for BatchEncoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BatchEncoder")
    }
}

impl BatchEncoder {
    /// An encoder that compresses with zstd at `level`; at level 0 it does not compress.
    pub(crate) fn new(level: i32) -> Self {
        // A compressor that cannot be had costs space, nothing else.
        let compressor = (level != 0).then(|| zstd::bulk::Compressor::new(level).ok()).flatten();
        BatchEncoder { compressor }
    }

    /// Appends a batch of `changes`, which are shorter than 4 GiB, to `out`.
    pub(crate) fn encode(&mut self, header: BatchHeader, changes: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + HEADER_LEN, 0);
        let compression = self.push_body(changes, out);
        let stored = out.len() - start - HEADER_LEN;
        let mut head = [0; HEADER_LEN];
        head[..8].copy_from_slice(&MAGIC);
        head[8..12].copy_from_slice(&VERSION.to_le_bytes());
        head[12..28].copy_from_slice(&header.log.0);
        head[28..36].copy_from_slice(&header.first.0.to_le_bytes());
        head[36..40].copy_from_slice(&header.records.to_le_bytes());
        head[40..44].copy_from_slice(&(changes.len() as u32).to_le_bytes());
        head[44..48].copy_from_slice(&(stored as u32).to_le_bytes());
        head[48] = compression;
        let mut checksum = crc32fast::Hasher::new();
        checksum.update(&head[..CHECKED_LEN]);
        checksum.update(out.get(start + HEADER_LEN..).unwrap_or_default());
        head[CHECKED_LEN..].copy_from_slice(&checksum.finalize().to_le_bytes());
        if let Some(place) = out.get_mut(start..).and_then(|out| out.first_chunk_mut()) {
            *place = head;
        }
    }

    /// Compressed where that makes it shorter.
    fn push_body(&mut self, changes: &[u8], out: &mut Vec<u8>) -> u8 {
        let compressed = self.compressor.as_mut().and_then(|c| c.compress(changes).ok());
        match compressed {
            Some(compressed) if compressed.len() < changes.len() => {
                out.extend_from_slice(&compressed);
                STORED_ZSTD
            }
            _ => {
                out.extend_from_slice(changes);
                STORED_RAW
            }
        }
    }
}

/// Checks a batch and returns what it holds with its changes; `object` names it in errors.
///
/// # Errors
/// [`Corrupt`](ErrorKind::Corrupt) for anything but a whole, unchanged batch;
/// [`Incompatible`](ErrorKind::Incompatible) for another version.
pub(crate) fn decode(batch: &[u8], object: &str) -> Result<(BatchHeader, Vec<u8>)> {
    let corrupt = |what: &str| corrupt(object, format!("a batch of the log {what}"));
    let Some((head, body)) = batch.split_at_checked(HEADER_LEN) else {
        return Err(corrupt("is truncated"));
    };
    if head.get(..8) != Some(&MAGIC) {
        return Err(corrupt("has a foreign magic"));
    }
    let number = |at: usize| -> u32 {
        let bytes = head.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map(u32::from_le_bytes).unwrap_or_default()
    };
    // Before the checksum: a newer version may checksum differently.
    if number(8) != VERSION {
        return Err(Error::new(
            ErrorKind::Incompatible,
            format!("a batch of the log has format version {}, known is {VERSION}", number(8)),
        )
        .object(object)
        .advice("use a version of Weir that knows this format"));
    }
    if body.len() != number(44) as usize {
        return Err(corrupt("has not the length it states"));
    }
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(head.get(..CHECKED_LEN).unwrap_or_default());
    checksum.update(body);
    if checksum.finalize() != number(CHECKED_LEN) {
        return Err(corrupt("fails its checksum"));
    }
    let raw_len = number(40) as usize;
    let changes = match head.get(48) {
        Some(&STORED_RAW) => body.to_vec(),
        Some(&STORED_ZSTD) => {
            zstd::bulk::decompress(body, raw_len).map_err(|_| corrupt("does not decompress"))?
        }
        _ => return Err(corrupt("is compressed in an unknown way")),
    };
    if changes.len() != raw_len {
        return Err(corrupt("holds more or fewer bytes than it states"));
    }
    let log = head.get(12..28).and_then(|id| id.try_into().ok()).map(LogId);
    let first = head.get(28..36).and_then(|first| first.try_into().ok()).map(u64::from_le_bytes);
    let (Some(log), Some(first)) = (log, first) else { return Err(corrupt("is truncated")) };
    Ok((BatchHeader { log, first: LogPosition(first), records: number(36) }, changes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEADER: BatchHeader =
        BatchHeader { log: LogId([7; 16]), first: LogPosition(1_000), records: 3 };

    fn batch(level: i32, changes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        BatchEncoder::new(level).encode(HEADER, changes, &mut out);
        out
    }

    /// In users' checkpoints; may only change together with the version.
    #[test]
    fn golden_bytes() {
        let bytes = batch(0, b"abc");
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "57454952434c4f470100000007070707070707070707070707070707e8030000000000000300000003000000\
             0300000000000000b1ea06bd616263"
        );
    }

    #[test]
    fn every_damage_is_found() {
        for bytes in [batch(0, b"abc"), batch(1, &[b'a'; 300])] {
            for length in 0..bytes.len() {
                let error = decode(&bytes[..length], "x").unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Corrupt, "length {length}: {error}");
                assert_eq!(error.object_path(), Some("x"));
            }
            for position in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[position] ^= 1;
                let error = decode(&damaged, "x").unwrap_err();
                let version = (8..12).contains(&position);
                let kind = if version { ErrorKind::Incompatible } else { ErrorKind::Corrupt };
                assert_eq!(error.kind(), kind, "position {position}: {error}");
            }
            let longer = [&bytes[..], b"x"].concat();
            assert_eq!(decode(&longer, "x").unwrap_err().kind(), ErrorKind::Corrupt);
        }
    }

    #[test]
    fn what_does_not_get_shorter_is_stored_as_it_is() {
        let (short, long) = (batch(1, b"abc"), batch(1, &[b'a'; 10_000]));
        assert_eq!(short.len(), HEADER_LEN + 3);
        assert!(long.len() < 200, "{} bytes", long.len());
        assert_eq!(decode(&long, "x").unwrap(), (HEADER, vec![b'a'; 10_000]));
    }

    proptest! {
        #[test]
        fn batches_round_trip(
            changes in proptest::collection::vec(any::<u8>(), 0..2_000), level in 0..4,
            first in any::<u64>(), records in any::<u32>(), id in any::<[u8; 16]>(),
        ) {
            let header = BatchHeader { log: LogId(id), first: LogPosition(first), records };
            let mut out = b"before".to_vec();
            BatchEncoder::new(level).encode(header, &changes, &mut out);
            prop_assert_eq!(decode(&out[6..], "x").unwrap(), (header, changes));
        }

        #[test]
        fn any_bytes_are_refused_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let bytes = [&MAGIC[..], &VERSION.to_le_bytes(), &bytes].concat();
            prop_assert!(decode(&bytes, "x").is_err());
        }
    }
}
