//! The one error type of the family: what went wrong, where, and what to do about it.

use std::error::Error as StdError;
use std::fmt;

/// Result of everything in Weir that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Any boxed error, as user functions return it.
pub type BoxError = Box<dyn StdError + Send + Sync + 'static>;

/// Classes of errors, cut by what the caller does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A named object is not there. Permanent: trying again gives the same answer.
    NotFound,
    /// A create-if-absent lost against somebody else's object.
    Conflict,
    /// A newer owner has taken over; this instance must stop. Never retried.
    Fenced,
    /// Stored bytes fail their checksum, their length or their structure. Never retried.
    Corrupt,
    /// The store did not answer or refused for now; the same call may succeed later.
    Unavailable,
    /// A write may or may not have happened. Read again before acting on either assumption.
    Indeterminate,
    /// The call itself is wrong (a missing key, an out-of-range number, a bad option).
    InvalidUsage,
    /// Stored and requested definitions do not fit: kind, codec, format version, max parallelism.
    Incompatible,
    /// A key, value or object is over a documented limit. Nothing was written.
    TooLarge,
    /// The key's group lies outside the range this instance owns.
    ForeignKey,
    /// A user function failed; the state is as it was before the call.
    UserFunction,
    /// The backend lacks a capability that the call needs.
    Unsupported,
    /// The instance was closed or has failed for good.
    Closed,
}

impl ErrorKind {
    /// The stable, lower-case name of the kind, for metrics and for crossing language borders.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::NotFound => "not-found",
            ErrorKind::Conflict => "conflict",
            ErrorKind::Fenced => "fenced",
            ErrorKind::Corrupt => "corrupt",
            ErrorKind::Unavailable => "unavailable",
            ErrorKind::Indeterminate => "indeterminate",
            ErrorKind::InvalidUsage => "invalid-usage",
            ErrorKind::Incompatible => "incompatible",
            ErrorKind::TooLarge => "too-large",
            ErrorKind::ForeignKey => "foreign-key",
            ErrorKind::UserFunction => "user-function",
            ErrorKind::Unsupported => "unsupported",
            ErrorKind::Closed => "closed",
        }
    }
}

/// An error of any Weir crate.
///
/// One pointer wide, so that `Result<(), Error>` stays in a register. The message is a full
/// sentence for a person; the [`kind`](Error::kind) is for code. [`object`](Error::object) names
/// the stored object concerned, if there is one.
///
/// ```
/// use weir_state_api::{Error, ErrorKind};
///
/// let error = Error::new(ErrorKind::Corrupt, "checksum differs")
///     .object("chk-7/heap-0.state")
///     .advice("restore an older checkpoint");
/// assert_eq!(error.kind(), ErrorKind::Corrupt);
/// assert_eq!(
///     error.to_string(),
///     "checksum differs (object \"chk-7/heap-0.state\"); restore an older checkpoint"
/// );
/// ```
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    message: String,
    object: Option<String>,
    state: Option<String>,
    advice: Option<String>,
    source: Option<BoxError>,
}

