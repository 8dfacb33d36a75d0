//! The default codec of keys, namespaces and map keys: byte order equals value order.

use super::{Codec, undecodable};
use crate::{CodecId, Result};

/// Order-preserving and prefix-free encoding.
///
/// Integers are big endian with the sign bit flipped, floats in their total order. Strings and
/// bytes are escaped (`00` becomes `00 FF`) and terminated (`00 00`), vectors mark each element
/// with `01` and the end with `00`, options are `00` or `01` and the value, tuples the
/// concatenation of their parts. No encoding is a prefix of another one of the same type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ordered;

/// Types that [`Ordered`] encodes: integers, floats, `bool`, `char`, `()`, `String`, `Vec`,
/// `Option`, and tuples of up to six of them.
pub trait OrderedType: Sized {
    /// The name of the type in a [`CodecId`].
    fn type_name() -> String;
    /// Appends the encoded value.
    fn write(&self, out: &mut Vec<u8>);
    /// Takes a value off the front of `input`; `None` when the bytes do not fit.
    fn read(input: &mut &[u8]) -> Option<Self>;

    /// Appends a vector of this type; `u8` has a denser form.
    fn write_many(elements: &[Self], out: &mut Vec<u8>) {
        for element in elements {
            out.push(1);
            element.write(out);
        }
        out.push(0);
    }

    /// Reads what [`write_many`](OrderedType::write_many) wrote.
    fn read_many(input: &mut &[u8]) -> Option<Vec<Self>> {
        let mut elements = Vec::new();
        loop {
            match take_byte(input)? {
                0 => return Some(elements),
                1 => elements.push(Self::read(input)?),
                _ => return None,
            }
        }
    }
}

impl<T: OrderedType + 'static> Codec<T> for Ordered {
    fn id(&self) -> CodecId {
        CodecId::new(format!("ordered:{}", T::type_name()), 1)
    }

    #[inline]
    fn encode(&self, value: &T, out: &mut Vec<u8>) -> Result<()> {
        value.write(out);
        Ok(())
    }

    #[inline]
    fn decode(&self, mut bytes: &[u8]) -> Result<T> {
        let all = bytes;
        match T::read(&mut bytes) {
            Some(value) if bytes.is_empty() => Ok(value),
            _ => Err(undecodable(&Codec::<T>::id(self), all)),
        }
    }
}

#[inline]
fn take_byte(input: &mut &[u8]) -> Option<u8> {
    input.split_off_first().copied()
}

macro_rules! unsigned {
    ($($type:ident)*) => {$(
        impl OrderedType for $type {
            fn type_name() -> String {
                stringify!($type).into()
            }
            #[inline]
            fn write(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_be_bytes());
            }
            #[inline]
            fn read(input: &mut &[u8]) -> Option<Self> {
                let (value, rest) = input.split_first_chunk()?;
                *input = rest;
                Some($type::from_be_bytes(*value))
            }
        }
    )*};
}
unsigned!(u16 u32 u64 u128);

impl OrderedType for u8 {
    fn type_name() -> String {
        "u8".into()
    }
    fn write(&self, out: &mut Vec<u8>) {
        out.push(*self);
    }
    fn read(input: &mut &[u8]) -> Option<Self> {
        take_byte(input)
    }
    fn write_many(elements: &[Self], out: &mut Vec<u8>) {
        write_terminated(elements, out);
    }
    fn read_many(input: &mut &[u8]) -> Option<Vec<Self>> {
        read_terminated(input)
    }
}

macro_rules! signed {
    ($($type:ident as $unsigned:ident)*) => {$(
        impl OrderedType for $type {
            fn type_name() -> String {
                stringify!($type).into()
            }
            #[inline]
            fn write(&self, out: &mut Vec<u8>) {
                (*self as $unsigned ^ (1 << ($unsigned::BITS - 1))).write(out);
            }
            #[inline]
            fn read(input: &mut &[u8]) -> Option<Self> {
                $unsigned::read(input).map(|bits| (bits ^ (1 << ($unsigned::BITS - 1))) as $type)
            }
        }
    )*};
}
signed!(i8 as u8 i16 as u16 i32 as u32 i64 as u64 i128 as u128);

macro_rules! floats {
    ($($type:ident as $bits:ident)*) => {$(
        impl OrderedType for $type {
            fn type_name() -> String {
                stringify!($type).into()
            }
            fn write(&self, out: &mut Vec<u8>) {
                let bits = self.to_bits();
                let sign = 1 << ($bits::BITS - 1);
                (if bits & sign == 0 { bits | sign } else { !bits }).write(out);
            }
            fn read(input: &mut &[u8]) -> Option<Self> {
                let bits = $bits::read(input)?;
                let sign = 1 << ($bits::BITS - 1);
                Some($type::from_bits(if bits & sign == 0 { !bits } else { bits ^ sign }))
            }
        }
    )*};
}
floats!(f32 as u32 f64 as u64);

