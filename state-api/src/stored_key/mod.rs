//! One layout of keys for everything that keeps state in a single ordered key space: sorted files,
//! logs, tools.
//!
//! ```text
//! point   group u16 BE | state u16 BE | key part                | namespace, raw
//! map     group u16 BE | state u16 BE | key part | namespace part | map key, raw
//! timer   group u16 BE | queue u16 BE | time 8 B | key part       | namespace, raw
//! ```
//!
//! - **The key group comes first**, so the state that moves in a rescale is one range.
//! - **Parts are prefix-free and keep the order of their bytes** ([`push_part`]), so no two addresses
//!   run together, and whatever belongs to one (state, key, namespace) is contiguous. The last
//!   component needs no end and is stored as it is: a map iterates in the order of its map keys.
//! - **Runs of zero bytes are stored as their length.** Big-endian integers, the usual keys, mostly
//!   begin with zeros; they come out shorter than they went in, where plain escaping doubles them.
//! - Times are stored with the sign flipped, so they sort as numbers; after them timers sort by key,
//!   then namespace, as the contract wants them fired.
//!
//! The state's number is whatever the caller assigned; who moves stored keys between instances must
//! translate it. The layout is part of on-disk formats and can only change together with them.
//!
//! Everything here is a pure function that appends to a caller's buffer.

mod address;
mod part;
mod range;

pub use address::{
    DecodedAddress, decode, group_of, push_group, push_map, push_map_prefix, push_point,
    push_state, push_timer, push_timers_from, replace_state, state_of, time_of,
};
pub use part::{part_len, push_part, take_part};
pub use range::{map_bounds, push_map_bounds, successor};

/// The length of what precedes the key part of point states and maps: group and state.
pub const STATE_PREFIX_LEN: usize = 4;
