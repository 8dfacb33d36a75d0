//! Byte strings that can be followed by others: order-preserving, prefix-free.
//!
//! Bytes other than zero stand for themselves. A zero byte is a marker; the byte behind it says:
//!
//! ```text
//! 00            the part ends
//! 01 ..= 7f  n  n zero bytes, then the part ends
//! 80            127 zero bytes, and more follows
//! 81 ..= fe  t  255 - t zero bytes, and another byte follows
//! ```
//!
//! Why the order is kept: behind the same bytes, a part that ends sorts before one that goes on,
//! and so do its codes. Of two that end, the one with fewer zeros sorts first, of two that go on
//! the one with more, because its next zero meets another byte there.

const MARKER: u8 = 0;
/// Zero bytes that one code can stand for.
const MAX_RUN: usize = 127;
const FULL_RUN: u8 = 0x80;

/// Appends `bytes` as a part.
#[inline]
pub fn push_part(bytes: &[u8], out: &mut Vec<u8>) {
    match <[u8; 8]>::try_from(bytes) {
        Ok(word) => push_word(word, out),
        // Most namespaces are.
        Err(_) if bytes.is_empty() => out.extend_from_slice(&[MARKER, 0]),
        Err(_) => push_any(bytes, out),
    }
}

/// The same for eight bytes, which most keys have: half the instructions, since runs are found by
/// counting bits. What is appended is put together in a register and written at once: a read of it that
/// follows soon would have to wait for a row of small writes.
#[inline]
fn push_word(word: [u8; 8], out: &mut Vec<u8>) {
    let mut rest = u64::from_le_bytes(word); // what comes first is lowest; zeros follow the last byte
    // Numbers mostly have one run of zeros, behind nothing or their sign.
    let before = zero_bytes(rest).trailing_zeros() / 8;
    let zeros_on = rest.unbounded_shr(8 * before);
    if zeros_on != 0 {
        let run = zeros_on.trailing_zeros() / 8;
        let behind = zeros_on >> (8 * run);
        if before + run + zero_bytes(behind).trailing_zeros() / 8 == 8 {
            let coded = u128::from(rest & low_bytes(before))
                | u128::from(255 - run) << (8 * (before + 1))
                | u128::from(behind) << (8 * (before + 2));
            return push_coded(coded, 12 - run, out);
        }
    }
    let mut left = 8; // bytes
    let (mut coded, mut len) = (0_u128, 0);
    loop {
        let literal = zero_bytes(rest).trailing_zeros() / 8; // at most `left`
        coded |= u128::from(rest & low_bytes(literal)) << (8 * len);
        (len, left) = (len + literal, left - literal);
        if left == 0 {
            len += 2; // the marker and no zeros
            break;
        }
        rest >>= 8 * literal;
        let run = (rest.trailing_zeros() / 8).min(left);
        left -= run;
        let code = if left == 0 { run } else { 255 - run };
        coded |= u128::from(code) << (8 * (len + 1));
        len += 2;
        if left == 0 {
            break;
        }
        rest >>= 8 * run;
    }
    // At most four runs of zeros, each with a byte before or behind it: 14 bytes.
    push_coded(coded, len, out);
}

/// Appends the first bytes of a number.
#[inline]
fn push_coded(coded: u128, len: u32, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&coded.to_le_bytes());
    out.truncate(start + len as usize);
}

/// The highest bit of each byte that is zero. Of the others only those before the first zero byte are
/// certain.
#[inline]
fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(0x0101_0101_0101_0101) & !word & 0x8080_8080_8080_8080
}

/// A mask of the lowest bytes, up to eight.
#[inline]
fn low_bytes(count: u32) -> u64 {
    u64::MAX.checked_shl(8 * count).map_or(u64::MAX, |above| !above)
}

fn push_any(bytes: &[u8], out: &mut Vec<u8>) {
    let mut rest = bytes;
    loop {
        let literal = rest.iter().position(|&byte| byte == MARKER).unwrap_or(rest.len());
        out.extend_from_slice(&rest[..literal]);
        rest = &rest[literal..];
        if rest.is_empty() {
            out.extend_from_slice(&[MARKER, 0]);
            return;
        }
        let mut run = rest.iter().position(|&byte| byte != MARKER).unwrap_or(rest.len());
        rest = &rest[run..];
        // A run at the end keeps at least one zero for the code that ends the part.
        let longest = if rest.is_empty() { MAX_RUN } else { MAX_RUN - 1 };
        while run > longest {
            out.extend_from_slice(&[MARKER, FULL_RUN]);
            run -= MAX_RUN;
        }
        if rest.is_empty() {
            out.extend_from_slice(&[MARKER, run as u8]);
            return;
        }
        if run > 0 {
            out.extend_from_slice(&[MARKER, 255 - run as u8]);
        }
    }
}

/// Reads a part from the start of `input`: appends its bytes to `out` and returns what follows.
/// `None` when no part stands there; `out` is then unspecified.
pub fn take_part<'a>(input: &'a [u8], out: &mut Vec<u8>) -> Option<&'a [u8]> {
    let mut rest = input;
    loop {
        let literal = rest.iter().position(|&byte| byte == MARKER)?;
        out.extend_from_slice(&rest[..literal]);
        let code = *rest.get(literal + 1)?;
        rest = &rest[literal + 2..];
        let (zeros, ends) = match code {
            0..=0x7f => (usize::from(code), true),
            FULL_RUN => (MAX_RUN, false),
            0x81..=0xfe => (usize::from(255 - code), false),
            0xff => return None,
        };
        out.resize(out.len() + zeros, 0);
        if ends {
            return Some(rest);
        }
    }
}

