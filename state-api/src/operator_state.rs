//! State of an operator instance that belongs to no key: source offsets, pending transactions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Codec, Error, ErrorKind, Native, NativeType, Result};

/// How the items of a list are given out when an operator restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Redistribution {
    /// At the same parallelism everybody gets its own items back; otherwise the items of all
    /// instances, in their order, are cut into shares that differ by at most one item.
    Split,
    /// Everybody gets the items of all instances.
    Union,
    /// All instances hold the same items: everybody gets one instance's copy.
    Broadcast,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct NamedList {
    redistribution: Redistribution,
    items: Vec<Vec<u8>>,
}

/// The named lists of one operator instance: plain data, part of the checkpoint's metadata.
///
/// ```
/// use weir_state_api::{OperatorState, Redistribution};
///
/// let mut state = OperatorState::new();
/// state.set("offsets", Redistribution::Split, &[(0_u32, 17_u64), (1, 4)]);
/// let shares = OperatorState::redistribute(&[state], 2)?;
/// assert_eq!(shares[0].get::<(u32, u64)>("offsets")?, [(0, 17)]);
/// assert_eq!(shares[1].get::<(u32, u64)>("offsets")?, [(1, 4)]);
/// # Ok::<(), weir_state_api::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OperatorState {
    lists: BTreeMap<String, NamedList>,
}

impl OperatorState {
    /// No lists.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces the list `name`.
    pub fn set<T: NativeType + 'static>(
        &mut self,
        name: &str,
        redistribution: Redistribution,
        items: &[T],
    ) {
        let encode = |item: &T| {
            let mut bytes = Vec::new();
            item.write(&mut bytes);
            bytes
        };
        let items = items.iter().map(encode).collect();
        self.lists.insert(name.into(), NamedList { redistribution, items });
    }

    /// The items of the list `name`; none when there is no such list.
    ///
    /// # Errors
    /// [`Corrupt`](ErrorKind::Corrupt) when an item was written with another type.
    pub fn get<T: NativeType + 'static>(&self, name: &str) -> Result<Vec<T>> {
        let items = self.lists.get(name).map_or(&[][..], |list| &list.items);
        items
            .iter()
            .map(|item| Native.decode(item))
            .collect::<Result<_>>()
            .map_err(|error| error.state(name))
    }

    /// Gives the lists of all former instances out to `parallelism` new ones.
    ///
    /// # Errors
    /// [`Incompatible`](ErrorKind::Incompatible) when former instances disagree about how a list is
    /// redistributed.
    pub fn redistribute(former: &[OperatorState], parallelism: u16) -> Result<Vec<OperatorState>> {
        let parallelism = usize::from(parallelism);
        let mut shares = vec![OperatorState::new(); parallelism];
        let mut names: BTreeMap<&str, Redistribution> = BTreeMap::new();
        for (name, list) in former.iter().flat_map(|state| &state.lists) {
            let known = names.entry(name).or_insert(list.redistribution);
            if *known != list.redistribution {
                return Err(Error::new(
                    ErrorKind::Incompatible,
                    format!(
                        "instances disagree: redistribution {known:?} and {:?}",
                        list.redistribution
                    ),
                )
                .state(name));
            }
        }
        for (rotation, (name, redistribution)) in names.into_iter().enumerate() {
            let lists: Vec<&[Vec<u8>]> = former
                .iter()
                .filter_map(|state| state.lists.get(name))
                .map(|list| &*list.items)
                .collect();
            let same_parallelism = former.len() == parallelism && lists.len() == parallelism;
            let given_out: Vec<Vec<Vec<u8>>> = match redistribution {
                Redistribution::Split | Redistribution::Broadcast if same_parallelism => {
                    lists.iter().map(|items| items.to_vec()).collect()
                }
                Redistribution::Split => split(&lists.concat(), parallelism, rotation),
                Redistribution::Union => vec![lists.concat(); parallelism],
                Redistribution::Broadcast => {
                    (0..parallelism).map(|i| lists[i % lists.len()].to_vec()).collect()
                }
            };
            for (share, items) in shares.iter_mut().zip(given_out) {
                share.lists.insert(name.into(), NamedList { redistribution, items });
            }
        }
        Ok(shares)
    }
}

/// Cuts `items` into contiguous shares; which shares get one more rotates from list to list, so
/// that many short lists spread evenly.
fn split(items: &[Vec<u8>], shares: usize, rotation: usize) -> Vec<Vec<Vec<u8>>> {
    let (base, more) = (items.len() / shares, items.len() % shares);
    let mut given_out = vec![Vec::new(); shares];
    let mut rest = items;
    for i in 0..shares {
        let (share, after) = rest.split_at(base + usize::from(i < more));
        given_out[(i + rotation) % shares] = share.to_vec();
        rest = after;
    }
    given_out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(name: &str, redistribution: Redistribution, items: &[u32]) -> OperatorState {
        let mut state = OperatorState::new();
        state.set(name, redistribution, items);
        state
    }

    fn given_out(former: &[OperatorState], name: &str, parallelism: u16) -> Vec<Vec<u32>> {
        OperatorState::redistribute(former, parallelism)
            .unwrap()
            .iter()
            .map(|share| share.get(name).unwrap())
            .collect()
    }

    #[test]
    fn split_keeps_own_lists_at_the_same_parallelism_and_balances_otherwise() {
        use Redistribution::Split;
        let former = [state("s", Split, &[1, 2, 3]), state("s", Split, &[])];
        assert_eq!(given_out(&former, "s", 2), [vec![1, 2, 3], vec![]]);
        assert_eq!(given_out(&former, "s", 3), [[1], [2], [3]]);
        assert_eq!(given_out(&former, "s", 1), [[1, 2, 3]]);
        assert_eq!(given_out(&former, "s", 5).concat(), [1, 2, 3]);
        assert_eq!(given_out(&former, "other", 2), [vec![0_u32; 0], vec![]]);
    }

    #[test]
    fn union_gives_everything_to_everybody_and_broadcast_one_copy() {
        let former =
            [state("l", Redistribution::Union, &[1]), state("l", Redistribution::Union, &[2])];
        assert_eq!(given_out(&former, "l", 2), [[1, 2], [1, 2]]);
        let former = [
            state("l", Redistribution::Broadcast, &[7, 8]),
            state("l", Redistribution::Broadcast, &[7, 8]),
        ];
        assert_eq!(given_out(&former, "l", 3), [[7, 8], [7, 8], [7, 8]]);
    }

    #[test]
    fn disagreement_and_foreign_types_are_errors() {
        let former =
            [state("l", Redistribution::Union, &[1]), state("l", Redistribution::Split, &[2])];
        let error = OperatorState::redistribute(&former, 1).unwrap_err();
        assert_eq!(error.state_name(), Some("l"));
        let error = former[0].get::<u64>("l").unwrap_err();
        assert_eq!((error.kind(), error.state_name()), (ErrorKind::Corrupt, Some("l")));
    }
}
