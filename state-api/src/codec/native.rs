//! The default codec of values.

use super::{Codec, undecodable};
use crate::{CodecId, Error, ErrorKind, Result};

/// Fixed-width little-endian integers and floats; varint lengths before strings, bytes and vectors;
/// tuples and options are the concatenation of their parts.
///
/// See [`NativeType`] for the types it takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Native;

/// Types that [`Native`] encodes: integers, floats, `bool`, `char`, `()`, `String`, `Vec`,
/// `Option`, and tuples of up to six of them.
pub trait NativeType: Sized {
    /// The name of the type in a [`CodecId`].
    fn type_name() -> String;
    /// Appends the encoded value.
    fn write(&self, out: &mut Vec<u8>);
    /// Takes a value off the front of `input`; `None` when the bytes do not fit.
    fn read(input: &mut &[u8]) -> Option<Self>;

    /// Appends many values, one behind the other.
    fn write_many(values: &[Self], out: &mut Vec<u8>) {
        for value in values {
            value.write(out);
        }
    }

    /// Takes `count` values off the front of `input`; `None` when the bytes do not fit. The count may be
    /// damaged: it decides about no more memory than the bytes that are there.
    fn read_many(count: usize, input: &mut &[u8]) -> Option<Vec<Self>> {
        let mut values = Vec::with_capacity(count.min(input.len()));
        for _ in 0..count {
            values.push(Self::read(input)?);
        }
        Some(values)
    }

    /// Whether a value of this type can be beyond a limit of the encoding.
    const LIMITED: bool = false;

    /// Refuses what could be written and not be read back; asked only if [`LIMITED`](Self::LIMITED).
    ///
    /// # Errors
    /// [`TooLarge`](ErrorKind::TooLarge).
    fn check_limits(&self) -> Result<()> {
        Ok(())
    }
}

