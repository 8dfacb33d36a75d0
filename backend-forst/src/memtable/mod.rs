//! What is written and not yet in a table.
