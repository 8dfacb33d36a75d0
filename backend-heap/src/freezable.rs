//! A value that can be shared with readers at once and is copied by its owner when it next writes.

use std::sync::Arc;

/// A value owned by one writer, or shared with readers who hold it as it was when it was frozen.
///
/// An `Arc` alone would do; but its uniqueness check costs two atomic operations on every write,
/// and writes far outnumber snapshots.
#[derive(Debug)]
pub(crate) enum Freezable<T> {
    /// Nobody else sees it: writes go straight to it.
    Owned(T),
    /// Readers may hold it: the next write takes it back if they are gone, or copies it.
    Frozen(Arc<T>),
}

impl<T: Default> Default for Freezable<T> {
    fn default() -> Self {
        Freezable::Owned(T::default())
    }
}

impl<T: Clone + Default> Freezable<T> {
    /// Read access.
    #[inline]
    pub(crate) fn get(&self) -> &T {
        match self {
            Freezable::Owned(value) => value,
            Freezable::Frozen(value) => value,
        }
    }

    /// Write access; copies the value when a reader still holds it.
    #[inline]
    pub(crate) fn get_mut(&mut self) -> &mut T {
        if let Freezable::Frozen(_) = self {
            self.thaw();
        }
        match self {
            Freezable::Owned(value) => value,
            Freezable::Frozen(_) => unreachable!("the value was thawed above"),
        }
    }

    /// Whether the next write may have to copy.
    #[cfg(test)]
    pub(crate) fn is_frozen(&self) -> bool {
        matches!(self, Freezable::Frozen(_))
    }

    /// Shares the value as it is now.
    pub(crate) fn freeze(&mut self) -> Arc<T> {
        match std::mem::take(self) {
            Freezable::Owned(value) => {
                let shared = Arc::new(value);
                *self = Freezable::Frozen(Arc::clone(&shared));
                shared
            }
            Freezable::Frozen(shared) => {
                *self = Freezable::Frozen(Arc::clone(&shared));
                shared
            }
        }
    }

    #[cold]
    fn thaw(&mut self) {
        if let Freezable::Frozen(shared) = std::mem::take(self) {
            *self = Freezable::Owned(Arc::unwrap_or_clone(shared));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_keep_what_they_froze_and_the_last_one_gives_it_back() {
        let mut value = Freezable::Owned(vec![1]);
        let first = value.freeze();
        let again = value.freeze();
        assert!(Arc::ptr_eq(&first, &again));
        value.get_mut().push(2);
        assert!(!value.is_frozen());
        let second = value.freeze();
        value.get_mut().push(3);
        assert_eq!((&*first, &*second, value.get()), (&vec![1], &vec![1, 2], &vec![1, 2, 3]));

        let third = value.freeze();
        let buffer = third.as_ptr();
        drop(third);
        assert_eq!(value.get_mut().as_ptr(), buffer, "taken back, not copied");
    }
}