impl Error {
    /// An error of the given kind. `message` says what went wrong, without a full stop.
    #[cold]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error(Box::new(Inner {
            kind,
            message: message.into(),
            object: None,
            state: None,
            advice: None,
            source: None,
        }))
    }

    /// Names the stored object (path in the store) that the error is about.
    #[must_use]
    pub fn object(mut self, path: impl Into<String>) -> Self {
        self.0.object = Some(path.into());
        self
    }

    /// Names the state that the error is about.
    #[must_use]
    pub fn state(mut self, name: impl Into<String>) -> Self {
        self.0.state = Some(name.into());
        self
    }

    /// Says what the reader can do about it.
    #[must_use]
    pub fn advice(mut self, advice: impl Into<String>) -> Self {
        self.0.advice = Some(advice.into());
        self
    }

    /// Attaches the underlying error.
    #[must_use]
    pub fn source(mut self, source: impl Into<BoxError>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// This failure, told to somebody else who waited for what failed: of the same kind, about the
    /// same object and state, with the same advice. `message` says what it is to them.
    ///
    /// ```
    /// use weir_state_api::{Error, ErrorKind};
    ///
    /// let error = Error::new(ErrorKind::Unavailable, "timed out").object("a").advice("retry");
    /// let told = error.again("a shared read failed");
    /// assert_eq!(told.to_string(), "a shared read failed: timed out (object \"a\"); retry");
    /// ```
    #[cold]
    #[must_use]
    pub fn again(&self, message: &str) -> Self {
        let inner = &*self.0;
        let message = match &inner.source {
            Some(source) => format!("{message}: {}: {source}", inner.message),
            None => format!("{message}: {}", inner.message),
        };
        Error(Box::new(Inner {
            kind: inner.kind,
            message,
            object: inner.object.clone(),
            state: inner.state.clone(),
            advice: inner.advice.clone(),
            source: None,
        }))
    }

    /// The class of the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The object the error is about, if any.
    pub fn object_path(&self) -> Option<&str> {
        self.0.object.as_deref()
    }

    /// The state the error is about, if any.
    pub fn state_name(&self) -> Option<&str> {
        self.0.state.as_deref()
    }

    /// Whether the same call may succeed if it is made again later.
    pub fn is_retryable(&self) -> bool {
        self.0.kind == ErrorKind::Unavailable
    }

    /// Wraps the failure of a user function. The state is as it was.
    pub fn user_function(what: &str, source: BoxError) -> Self {
        Error::new(ErrorKind::UserFunction, format!("the {what} function failed")).source(source)
    }

    /// Translates an error of the object store; `path` is the object concerned.
    ///
    /// Missing objects become [`NotFound`](ErrorKind::NotFound), lost conditional writes
    /// [`Conflict`](ErrorKind::Conflict), anything temporary
    /// [`Unavailable`](ErrorKind::Unavailable).
    pub fn store(operation: &str, path: &str, source: opendal::Error) -> Self {
        let (kind, advice) = match source.kind() {
            opendal::ErrorKind::NotFound => {
                (ErrorKind::NotFound, "restore another checkpoint, or bring the object back")
            }
            opendal::ErrorKind::ConditionNotMatch | opendal::ErrorKind::AlreadyExists => {
                (ErrorKind::Conflict, "another writer owns this name; read it to learn who")
            }
            opendal::ErrorKind::Unsupported => {
                (ErrorKind::Unsupported, "choose a store that offers this operation")
            }
            opendal::ErrorKind::PermissionDenied | opendal::ErrorKind::ConfigInvalid => (
                ErrorKind::InvalidUsage,
                "check the credentials and the configuration of the store",
            ),
            _ => (
                ErrorKind::Unavailable,
                "check the store (space, network, permissions), then retry",
            ),
        };
        Error::new(kind, format!("the store failed to {operation}"))
            .object(path)
            .advice(advice)
            .source(source)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        f.write_str(&inner.message)?;
        match (&inner.state, &inner.object) {
            (Some(state), Some(object)) => write!(f, " (state {state:?}, object {object:?})")?,
            (Some(state), None) => write!(f, " (state {state:?})")?,
            (None, Some(object)) => write!(f, " (object {object:?})")?,
            (None, None) => {}
        }
        if let Some(source) = &inner.source {
            write!(f, ": {source}")?;
        }
        if let Some(advice) = &inner.advice {
            write!(f, "; {advice}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_one_word() {
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
    }

    #[test]
    fn display_names_state_object_cause_and_advice() {
        let error = Error::new(ErrorKind::Incompatible, "kind differs")
            .state("count")
            .object("a/b")
            .source("stored value, requested list")
            .advice("rename the state");
        assert_eq!(
            error.to_string(),
            "kind differs (state \"count\", object \"a/b\"): stored value, requested list; rename the state"
        );
        assert!(format!("{error:?}").starts_with("Incompatible: "));
    }
}
