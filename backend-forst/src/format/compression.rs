//! How blocks are compressed.
#![deny(clippy::indexing_slicing)]

use std::cell::RefCell;
use std::fmt;

use weir_state_api::{Error, ErrorKind, Result};

use super::wire::corrupt;

/// How the blocks of a table are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Compression {
    /// Not at all.
    None,
    /// LZ4: fast in both directions; about a half remains of usual state.
    #[default]
    Lz4,
    /// Zstandard at this level, 1 to 22: about a third remains, for two to three times LZ4's time to
    /// read and more to write.
    Zstd(i32),
}

/// No byte of a compressed block stands for more than so many. LZ4 cannot do more; what Zstandard
/// would make smaller is left to LZ4. So the memory that a reader takes is justified by what it has
/// read.
const MAX_RATIO: u64 = 255;

/// Codes of the methods, in a stored block.
const CODE_NONE: u8 = 0;
const CODE_LZ4: u8 = 1;
const CODE_ZSTD: u8 = 2;

/// Compresses blocks, with buffers and tables that are kept from block to block.
pub(super) struct Compressor {
    method: Compression,
    lz4: lz4_flex::block::CompressTable,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    out: Vec<u8>,
}

impl Compressor {
    /// # Errors
    /// [`InvalidUsage`](ErrorKind::InvalidUsage) for a level that Zstandard does not have.
    pub(super) fn new(method: Compression) -> Result<Self> {
        let zstd = match method {
            Compression::Zstd(level) if !(1..=22).contains(&level) => {
                return Err(Error::new(
                    ErrorKind::InvalidUsage,
                    format!("the level of zstd must be 1 to 22, not {level}"),
                ));
            }
            Compression::Zstd(level) => Some(zstd::bulk::Compressor::new(level).map_err(failed)?),
            Compression::None | Compression::Lz4 => None,
        };
        let lz4 = lz4_flex::block::CompressTable::default();
        Ok(Compressor { method, lz4, zstd, out: Vec::new() })
    }

    /// The bytes to store for `raw`, and the code of their method. What saves less than an eighth is
    /// stored as it is: reading it is faster.
    pub(super) fn compress<'a>(&'a mut self, raw: &'a [u8]) -> Result<(&'a [u8], u8)> {
        let mut code = CODE_NONE;
        if let Some(zstd) = &mut self.zstd {
            self.out.clear();
            self.out.reserve(zstd::zstd_safe::compress_bound(raw.len()));
            zstd.compress_to_buffer(raw, &mut self.out).map_err(failed)?;
            if raw.len() as u64 <= MAX_RATIO * self.out.len() as u64 {
                code = CODE_ZSTD;
            }
        }
        if code == CODE_NONE && self.method != Compression::None {
            self.out.resize(lz4_flex::block::get_maximum_output_size(raw.len()), 0);
            let len = lz4_flex::block::compress_into_with_table(raw, &mut self.out, &mut self.lz4)
                .map_err(failed)?;
            self.out.truncate(len);
            code = CODE_LZ4;
        }
        let saves = code != CODE_NONE && self.out.len() <= raw.len() - raw.len() / 8;
        Ok(if saves { (&self.out, code) } else { (raw, CODE_NONE) })
    }
}

impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compressor").field("method", &self.method).finish_non_exhaustive()
    }
}

fn failed(source: impl Into<weir_state_api::BoxError>) -> Error {
    Error::new(ErrorKind::TooLarge, "a block could not be compressed").source(source)
}

/// Whether bytes with this code are stored as they are.
pub(super) fn is_plain(code: u8) -> bool {
    code == CODE_NONE
}

