//! Which files of a snapshot are named again, which are packed, which are uploaded alone.

use std::collections::HashMap;

use weir_state_api::ObjectRef;

use super::Identity;

/// Files below this length are packed into common objects: a request costs as much as a MiB or more.
const PACK_BELOW: u64 = 1 << 20;

/// A pack is closed when it has this length.
const PACK_LEN: u64 = 8 << 20;

/// A pack of which less than one part in this many is still needed is given up: what is needed is
/// uploaded again. Not sooner, because after a rescale each instance needs only its share.
const LEAST_USE: u64 = 8;

/// Where a file is in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredFile {
    pub(crate) object: ObjectRef,
    pub(crate) offset: u64,
    pub(crate) crc32: u32,
}

/// The files of a checkpoint, by what they are.
pub(crate) type StoredFiles = HashMap<Identity, StoredFile>;

/// What to do with the files of a snapshot, each by its index.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) reused: Vec<(usize, StoredFile)>,
    /// Each becomes one object.
    pub(crate) packs: Vec<Vec<usize>>,
    /// Each becomes an object of its own.
    pub(crate) alone: Vec<usize>,
}

/// Decides from the identities of the files and what the base checkpoint holds.
pub(crate) fn plan(files: &[Identity], base: Option<&StoredFiles>) -> Plan {
    let stored = |identity: &Identity| base.and_then(|base| base.get(identity));
    let mut in_use: HashMap<&str, u64> = HashMap::new();
    for identity in files {
        if let Some(file) = stored(identity) {
            *in_use.entry(&file.object.path).or_default() += identity.length;
        }
    }
    let mut plan = Plan::default();
    let mut pack_len = 0;
    for (index, identity) in files.iter().enumerate() {
        let reusable = stored(identity).filter(|file| {
            in_use
                .get(file.object.path.as_str())
                .is_some_and(|used| *used >= file.object.length / LEAST_USE)
        });
        match reusable {
            Some(file) => plan.reused.push((index, file.clone())),
            None if identity.length >= PACK_BELOW => plan.alone.push(index),
            None => {
                match plan.packs.last_mut() {
                    Some(pack) if pack_len < PACK_LEN => pack.push(index),
                    _ => {
                        plan.packs.push(vec![index]);
                        pack_len = 0;
                    }
                }
                pack_len += identity.length;
            }
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(number: u128, length: u64) -> Identity {
        Identity { length, hash: number }
    }

    fn stored(path: &str, object_length: u64, offset: u64) -> StoredFile {
        let object = ObjectRef::new(path, object_length, 7).shared();
        StoredFile { object, offset, crc32: 7 }
    }

    const BIG: u64 = PACK_BELOW;

    #[test]
    fn without_a_base_everything_is_uploaded_small_files_together() {
        let files = [file(1, 100), file(2, BIG), file(3, 0), file(4, BIG - 1)];
        let plan = plan(&files, None);
        assert_eq!(plan, Plan { reused: vec![], packs: vec![vec![0, 2, 3]], alone: vec![1] });
    }

    #[test]
    fn packs_are_bounded() {
        let files: Vec<_> = (0..20).map(|number| file(number, BIG - 1)).collect();
        let plan = plan(&files, None);
        assert!(plan.packs.len() > 1 && plan.alone.is_empty());
        assert_eq!(plan.packs.concat(), (0..20).collect::<Vec<_>>());
        for pack in &plan.packs {
            let length: u64 = pack.iter().map(|&index| files[index].length).sum();
            assert!(length < PACK_LEN + BIG);
        }
    }

    #[test]
    fn what_the_base_holds_is_named_again_and_only_that() {
        let base = StoredFiles::from([
            (file(1, BIG), stored("a", BIG, 0)),
            (file(2, BIG), stored("b", BIG, 0)),
        ]);
        // The same end with another length is another file.
        let files = [file(1, BIG), file(2, BIG + 1), file(3, BIG)];
        let plan = plan(&files, Some(&base));
        assert_eq!(plan.reused, [(0, stored("a", BIG, 0))]);
        assert_eq!((plan.packs.len(), plan.alone), (0, vec![1, 2]));
    }

    #[test]
    fn a_pack_that_is_hardly_used_is_given_up() {
        let base = StoredFiles::from([
            (file(1, 120), stored("pack", 1000, 0)),
            (file(2, 20), stored("pack", 1000, 120)),
        ]);
        let plan_of = |files: &[Identity]| plan(files, Some(&base));
        let both = plan_of(&[file(1, 120), file(2, 20)]);
        assert_eq!((both.reused.len(), both.packs.len()), (2, 0));
        let one = plan_of(&[file(1, 120)]);
        assert_eq!((one.reused.len(), one.packs), (0, vec![vec![0]]));
    }
}