impl<T: NativeType + 'static> Codec<T> for Native {
    fn id(&self) -> CodecId {
        CodecId::new(T::type_name(), 1)
    }

    #[inline]
    fn encode(&self, value: &T, out: &mut Vec<u8>) -> Result<()> {
        if T::LIMITED {
            value.check_limits()?;
        }
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

macro_rules! fixed_width {
    ($($type:ident)*) => {$(
        impl NativeType for $type {
            fn type_name() -> String {
                stringify!($type).into()
            }
            #[inline]
            fn write(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            #[inline]
            fn read(input: &mut &[u8]) -> Option<Self> {
                let (value, rest) = input.split_first_chunk()?;
                *input = rest;
                Some($type::from_le_bytes(*value))
            }
            fn write_many(values: &[Self], out: &mut Vec<u8>) {
                let start = out.len();
                out.resize(start + size_of_val(values), 0);
                let (places, _) = out[start..].as_chunks_mut();
                for (place, value) in places.iter_mut().zip(values) {
                    *place = value.to_le_bytes();
                }
            }
            fn read_many(count: usize, input: &mut &[u8]) -> Option<Vec<Self>> {
                let bytes = input.split_off(..count.checked_mul(size_of::<Self>())?)?;
                Some(bytes.as_chunks().0.iter().map(|value| $type::from_le_bytes(*value)).collect())
            }
        }
    )*};
}
fixed_width!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64);

impl NativeType for bool {
    fn type_name() -> String {
        "bool".into()
    }
    fn write(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn read(input: &mut &[u8]) -> Option<Self> {
        match u8::read(input)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl NativeType for char {
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

impl NativeType for () {
    fn type_name() -> String {
        "unit".into()
    }
    fn write(&self, _: &mut Vec<u8>) {}
    fn read(_: &mut &[u8]) -> Option<Self> {
        Some(())
    }
}

impl NativeType for String {
    fn type_name() -> String {
        "string".into()
    }
    fn write(&self, out: &mut Vec<u8>) {
        write_length(self.len(), out);
        out.extend_from_slice(self.as_bytes());
    }
    fn read(input: &mut &[u8]) -> Option<Self> {
        let length = read_length(input)?;
        let bytes = input.split_off(..length)?;
        Some(std::str::from_utf8(bytes).ok()?.to_owned())
    }
}

impl<T: NativeType> NativeType for Vec<T> {
    fn type_name() -> String {
        format!("[{}]", T::type_name())
    }
    fn write(&self, out: &mut Vec<u8>) {
        write_length(self.len(), out);
        T::write_many(self, out);
    }
    fn read(input: &mut &[u8]) -> Option<Self> {
        let length = read_length(input)?;
        // Only elements without bytes can be more than the bytes left. A damaged length must
        // neither reserve memory nor keep this busy for hours.
        if length > input.len() && length > MAX_EMPTY_ELEMENTS {
            return None;
        }
        T::read_many(length, input)
    }

    const LIMITED: bool = true;

    fn check_limits(&self) -> Result<()> {
        if self.len() > MAX_EMPTY_ELEMENTS {
            let mut first = Vec::new();
            self[0].write(&mut first);
            if first.is_empty() {
                return Err(too_many(self.len()));
            }
        }
        if T::LIMITED {
            self.iter().try_for_each(T::check_limits)?;
        }
        Ok(())
    }
}

#[cold]
fn too_many(length: usize) -> Error {
    Error::new(
        ErrorKind::TooLarge,
        format!(
            "a vector of {length} elements that encode to nothing, the limit is {MAX_EMPTY_ELEMENTS}"
        ),
    )
    .advice("store their number")
}

impl<T: NativeType> NativeType for Option<T> {
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

    const LIMITED: bool = T::LIMITED;

    fn check_limits(&self) -> Result<()> {
        self.as_ref().map_or(Ok(()), NativeType::check_limits)
    }
}

macro_rules! tuples {
    ($(($($type:ident $index:tt),+))*) => {$(
        impl<$($type: NativeType),+> NativeType for ($($type,)+) {
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

            const LIMITED: bool = $($type::LIMITED)||+;

            fn check_limits(&self) -> Result<()> {
                $(self.$index.check_limits()?;)+
                Ok(())
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

/// The most elements of a vector whose elements encode to nothing, such as `()`.
const MAX_EMPTY_ELEMENTS: usize = 1 << 20;

/// LEB128, least significant seven bits first.
pub(crate) fn write_length(length: usize, out: &mut Vec<u8>) {
    let mut rest = length as u64;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

pub(crate) fn read_length(input: &mut &[u8]) -> Option<usize> {
    let mut length = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = u8::read(input)?;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            return None;
        }
        length |= bits << shift;
        if byte < 0x80 {
            return usize::try_from(length).ok();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes_of<T: NativeType + 'static>(value: &T) -> Vec<u8> {
        let mut out = Vec::new();
        Native.encode(value, &mut out).unwrap();
        out
    }

    #[test]
    fn golden_bytes() {
        assert_eq!(bytes_of(&-2_i64), [0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(bytes_of(&258_u16), [2, 1]);
        assert_eq!(bytes_of(&1.5_f32), [0, 0, 0xc0, 0x3f]);
        assert_eq!(bytes_of(&"ab".to_string()), [2, b'a', b'b']);
        assert_eq!(bytes_of(&vec![1_u8; 200])[..3], [0xc8, 1, 1]);
        assert_eq!(bytes_of(&(Some(true), None::<u8>, ())), [1, 1, 0]);
        assert_eq!(Codec::<(Vec<u8>, Option<String>)>::id(&Native).name, "([u8],string?)");
    }

    #[test]
    fn trailing_missing_or_impossible_bytes_are_corrupt() {
        let kind = |error: Error| error.kind();
        assert_eq!(
            Native.decode(&[1, 2, 3]).map(|_: u16| ()).map_err(kind),
            Err(ErrorKind::Corrupt)
        );
        assert_eq!(Native.decode(&[2]).map(|_: bool| ()).map_err(kind), Err(ErrorKind::Corrupt));
        assert_eq!(
            Native.decode(&[1, 0xff]).map(|_: String| ()).map_err(kind),
            Err(ErrorKind::Corrupt)
        );
        // Lengths of 2^63, with one byte behind it and of elements without bytes.
        let huge = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1, 7];
        assert_eq!(
            Native.decode(&huge).map(|_: Vec<u8>| ()).map_err(kind),
            Err(ErrorKind::Corrupt)
        );
    }

    #[test]
    fn what_could_not_be_read_back_is_not_written() {
        let most = vec![(); MAX_EMPTY_ELEMENTS];
        let back: Vec<()> = Native.decode(&bytes_of(&most)).unwrap();
        assert_eq!(back.len(), most.len());
        let more = vec![(); MAX_EMPTY_ELEMENTS + 1];
        let refused = |result: Result<()>| result.unwrap_err().kind() == ErrorKind::TooLarge;
        assert!(refused(Native.encode(&more, &mut Vec::new())));
        assert!(refused(Native.encode(&(1_u8, Some(vec![more])), &mut Vec::new())));
        let with_bytes = vec![false; MAX_EMPTY_ELEMENTS + 1];
        let back: Vec<bool> = Native.decode(&bytes_of(&with_bytes)).unwrap();
        assert_eq!(back.len(), with_bytes.len());
    }

    /// Many numbers at once are what they are one by one, and too few bytes are refused.
    #[test]
    fn vectors_of_numbers_are_their_elements() {
        fn check<T: NativeType + Copy + PartialEq + std::fmt::Debug + 'static>(values: &[T]) {
            for count in 0..values.len() {
                let mut expected = vec![count as u8];
                values[..count].iter().for_each(|value| value.write(&mut expected));
                let bytes = bytes_of(&values[..count].to_vec());
                assert_eq!(bytes, expected);
                assert_eq!(Codec::<Vec<T>>::decode(&Native, &bytes).unwrap(), values[..count]);
                let cut = bytes.len().saturating_sub(1);
                assert!(Codec::<Vec<T>>::decode(&Native, &bytes[..cut]).is_err());
            }
        }
        check::<u8>(&[0, 1, 0x7f, 0x80, 0xff]);
        check::<i16>(&[0, 1, -1, i16::MAX, i16::MIN]);
        check::<u128>(&[0, 1, u128::MAX]);
        check::<f64>(&[0.0, -1.5, f64::MAX, f64::INFINITY]);
    }

    type Composed = (i64, String, Vec<Option<u16>>, (char, bool), Option<Vec<String>>, u128);

    proptest! {
        #[test]
        fn composed_values_survive(value: Composed) {
            let back: Composed = Native.decode(&bytes_of(&value)).unwrap();
            prop_assert_eq!(back, value);
        }

        #[test]
        fn any_bytes_decode_or_fail_without_panic(bytes: Vec<u8>) {
            if let Ok(value) = Codec::<Composed>::decode(&Native, &bytes) {
                let back: Composed = Native.decode(&bytes_of(&value)).unwrap();
                prop_assert_eq!(back, value);
            }
        }
    }
}