impl OrderedType for bool {
    fn type_name() -> String {
        "bool".into()
    }
    fn write(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn read(input: &mut &[u8]) -> Option<Self> {
        match take_byte(input)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl OrderedType for char {
    fn type_name() -> String {
        "char".into()
    }
    fn write(&self, out: &mut Vec<u8>) {
        u32::from(*self).write(out);
    }
    fn read(input: &mut &[u8]) -> Option<Self> {
        char::from_u32(u32::read(input)?)
    }
}

impl OrderedType for () {
    fn type_name() -> String {
        "unit".into()
    }
    fn write(&self, _: &mut Vec<u8>) {}
    fn read(_: &mut &[u8]) -> Option<Self> {
        Some(())
    }
}

impl OrderedType for String {
    fn type_name() -> String {
        "string".into()
    }
    fn write(&self, out: &mut Vec<u8>) {
        write_terminated(self.as_bytes(), out);
    }
    fn read(input: &mut &[u8]) -> Option<Self> {
        String::from_utf8(read_terminated(input)?).ok()
    }
}

impl<T: OrderedType> OrderedType for Vec<T> {
    fn type_name() -> String {
        format!("[{}]", T::type_name())
    }
    fn write(&self, out: &mut Vec<u8>) {
        T::write_many(self, out);
    }
    fn read(input: &mut &[u8]) -> Option<Self> {
        T::read_many(input)
    }
}

impl<T: OrderedType> OrderedType for Option<T> {
    fn type_name() -> String {
        format!("{}?", T::type_name())
    }
    fn write(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.is_some()));
        if let Some(value) = self {
            value.write(out);
        }
    }
    fn read(input: &mut &[u8]) -> Option<Self> {
        if bool::read(input)? { T::read(input).map(Some) } else { Some(None) }
    }
}

macro_rules! tuples {
    ($(($($type:ident $index:tt),+))*) => {$(
        impl<$($type: OrderedType),+> OrderedType for ($($type,)+) {
            fn type_name() -> String {
                format!("({})", [$($type::type_name()),+].join(","))
            }
            #[inline]
            fn write(&self, out: &mut Vec<u8>) {
                $(self.$index.write(out);)+
            }
            #[inline]
            fn read(input: &mut &[u8]) -> Option<Self> {
                Some(($($type::read(input)?,)+))
            }
        }
    )*};
}
tuples! {
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
}

/// Escapes zero bytes and ends with two: prefix-free, and ordered as the unescaped bytes are.
pub(crate) fn write_terminated(bytes: &[u8], out: &mut Vec<u8>) {
    out.reserve(bytes.len() + 2);
    write_escaped(bytes, out);
    out.extend_from_slice(&[0, 0]);
}

/// Escapes zero bytes.
pub(super) fn write_escaped(bytes: &[u8], out: &mut Vec<u8>) {
    for part in bytes.split_inclusive(|&byte| byte == 0) {
        out.extend_from_slice(part);
        if part.last() == Some(&0) {
            out.push(0xff);
        }
    }
}

/// Takes a terminated byte string off the front of `input`.
pub(crate) fn read_terminated(input: &mut &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        let zero = input.iter().position(|&byte| byte == 0)?;
        bytes.extend_from_slice(input.split_off(..zero)?);
        take_byte(input)?;
        match take_byte(input)? {
            0 => return Some(bytes),
            0xff => bytes.push(0),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes_of<T: OrderedType + 'static>(value: &T) -> Vec<u8> {
        let mut out = Vec::new();
        Ordered.encode(value, &mut out).unwrap();
        out
    }

    #[test]
    fn golden_bytes() {
        assert_eq!(bytes_of(&-1_i64), [0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(bytes_of(&1_i16), [0x80, 1]);
        assert_eq!(bytes_of(&1.0_f32), [0xbf, 0x80, 0, 0]);
        assert_eq!(bytes_of(&"a\0b".to_string()), [b'a', 0, 0xff, b'b', 0, 0]);
        assert_eq!(bytes_of(&vec![0xff_u8, 0]), [0xff, 0, 0xff, 0, 0]);
        assert_eq!(bytes_of(&vec![1_u16, 2]), [1, 0, 1, 1, 0, 2, 0]);
        assert_eq!(bytes_of(&(None::<u8>, Some(false))), [0, 1, 0]);
    }

    #[test]
    fn floats_keep_their_total_order() {
        let values =
            [f64::NEG_INFINITY, -1.5, -0.0, 0.0, f64::MIN_POSITIVE, 1.0, f64::INFINITY, f64::NAN];
        let encoded: Vec<_> = values.iter().map(bytes_of).collect();
        assert!(encoded.is_sorted());
        for (value, bytes) in values.iter().zip(&encoded) {
            let back: f64 = Ordered.decode(bytes).unwrap();
            assert_eq!(back.to_bits(), value.to_bits());
        }
    }

    type Composed = (i32, String, Vec<u8>, Option<Vec<i16>>, bool);

    proptest! {
        #[test]
        fn order_is_kept_and_no_encoding_is_a_prefix(a: Composed, b: Composed) {
            let (encoded_a, encoded_b) = (bytes_of(&a), bytes_of(&b));
            prop_assert_eq!(encoded_a.cmp(&encoded_b), a.cmp(&b));
            prop_assert_eq!(encoded_b.starts_with(&encoded_a), a == b);
            let back: Composed = Ordered.decode(&encoded_a).unwrap();
            prop_assert_eq!(back, a);
        }

        #[test]
        fn short_strings_with_zeros_keep_their_order(a in "[\\x00\\x01a]{0,4}", b in "[\\x00\\x01a]{0,4}") {
            prop_assert_eq!(bytes_of(&a).cmp(&bytes_of(&b)), a.cmp(&b));
        }

        #[test]
        fn any_bytes_decode_or_fail_without_panic(bytes: Vec<u8>) {
            if let Ok(value) = Codec::<Composed>::decode(&Ordered, &bytes) {
                prop_assert_eq!(bytes_of(&value), bytes);
            }
        }
    }
}
