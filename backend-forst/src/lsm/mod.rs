//! Decisions over versions of the tree: what is read where, what is compacted, what may go.
