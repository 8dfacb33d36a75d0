//! The codec of serde types.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Codec, undecodable};
use crate::{CodecId, Error, ErrorKind, Result};

/// Encodes any serde type with postcard.
///
/// Postcard's bytes do not describe themselves: fields are identified by position and enum variants
/// by number. So the schema has a name and a version, stored with the state; raise the version when
/// fields or variants are added, removed or reordered, and old state is refused rather than
/// misread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Postcard {
    name: Arc<str>,
    version: u32,
}

impl Postcard {
    /// A codec for the schema `name` in the given version.
    pub fn schema(name: &str, version: u32) -> Self {
        Postcard { name: name.into(), version }
    }
}

impl<T: Serialize + DeserializeOwned + 'static> Codec<T> for Postcard {
    fn id(&self) -> CodecId {
        CodecId::new(format!("postcard:{}", self.name), self.version)
    }

    fn encode(&self, value: &T, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        if let Err(error) = postcard::to_io(value, &mut *out) {
            out.truncate(start);
            return Err(Error::new(
                ErrorKind::InvalidUsage,
                format!("a value of schema {:?} cannot be encoded", self.name),
            )
            .source(error)
            .advice("postcard needs sequences and maps of known length"));
        }
        Ok(())
    }

    fn decode(&self, bytes: &[u8]) -> Result<T> {
        match postcard::take_from_bytes(bytes) {
            Ok((value, [])) => Ok(value),
            Ok(_) => Err(undecodable(&Codec::<T>::id(self), bytes)),
            Err(error) => Err(undecodable(&Codec::<T>::id(self), bytes).source(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    enum Shape {
        Circle { radius: u32 },
        Named(String, Option<Vec<i64>>),
    }

    #[test]
    fn golden_bytes_and_refusal_of_others() {
        let codec = Postcard::schema("Shape", 1);
        let shape = Shape::Named("a".into(), Some(vec![-1, 2]));
        let mut bytes = Vec::new();
        codec.encode(&shape, &mut bytes).unwrap();
        assert_eq!(bytes, [1, 1, b'a', 1, 2, 1, 4]);
        assert_eq!(Codec::<Shape>::decode(&codec, &bytes).unwrap(), shape);
        for bad in [&bytes[..bytes.len() - 1], &[9], &[0, 1, 1], &[]] {
            let error = Codec::<Shape>::decode(&codec, bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{bad:?}");
        }
        assert_eq!(Codec::<Shape>::id(&codec).to_string(), "postcard:Shape v1");
    }
}
