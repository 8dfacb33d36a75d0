//! Beginnings of keys: what a scan by prefix looks for.

use super::OrderedType;
use super::ordered::write_escaped;

/// The beginning of keys of type `K`, as [`Ordered`](super::Ordered) encodes them: some of the first
/// characters of a string, some of the first bytes of a byte vector, the first parts of a tuple.
///
/// ```
/// use weir_state_api::{OrderedPrefix, OrderedType};
///
/// fn is_prefix_of<K: OrderedType>(_: &impl OrderedPrefix<K>) {}
/// is_prefix_of::<String>(&"2013-01");
/// is_prefix_of::<(String, i64)>(&("EWR".to_string(),));
/// ```
pub trait OrderedPrefix<K: OrderedType> {
    /// Appends the bytes with which the encoded keys begin that begin like this, and no others.
    fn write_prefix(&self, out: &mut Vec<u8>);
}

impl OrderedPrefix<String> for &str {
    fn write_prefix(&self, out: &mut Vec<u8>) {
        write_escaped(self.as_bytes(), out);
    }
}

impl OrderedPrefix<String> for String {
    fn write_prefix(&self, out: &mut Vec<u8>) {
        write_escaped(self.as_bytes(), out);
    }
}

impl OrderedPrefix<Vec<u8>> for &[u8] {
    fn write_prefix(&self, out: &mut Vec<u8>) {
        write_escaped(self, out);
    }
}

impl OrderedPrefix<Vec<u8>> for Vec<u8> {
    fn write_prefix(&self, out: &mut Vec<u8>) {
        write_escaped(self, out);
    }
}

macro_rules! tuples {
    ($(($($prefix:ident $index:tt),+) of ($($rest:ident),+))*) => {$(
        impl<$($prefix: OrderedType,)+ $($rest: OrderedType),+>
            OrderedPrefix<($($prefix,)+ $($rest,)+)> for ($($prefix,)+)
        {
            fn write_prefix(&self, out: &mut Vec<u8>) {
                $(self.$index.write(out);)+
            }
        }
    )*};
}
tuples! {
    (A 0) of (B)
    (A 0) of (B, C)
    (A 0, B 1) of (C)
    (A 0) of (B, C, D)
    (A 0, B 1) of (C, D)
    (A 0, B 1, C 2) of (D)
    (A 0) of (B, C, D, E)
    (A 0, B 1) of (C, D, E)
    (A 0, B 1, C 2) of (D, E)
    (A 0, B 1, C 2, D 3) of (E)
    (A 0) of (B, C, D, E, F)
    (A 0, B 1) of (C, D, E, F)
    (A 0, B 1, C 2) of (D, E, F)
    (A 0, B 1, C 2, D 3) of (E, F)
    (A 0, B 1, C 2, D 3, E 4) of (F)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(key: &impl OrderedType) -> Vec<u8> {
        let mut bytes = Vec::new();
        key.write(&mut bytes);
        bytes
    }

    fn prefix<K: OrderedType>(prefix: &impl OrderedPrefix<K>) -> Vec<u8> {
        let mut bytes = Vec::new();
        prefix.write_prefix(&mut bytes);
        bytes
    }

    proptest! {
        #[test]
        fn encoded_keys_begin_with_an_encoded_prefix_if_and_only_if_they_begin_like_it(
            key in prop::collection::vec(prop_oneof![Just(0), Just(0xff), any::<u8>()], 0..6),
            start in prop::collection::vec(prop_oneof![Just(0), Just(0xff), any::<u8>()], 0..4),
            number in any::<i64>(),
        ) {
            let begins = key.starts_with(&start);
            prop_assert_eq!(encoded(&key).starts_with(&prefix::<Vec<u8>>(&start)), begins);
            let pair = (key.clone(), number);
            let same = key == start;
            let first = prefix::<(Vec<u8>, i64)>(&(start,));
            prop_assert_eq!(encoded(&pair).starts_with(&first), same);
        }
    }
}