/// The `raw_len` bytes that were compressed to `stored`.
///
/// # Errors
/// [`Corrupt`](ErrorKind::Corrupt).
pub(super) fn decompress(stored: &[u8], code: u8, raw_len: u32, origin: &str) -> Result<Vec<u8>> {
    if u64::from(raw_len) > MAX_RATIO * stored.len() as u64 {
        let what = format!("a block of {} bytes claims to hold {raw_len}", stored.len());
        return Err(corrupt(origin, what));
    }
    let raw_len = raw_len as usize;
    let raw = match code {
        CODE_LZ4 => lz4_flex::block::decompress(stored, raw_len)
            .map_err(|e| corrupt(origin, "a block does not decompress").source(e))?,
        CODE_ZSTD => unzstd(stored, raw_len)
            .map_err(|e| corrupt(origin, "a block does not decompress").source(e))?,
        _ => return Err(corrupt(origin, format!("a block is compressed by method {code}"))),
    };
    if raw.len() != raw_len {
        let what = format!("a block holds {} bytes, it was written with {raw_len}", raw.len());
        return Err(corrupt(origin, what));
    }
    Ok(raw)
}

fn unzstd(stored: &[u8], raw_len: usize) -> std::io::Result<Vec<u8>> {
    thread_local! {
        /// Zstandard's tables, some 100 KB: made once a thread.
        static DECOMPRESSOR: RefCell<Option<zstd::bulk::Decompressor<'static>>> =
            const { RefCell::new(None) };
    }
    DECOMPRESSOR.with_borrow_mut(|decompressor| {
        let decompressor = match decompressor {
            Some(decompressor) => decompressor,
            none => none.insert(zstd::bulk::Decompressor::new()?),
        };
        let mut raw = Vec::with_capacity(raw_len);
        decompressor.decompress_to_buffer(stored, &mut raw)?;
        Ok(raw)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const METHODS: [Compression; 4] =
        [Compression::None, Compression::Lz4, Compression::Zstd(1), Compression::Zstd(19)];

    fn noise(len: usize) -> Vec<u8> {
        let mut state = 1_u32;
        let mut next = || {
            state = state.wrapping_mul(0x9e37_79b9).wrapping_add(0x7f4a_7c15).rotate_left(13);
            (state >> 24) as u8
        };
        (0..len).map(|_| next()).collect()
    }

    #[test]
    fn what_is_compressed_comes_back() {
        let text = b"the same again, and ".repeat(800);
        for method in METHODS {
            let mut compressor = Compressor::new(method).unwrap();
            for raw in [&text[..], &noise(5_000), b"x", &[0; 1 << 20], b"short"] {
                let (stored, code) = compressor.compress(raw).unwrap();
                if is_plain(code) {
                    assert_eq!(stored, raw);
                } else {
                    assert!(stored.len() < raw.len());
                    assert_eq!(decompress(stored, code, raw.len() as u32, "x").unwrap(), raw);
                }
            }
            let (_, code) = compressor.compress(&text).unwrap();
            assert_eq!(is_plain(code), method == Compression::None);
            let (_, code) = compressor.compress(&noise(5_000)).map(|(s, c)| (s.len(), c)).unwrap();
            assert!(is_plain(code), "noise is stored as it is");
        }
    }

    #[test]
    fn no_byte_stands_for_more_than_255() {
        let zeros = vec![0; 10 << 20];
        let mut compressor = Compressor::new(Compression::Zstd(1)).unwrap();
        let (stored, code) = compressor.compress(&zeros).unwrap();
        assert_eq!(code, CODE_LZ4);
        assert_eq!(decompress(stored, code, 10 << 20, "x").unwrap(), zeros);
    }

    #[test]
    fn wrong_lengths_methods_and_bytes_are_errors() {
        let text = b"the same again, and ".repeat(80);
        for method in [Compression::Lz4, Compression::Zstd(3)] {
            let mut compressor = Compressor::new(method).unwrap();
            let (stored, code) = compressor.compress(&text).unwrap();
            let len = text.len() as u32;
            for (code, len) in [(code, len - 1), (code, len + 1), (3, len), (code, u32::MAX)] {
                let error = decompress(stored, code, len, "x").unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{method:?} {error}");
                assert_eq!(error.object_path(), Some("x"));
            }
            let (_, cut) = stored.split_last().unwrap();
            assert!(decompress(cut, code, len, "x").is_err());
        }
    }

    #[test]
    fn a_level_that_does_not_exist_is_refused() {
        for level in [0, 23, -5] {
            let error = Compressor::new(Compression::Zstd(level)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidUsage);
        }
    }
}
