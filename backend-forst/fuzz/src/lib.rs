//! What the fuzz targets feed to the decoders of stored bytes.
//!
//! ```text
//! cargo install cargo-fuzz
//! cd backend-forst && cargo +nightly fuzz run block      # table_end, manifest, compaction_job
//! ```
//!
//! Nobody gets past a checksum by chance, so each target takes the bytes in front of it and adds one that
//! fits. The property tests beside the decoders do the same to bytes that are nearly right, and run with
//! all other tests.

#[path = "../../src/format/mod.rs"]
#[allow(dead_code, unused_imports, unreachable_pub, reason = "decoders are what is needed of it")]
mod format;

use bytes::Bytes;
use weir_backend_forst::{CompactionWorker, ForstResources};
use weir_state_api::{Environment, block_on};

use format::{Block, BlockCursor, BlockPlace, Manifest, MetaPlace, TableMeta, filter_hash};

/// A stored block: the input is all of it but the checksum. What decodes is walked both ways and
/// searched for all its keys.
pub fn block(stored: &[u8]) {
    let crc32 = crc32fast::hash(stored);
    let bytes = Bytes::from([stored, &crc32.to_le_bytes()].concat());
    let Ok(length) = u32::try_from(bytes.len()) else { return };
    let Ok(block) = Block::decode(&bytes, &BlockPlace { offset: 0, length, crc32 }, "input") else {
        return;
    };
    let mut cursor = BlockCursor::new(block.clone());
    cursor.seek_to_first();
    while let Some(entry) = cursor.entry() {
        // Keys may be in no order: then one of them may not be found, but nothing panics.
        std::hint::black_box(block.get_hashed(entry.key, filter_hash(entry.key)));
        cursor.next();
    }
    cursor.seek_before(&[0xff; 64]);
    while cursor.is_valid() {
        std::hint::black_box(cursor.entry());
        cursor.prev();
    }
}

/// The end of a table: the input is all of it in front of the footer's checksum, and a key to look for
/// in its first byte's number of bytes.
pub fn table_end(input: &[u8]) {
    let Some((&probe_len, rest)) = input.split_first() else { return };
    let (probe, end) = rest.split_at(rest.len().min(usize::from(probe_len)));
    let crc32 = crc32fast::hash(end);
    let tail = [end, &crc32.to_le_bytes(), b"WEIRFTBL"].concat();
    let Ok(length) = u32::try_from(tail.len()) else { return };
    // Where the blocks end, as the footer has it.
    let offset = tail.len().checked_sub(40).map_or(0, |footer| {
        tail[footer..footer + 8].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
    });
    let Ok(meta) = TableMeta::decode(&tail, &MetaPlace { offset, length, crc32 }, "input") else {
        return;
    };
    meta.may_contain(filter_hash(probe));
    meta.range_deletes().covers(probe);
    for block in [meta.block_of(probe), meta.last_block_before(probe)].into_iter().flatten() {
        assert!(meta.block_place(block).is_some(), "a block that is none");
    }
    assert!(meta.first_block_from(probe) <= meta.block_count());
}

/// A manifest: the input is its version and the body. What decodes is written and read again as the same.
pub fn manifest(input: &[u8]) {
    let Some((&version, body)) = input.split_first() else { return };
    let bytes = framed(b"WEIRFMAN", version.into(), body);
    if let Ok(manifest) = Manifest::decode(&bytes, "input") {
        let again = manifest.encode().expect("what was read can be written");
        assert_eq!(Manifest::decode(&again, "again").expect("what was written"), manifest);
    }
}

/// A compaction job: the input is the body. It is refused, or fails for want of the tables it names.
pub fn compaction_job(body: &[u8]) {
    let worker = CompactionWorker::new(&Environment::in_memory(), &ForstResources::default());
    drop(block_on(worker.run(&framed(b"WEIRFCJB", 1, body))));
}

/// A body in its envelope.
fn framed(magic: &[u8; 8], version: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("inputs are short");
    let mut bytes = [&magic[..], &version.to_le_bytes(), &length.to_le_bytes(), body].concat();
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    bytes
}
