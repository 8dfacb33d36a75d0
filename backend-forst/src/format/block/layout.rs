//! Numbers that the builder and the readers of blocks share.

/// The end of a block: groups, buckets, entries.
pub(super) const TAIL_LEN: usize = 12;

/// A group's row: where its keys, its values and its head begin.
pub(super) const ROW_LEN: usize = 12;

/// What stands behind the payload of a stored block: its uncompressed length, method, checksum.
pub(super) const TRAILER_LEN: usize = 9;

/// A bucket of the hash index that no key falls into.
pub(super) const BUCKET_EMPTY: u8 = 255;

/// A bucket that keys of several groups fall into: search.
pub(super) const BUCKET_SHARED: u8 = 254;

/// So many groups fit the hash index.
pub(super) const MAX_INDEXED_GROUPS: usize = 254;

/// The bucket, of `buckets`, for a key with this hash.
#[inline]
pub(super) fn bucket_of(hash: u64, buckets: u32) -> usize {
    ((u64::from(hash as u32) * u64::from(buckets)) >> 32) as usize
}

/// The number at `at`. Within a verified block it is always there.
#[inline]
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// How many bytes `a` and `b` begin with in common.
#[inline]
pub(super) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let mut at = 0;
    while let (Some(x), Some(y)) = (
        a.get(at..).and_then(<[u8]>::first_chunk::<8>),
        b.get(at..).and_then(<[u8]>::first_chunk::<8>),
    ) {
        let differing = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if differing != 0 {
            return at + differing.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let (a, b) = (a.get(at..).unwrap_or_default(), b.get(at..).unwrap_or_default());
    at + a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

/// The next number of 1 to 5 bytes, and what is behind it; `None` when none stands there.
#[inline]
pub(super) fn take_number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    match bytes {
        [first, rest @ ..] if *first < 0x80 => Some((usize::from(*first), rest)),
        [first, second, rest @ ..] if *second < 0x80 => {
            Some((usize::from(*first & 0x7f) | usize::from(*second) << 7, rest))
        }
        _ => take_long(bytes),
    }
}

#[cold]
fn take_long(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut value = 0_u64;
    for (at, byte) in bytes.iter().take(5).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if *byte < 0x80 {
            return Some((usize::try_from(value).ok()?, bytes.get(at + 1..)?));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::super::wire::put_varint;
    use super::*;

    #[test]
    fn prefixes_are_counted_to_the_byte() {
        let a: Vec<u8> = (0..40).collect();
        for len in 0..40 {
            let mut b = a.clone();
            b[len] ^= 0x80;
            assert_eq!(common_prefix(&a, &b), len);
            assert_eq!(common_prefix(&a, &a[..len]), len);
            assert_eq!(common_prefix(&b[..len], &a), len);
        }
    }

    #[test]
    fn numbers_survive() {
        for value in [0, 1, 127, 128, 16_383, 16_384, 1 << 21, 1 << 28, (1 << 35) - 1] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value as u64);
            for len in 0..bytes.len() {
                assert_eq!(take_number(&bytes[..len]), None);
            }
            bytes.push(7);
            assert_eq!(take_number(&bytes), Some((value, &[7][..])));
        }
        assert_eq!(take_number(&[0x80, 0x80, 0x80, 0x80, 0x80, 0]), None, "36 bits");
        assert_eq!(take_number(&[0x80; 9]), None);
    }
}
