//! Where rows come from: bytes inside the program, a file, or standard input.
//!
//! Whether the bytes are compressed with gzip is seen from the first two of them, so that all
//! three may be either.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;

use super::rows::RowError;

/// What every gzip stream starts with, and no CSV file.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// A stream of plain CSV bytes and the name to call it by in errors.
pub(crate) struct Source {
    pub(super) name: String,
    pub(super) lines: Lines,
}

impl Source {
    /// Reads bytes that are part of the program.
    pub(crate) fn embedded(name: &str, bytes: &'static [u8]) -> Result<Self, RowError> {
        Source::new(name, bytes)
    }

    /// Reads a file.
    pub(crate) fn file(path: &Path) -> Result<Self, RowError> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|error| cannot_read(&name, &error))?;
        Source::new(&name, file)
    }

    /// Reads standard input to its end.
    pub(crate) fn stdin() -> Result<Self, RowError> {
        Source::new("standard input", io::stdin())
    }

    /// Reads `reader`, uncompressing it if need be.
    pub(crate) fn new(
        name: &str,
        mut reader: impl Read + Send + 'static,
    ) -> Result<Self, RowError> {
        let mut start = Vec::with_capacity(GZIP_MAGIC.len());
        // A pipe may hand over one byte at a time; `take` reads on until both are there.
        let mut first = reader.by_ref().take(GZIP_MAGIC.len() as u64);
        first.read_to_end(&mut start).map_err(|error| cannot_read(name, &error))?;
        let compressed = start == GZIP_MAGIC;
        let whole = Cursor::new(start).chain(reader);
        let reader: Box<dyn Read + Send> =
            if compressed { Box::new(MultiGzDecoder::new(whole)) } else { Box::new(whole) };
        Ok(Source { name: name.to_owned(), lines: Lines::new(reader) })
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Source").field("name", &self.name).finish_non_exhaustive()
    }
}

fn cannot_read(name: &str, error: &io::Error) -> RowError {
    RowError {
        source_name: name.to_owned(),
        line: None,
        column: None,
        what: format!("cannot be read: {error}"),
        advice: "check that the file exists and may be read".to_owned(),
    }
}

/// Passes bytes on line by line, and fails with [`UnclosedQuote`] at a line on which a quote is
/// opened and not closed.
///
/// CSV allows line breaks within quotes, so a lost quote makes a reader take the rest of the file,
/// even to its very end, for one field. No field of ours has a line break: here the line that
/// lacks the quote is found.
pub(super) struct Lines {
    inner: BufReader<Box<dyn Read + Send>>,
    /// The line that is being passed on.
    current: Vec<u8>,
    /// How much of it has been.
    passed: usize,
    /// Its number, counted from 1; 0 before the first.
    number: u64,
}

impl Lines {
    fn new(inner: Box<dyn Read + Send>) -> Self {
        Lines { inner: BufReader::new(inner), current: Vec::new(), passed: 0, number: 0 }
    }

    /// The number of the line that was passed on last, counted from 1.
    ///
    /// One call of `read` never goes beyond a line, so to a CSV reader this is the line of the row
    /// that it has just read.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Gets the next line; at the end it is empty.
    fn advance(&mut self) -> io::Result<()> {
        self.current.clear();
        self.passed = 0;
        if self.inner.read_until(b'\n', &mut self.current)? == 0 {
            return Ok(());
        }
        self.number += 1;
        let quotes = self.current.iter().filter(|byte| **byte == b'"').count();
        if quotes % 2 == 1 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, UnclosedQuote));
        }
        Ok(())
    }
}

impl Read for Lines {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.passed == self.current.len() {
            let advanced = self.advance();
            if advanced.is_err() {
                self.current.clear();
            }
            advanced?;
        }
        let rest = &self.current[self.passed..];
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        self.passed += length;
        Ok(length)
    }
}

/// A quote is opened on a line and not closed on it.
#[derive(Debug)]
pub(super) struct UnclosedQuote;

impl fmt::Display for UnclosedQuote {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a quoted field is not closed")
    }
}

impl std::error::Error for UnclosedQuote {}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    /// Hands over one byte at a time.
    struct Trickle(&'static [u8]);

    impl Read for Trickle {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let length = buffer.len().min(1);
            self.0.read(&mut buffer[..length])
        }
    }

    fn gzip(text: &str) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    /// The text up to the end or an error, the number of the last line, and the error.
    fn read(reader: impl Read + Send + 'static) -> (String, u64, Option<io::Error>) {
        let mut lines = Source::new("test", reader).unwrap().lines;
        let mut text = Vec::new();
        let error = lines.read_to_end(&mut text).err();
        (String::from_utf8(text).unwrap(), lines.number(), error)
    }

    /// The text before the first open quote, and the line of that.
    fn read_to_open_quote(reader: impl Read + Send + 'static) -> (String, u64) {
        let (text, line, error) = read(reader);
        error.unwrap().downcast::<UnclosedQuote>().unwrap();
        (text, line)
    }

    #[test]
    fn plain_and_compressed_streams_read_the_same() {
        for text in ["", "a", "a,b\n1,\"2\"\n"] {
            assert_eq!(read(Cursor::new(text.to_owned())).0, text);
            assert_eq!(read(Cursor::new(gzip(text))).0, text);
        }
        let two = [gzip("a\n"), gzip("b\n")].concat();
        assert_eq!(read(Cursor::new(two)).0, "a\nb\n");
    }

    #[test]
    fn streams_may_trickle() {
        let (text, lines, error) = read(Trickle(b"a,b\n1,\"2\"\n"));
        assert_eq!((text.as_str(), lines, error.is_none()), ("a,b\n1,\"2\"\n", 2, true));
        let (text, line) = read_to_open_quote(Trickle(b"a,b\n1,\"2\n3,4\n"));
        assert_eq!((text.as_str(), line), ("a,b\n", 2));
    }

    #[test]
    fn an_open_quote_is_found_on_its_line() {
        let found = |text: &'static str| read_to_open_quote(text.as_bytes());
        assert_eq!(found("a\n\"1\"\n\"2\n3\n\"4\"\n"), ("a\n\"1\"\n".to_owned(), 3));
        assert_eq!(found("a\n\"1"), ("a\n".to_owned(), 2));
        assert_eq!(found("\"a\n1\n"), (String::new(), 1));
    }

    #[test]
    fn a_truncated_stream_is_an_error() {
        let mut bytes = gzip("a,b\n1,2\n");
        bytes.truncate(bytes.len() - 6);
        assert_eq!(read(Cursor::new(bytes)).2.unwrap().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_missing_file_is_an_error() {
        let error = Source::file(Path::new("no-such-file.csv")).unwrap_err();
        assert_eq!((error.source_name.as_str(), error.line), ("no-such-file.csv", None));
    }
}
