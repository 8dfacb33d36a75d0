//! The bytes of table files and manifests.
