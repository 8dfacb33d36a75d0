//! A panic in user code is a failure of the job, on all workers: a thread that just ended would leave
//! the others waiting for it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use weir_state_api::{Error, ErrorKind, Result};

/// Calls user code. After an error, nothing that it has touched may be used for more than dropping it:
/// the job ends.
pub(crate) fn caught<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| Err(panic_error(&*panic)))
}

/// What a panic says.
#[cold]
pub(crate) fn panic_error(panic: &(dyn Any + Send)) -> Error {
    let message = panic.downcast_ref::<&str>().copied();
    let message = message.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Error::new(
        ErrorKind::UserFunction,
        format!("user code panicked: {}", message.unwrap_or("without a message")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_with_its_message() {
        assert_eq!(caught(|| Ok(7)).unwrap(), 7);
        for error in [
            caught::<()>(|| panic!("no {}", "luck")).unwrap_err(),
            caught::<()>(|| panic!("no luck")).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::UserFunction);
            assert_eq!(error.to_string(), "user code panicked: no luck");
        }
        let strange = caught::<()>(|| std::panic::panic_any(7)).unwrap_err();
        assert!(strange.to_string().contains("without a message"), "{strange}");
    }
}
