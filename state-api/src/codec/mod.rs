//! Codecs: how typed keys, namespaces and values become bytes.
//!
//! | codec | for | property |
//! |---|---|---|
//! | [`Native`] | values of primitive and composed types | compact, fixed width for integers |
//! | [`Ordered`] | keys, namespaces, map keys | byte order = value order, prefix-free |
//! | [`Postcard`] | values of any serde type | compact; you name and version the schema |
//!
//! A codec's [`id`](Codec::id) is stored with the state; a restore with another codec is refused
//! instead of misreading bytes.

mod native;
mod ordered;
mod ordered_prefix;
mod serde_postcard;

pub use native::{Native, NativeType};
pub(crate) use native::{read_length, write_length};
pub use ordered::{Ordered, OrderedType};
pub use ordered_prefix::OrderedPrefix;
pub use serde_postcard::Postcard;

use crate::{CodecId, Error, ErrorKind, Result};

/// Encodes values of one type.
///
/// Implement it to bring your own format. Encoding must be deterministic: equal keys must give
/// equal bytes in every process.
///
/// ```
/// use weir_state_api::{Codec, Native, Ordered, Postcard};
///
/// let mut bytes = Vec::new();
/// Codec::<(u32, String)>::encode(&Native, &(7, "a".into()), &mut bytes)?;
/// let back: (u32, String) = Native.decode(&bytes)?;
/// assert_eq!(back, (7, "a".to_string()));
///
/// #[derive(serde::Serialize, serde::Deserialize, PartialEq, Debug)]
/// struct Order { item: String, count: u32 }
/// let codec = Postcard::schema("Order", 1);
/// bytes.clear();
/// codec.encode(&Order { item: "pen".into(), count: 2 }, &mut bytes)?;
/// let back: Order = codec.decode(&bytes)?;
/// assert_eq!(back.count, 2);
/// # Ok::<(), weir_state_api::Error>(())
/// ```
pub trait Codec<T>: Clone + Send + Sync + 'static {
    /// Name and version of the encoding, for this type.
    fn id(&self) -> CodecId;

    /// Appends the encoded value to `out`.
    ///
    /// # Errors
    /// [`InvalidUsage`](ErrorKind::InvalidUsage) when the value cannot be encoded.
    fn encode(&self, value: &T, out: &mut Vec<u8>) -> Result<()>;

    /// Decodes a value from exactly these bytes.
    ///
    /// # Errors
    /// [`Corrupt`](ErrorKind::Corrupt) when the bytes are no encoded value, or more than one.
    fn decode(&self, bytes: &[u8]) -> Result<T>;
}

#[cold]
fn undecodable(id: &CodecId, bytes: &[u8]) -> Error {
    Error::new(ErrorKind::Corrupt, format!("{} stored bytes do not decode as {id}", bytes.len()))
        .advice("the state was written with another type; register it as it was written")
}
