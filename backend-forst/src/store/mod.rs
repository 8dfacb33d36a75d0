//! Objects and the caches in front of them.