/// The length of the part at the start of `input`; `None` when none stands there.
pub fn part_len(input: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += input.get(at..)?.iter().position(|&byte| byte == MARKER)? + 2;
        match *input.get(at - 1)? {
            0..=0x7f => return Some(at),
            0x80..=0xfe => {}
            0xff => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn part(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        push_part(bytes, &mut out);
        out
    }

    /// On disk in users' checkpoints; may only change together with the formats that use it.
    #[test]
    fn golden_bytes() {
        assert_eq!(part(b""), [0, 0]);
        assert_eq!(part(b"ab"), [b'a', b'b', 0, 0]);
        assert_eq!(part(b"\0"), [0, 1]);
        assert_eq!(part(b"a\0\0"), [b'a', 0, 2]);
        assert_eq!(part(b"\0\0b"), [0, 0xfd, b'b', 0, 0]);
        assert_eq!(part(&[0xff]), [0xff, 0, 0]);
        assert_eq!(part(&[0x80, 0, 0, 0, 0, 0, 0x30, 0x39]), [0x80, 0, 0xfa, 0x30, 0x39, 0, 0]);
        assert_eq!(part(&[0; 126]), [0, 126]);
        assert_eq!(part(&[0; 127]), [0, 127]);
        assert_eq!(part(&[0; 128]), [0, 0x80, 0, 1]);
        assert_eq!(part(&[0; 254]), [0, 0x80, 0, 127]);
        let run = |zeros: usize| [vec![0; zeros], vec![1]].concat();
        assert_eq!(part(&run(126)), [0, 0x81, 1, 0, 0]);
        assert_eq!(part(&run(127)), [0, 0x80, 1, 0, 0]);
        assert_eq!(part(&run(128)), [0, 0x80, 0, 0xfe, 1, 0, 0]);
    }

    /// Every pattern of zeros in a word, with the bytes that could be mistaken for them beside.
    #[test]
    fn words_are_coded_like_all_else() {
        for (zeros, other) in (0_u32..256).flat_map(|zeros| [1, 0x80, 0xff].map(|b| (zeros, b))) {
            let word = std::array::from_fn(|at| if zeros >> at & 1 == 1 { 0 } else { other });
            let (mut by_word, mut by_byte) = (vec![7], vec![7]);
            push_word(word, &mut by_word);
            push_any(&word, &mut by_byte);
            assert_eq!(by_word, by_byte, "{word:?}");
        }
    }

    /// Zero runs of the lengths around which codes change, ended and continued.
    #[test]
    fn order_is_kept_around_every_change_of_code() {
        let lengths = [0, 1, 2, 125, 126, 127, 128, 129, 253, 254, 255, 256, 381, 382];
        let ends: [&[u8]; 6] = [b"", b"\x01", b"\x7f", b"\x80", b"\xff", b"\x01\0"];
        let mut strings = Vec::new();
        for head in [&b""[..], b"a"] {
            for zeros in lengths {
                for end in ends {
                    strings.push([head, &vec![0; zeros], end].concat());
                }
            }
        }
        for a in &strings {
            for b in &strings {
                assert_eq!(a.cmp(b), part(a).cmp(&part(b)), "{a:?} {b:?}");
                assert!(a == b || !part(a).starts_with(&part(b)), "{a:?} begins with {b:?}");
            }
        }
    }

    #[test]
    fn what_is_no_part_is_refused() {
        for bytes in [&b""[..], b"a", b"a\0", b"\0\xff", b"\0\x80", b"\0\xfea"] {
            assert_eq!(take_part(bytes, &mut Vec::new()), None, "{bytes:?}");
        }
    }

    /// Bytes with many zeros and 0xff.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![3 => Just(0_u8), 1 => Just(0xff), 1 => Just(1), 2 => any::<u8>()];
        prop_oneof![
            proptest::collection::vec(byte, 0..20),
            (0..300_usize, any::<Option<u8>>())
                .prop_map(|(zeros, end)| vec![0; zeros].into_iter().chain(end).collect()),
        ]
    }

    proptest! {
        #[test]
        fn parts_keep_order_and_end_by_themselves(a in bytes(), b in bytes(), tail in bytes()) {
            prop_assert_eq!(a.cmp(&b), part(&a).cmp(&part(&b)));
            prop_assert!(a == b || !part(&a).starts_with(&part(&b)));
            let mut decoded = Vec::new();
            let whole = [part(&a), tail.clone()].concat();
            prop_assert_eq!(take_part(&whole, &mut decoded), Some(&tail[..]));
            prop_assert_eq!(decoded, a.clone());
            prop_assert_eq!(part_len(&whole), Some(part(&a).len()));
        }

        #[test]
        fn any_bytes_decode_or_are_refused(input in bytes()) {
            let mut decoded = Vec::new();
            let rest = take_part(&input, &mut decoded);
            prop_assert_eq!(part_len(&input), rest.map(|rest| input.len() - rest.len()));
            if let Some(rest) = rest {
                // What decodes need not be canonical, but what it encodes to decodes to the same.
                let again = [part(&decoded), rest.to_vec()].concat();
                let mut twice = Vec::new();
                prop_assert_eq!(take_part(&again, &mut twice), Some(rest));
                prop_assert_eq!(twice, decoded);
            }
        }
    }
}
