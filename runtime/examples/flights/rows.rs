//! Rows of a CSV file with a header, turned into records one at a time.
//!
//! Columns are found by their name, so their order does not matter and further columns do no harm.
//! As in R, whence the data comes, a missing value is `NA`; an empty field means the same.

use std::error::Error;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::ops::RangeInclusive;

use csv::{ErrorKind, Reader, ReaderBuilder, StringRecord};

use super::source::{Lines, Source, UnclosedQuote};

/// Something that a row can be turned into.
pub(crate) trait Record: Sized {
    /// The names of the columns that [`Record::parse`] reads.
    const COLUMNS: &'static [&'static str];

    /// The record in a row.
    fn parse(row: &Row<'_>) -> Result<Self, RowError>;
}

/// What is wrong with a row, or with the file as a whole, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RowError {
    /// The file, or what stands for it.
    pub(crate) source_name: String,
    /// The line, counted from 1, the header included; `None` when it is not about a line.
    pub(crate) line: Option<u64>,
    /// The name of the column; `None` when it is not about a single one.
    pub(crate) column: Option<String>,
    /// What is wrong.
    pub(crate) what: String,
    /// What to do about it.
    pub(crate) advice: String,
}

impl fmt::Display for RowError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.source_name)?;
        if let Some(line) = self.line {
            write!(formatter, ", line {line}")?;
        }
        if let Some(column) = &self.column {
            write!(formatter, ", column {column}")?;
        }
        write!(formatter, ": {}; {}", self.what, self.advice)
    }
}

impl Error for RowError {}

/// The records of a source, in its order.
///
/// A malformed row gives an error and the next row is read; when the source itself fails, as by a
/// quote that is not closed or a compressed file that is cut short, the error is the last item.
pub(crate) struct Rows<T> {
    source_name: String,
    reader: Reader<Lines>,
    /// The names in the header, for errors.
    header: StringRecord,
    /// Where in a row the columns of [`Record::COLUMNS`] are.
    positions: Vec<usize>,
    /// The row read last; kept to reuse its memory.
    record: StringRecord,
    /// Whether the source ended or failed.
    done: bool,
    records: PhantomData<fn() -> T>,
}

impl<T: Record> Rows<T> {
    /// Reads the header of `source`.
    pub(crate) fn new(source: Source) -> Result<Self, RowError> {
        let Source { name: source_name, lines } = source;
        let mut reader = ReaderBuilder::new().from_reader(lines);
        let header = match reader.headers() {
            Ok(header) => header.clone(),
            Err(error) => {
                let line = reader.get_ref().number();
                return Err(malformed(&source_name, line, &StringRecord::new(), error));
            }
        };
        let mut positions = Vec::with_capacity(T::COLUMNS.len());
        for &column in T::COLUMNS {
            let Some(position) = header.iter().position(|name| name == column) else {
                let expected = T::COLUMNS.join(",");
                return Err(RowError {
                    source_name,
                    line: Some(1),
                    column: Some(column.to_owned()),
                    what: "the header lacks this column".to_owned(),
                    advice: format!("the first line must name the columns {expected}"),
                });
            };
            positions.push(position);
        }
        let record = StringRecord::new();
        let records = PhantomData;
        Ok(Rows { source_name, reader, header, positions, record, done: false, records })
    }
}

impl<T: Record> Iterator for Rows<T> {
    type Item = Result<T, RowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let read = self.reader.read_record(&mut self.record);
        // Not the position that the record tells: that is off by the blank lines before it.
        let line = self.reader.get_ref().number();
        match read {
            Ok(true) => {}
            Ok(false) => {
                self.done = true;
                return None;
            }
            Err(error) => {
                self.done = error.is_io_error();
                return Some(Err(malformed(&self.source_name, line, &self.header, error)));
            }
        }
        let row = Row {
            source_name: &self.source_name,
            line,
            columns: T::COLUMNS,
            positions: &self.positions,
            record: &self.record,
        };
        Some(T::parse(&row))
    }
}

impl<T> fmt::Debug for Rows<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Rows").field("source", &self.source_name).finish_non_exhaustive()
    }
}

/// The error for what is not a row at all.
fn malformed(source_name: &str, line: u64, header: &StringRecord, error: csv::Error) -> RowError {
    let mut line = Some(line);
    let mut column = None;
    let what;
    let advice;
    match error.into_kind() {
        ErrorKind::Utf8 { err, .. } => {
            column = header.get(err.field()).map(str::to_owned);
            what = "not valid UTF-8".to_owned();
            advice = "save the file as UTF-8".to_owned();
        }
        ErrorKind::UnequalLengths { expected_len, len, .. } => {
            what = format!("{len} columns where the header has {expected_len}");
            advice = "check the row for missing or surplus commas, or a file cut short".to_owned();
        }
        ErrorKind::Io(error) => match error.downcast::<UnclosedQuote>() {
            Ok(quote) => {
                what = quote.to_string();
                advice = "close the quote on the same line, or see whether the file is cut short"
                    .to_owned();
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                line = None;
                what = "the compressed data ends too early".to_owned();
                advice = "the file is cut short: fetch or make it again".to_owned();
            }
            Err(error) => {
                line = None;
                what = format!("cannot be read: {error}");
                advice = "check that the file is intact and may be read".to_owned();
            }
        },
        kind => {
            what = format!("not a row: {kind:?}");
            advice = "the file must be CSV with a header".to_owned();
        }
    }
    RowError { source_name: source_name.to_owned(), line, column, what, advice }
}

/// A row, whose fields are read by the names of their columns.
#[derive(Debug)]
pub(crate) struct Row<'a> {
    source_name: &'a str,
    /// Counted from 1.
    line: u64,
    columns: &'static [&'static str],
    positions: &'a [usize],
    record: &'a StringRecord,
}

impl Row<'_> {
    /// The text in a column; `None` when the value is missing.
    pub(crate) fn text(&self, column: &str) -> Option<&str> {
        let index = self.columns.iter().position(|name| *name == column)?;
        let text = self.record.get(*self.positions.get(index)?)?;
        (!matches!(text, "" | "NA")).then_some(text)
    }

    /// A short code, as of an airport: letters and digits, nothing that CSV would have to quote.
    pub(crate) fn code(&self, column: &str) -> Result<String, RowError> {
        let text = self.present(column, self.text(column))?;
        if text.len() <= 8 && text.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Ok(text.to_owned());
        }
        Err(self.error(
            column,
            format!("{text:?} is no code"),
            "expected up to 8 letters or digits",
        ))
    }

    /// An integer within `range`.
    pub(crate) fn integer(
        &self,
        column: &str,
        range: RangeInclusive<i64>,
    ) -> Result<i64, RowError> {
        self.present(column, self.optional_integer(column, range)?)
    }

    /// An integer within `range`; `None` when the value is missing.
    pub(crate) fn optional_integer(
        &self,
        column: &str,
        range: RangeInclusive<i64>,
    ) -> Result<Option<i64>, RowError> {
        let Some(text) = self.text(column) else { return Ok(None) };
        let (first, last) = (range.start(), range.end());
        let advice = format!("expected an integer from {first} to {last}");
        let Ok(value) = text.parse() else {
            return Err(self.error(column, format!("{text:?} is not an integer"), &advice));
        };
        if !range.contains(&value) {
            return Err(self.error(column, format!("{value} is out of range"), &advice));
        }
        Ok(Some(value))
    }

    /// A decimal number, not negative, in units of 10^-`decimals`, rounded half up; `None` when
    /// the value is missing.
    pub(crate) fn optional_scaled(
        &self,
        column: &str,
        decimals: usize,
    ) -> Result<Option<i64>, RowError> {
        let Some(text) = self.text(column) else { return Ok(None) };
        scaled(text, decimals).map(Some).ok_or_else(|| {
            let what = format!("{text:?} is not a decimal number");
            self.error(column, what, "expected digits, at most six before the point, as in 12.75")
        })
    }

    /// The value of a column that may not be missing.
    pub(crate) fn present<V>(&self, column: &str, value: Option<V>) -> Result<V, RowError> {
        let advice = "every row must have a value in this column";
        value.ok_or_else(|| self.error(column, "the value is missing".to_owned(), advice))
    }

    /// The error that a value in `column` is wrong.
    pub(crate) fn error(&self, column: &str, what: String, advice: &str) -> RowError {
        RowError {
            source_name: self.source_name.to_owned(),
            line: Some(self.line),
            column: Some(column.to_owned()),
            what,
            advice: advice.to_owned(),
        }
    }
}

/// The decimal number in `text`, in units of 10^-`decimals`.
///
/// Integers only: the data has numbers like 10.357019999999999, and how a float rounds should not
/// matter to any result.
fn scaled(text: &str, decimals: usize) -> Option<i64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || whole.len() > 6 {
        return None;
    }
    let mut value: i64 = whole.parse().ok()?;
    let mut fraction = fraction.bytes().map(|byte| i64::from(byte - b'0'));
    for _ in 0..decimals {
        value = value.checked_mul(10)?.checked_add(fraction.next().unwrap_or(0))?;
    }
    let half_or_more = fraction.next().unwrap_or(0) >= 5;
    value.checked_add(i64::from(half_or_more))
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[derive(Debug, PartialEq)]
    struct Pair(i64, Option<i64>);

    impl Record for Pair {
        const COLUMNS: &'static [&'static str] = &["a", "b"];

        fn parse(row: &Row<'_>) -> Result<Self, RowError> {
            Ok(Pair(row.integer("a", 0..=9)?, row.optional_scaled("b", 1)?))
        }
    }

    fn rows(text: impl AsRef<[u8]> + Send + 'static) -> Result<Rows<Pair>, RowError> {
        Rows::new(Source::new("test", Cursor::new(text))?)
    }

    /// Line, column and message of the first error.
    fn first_error(text: impl AsRef<[u8]> + Send + 'static) -> (Option<u64>, String, String) {
        let error = match rows(text) {
            Ok(mut rows) => rows.find_map(Result::err).unwrap(),
            Err(error) => error,
        };
        (error.line, error.column.unwrap_or_default(), error.what)
    }

    #[test]
    fn columns_are_found_by_name() {
        let read: Result<Vec<_>, _> = rows("x,b,a\nq,1.5,1\nq,NA,2\r\nq,,3").unwrap().collect();
        assert_eq!(read.unwrap(), [Pair(1, Some(15)), Pair(2, None), Pair(3, None)]);
    }

    #[test]
    fn a_column_that_the_header_lacks_is_named() {
        let (line, column, what) = first_error("a,c\n1,2\n");
        assert_eq!((line, column.as_str()), (Some(1), "b"));
        assert_eq!(what, "the header lacks this column");
        assert_eq!(first_error("").1, "a");
    }

    #[test]
    fn values_are_checked() {
        let expect = |row: &str, column: &str, what: &str| {
            let error = first_error(format!("a,b\n1,2\n{row}\n"));
            assert_eq!(error, (Some(3), column.to_owned(), what.to_owned()));
        };
        expect("x,2", "a", "\"x\" is not an integer");
        expect("1.0,2", "a", "\"1.0\" is not an integer");
        expect("99999999999999999999,2", "a", "\"99999999999999999999\" is not an integer");
        expect("10,2", "a", "10 is out of range");
        expect("NA,2", "a", "the value is missing");
        expect("1,-2", "b", "\"-2\" is not a decimal number");
        expect("1,1e3", "b", "\"1e3\" is not a decimal number");
        expect("1", "", "1 columns where the header has 2");
        expect("1,2,3", "", "3 columns where the header has 2");
        expect("1,\"2", "", "a quoted field is not closed");
    }

    #[test]
    fn invalid_utf8_is_an_error_in_any_column() {
        let (line, column, what) = first_error(b"a,x,b\n1,\xff,2\n".as_slice());
        assert_eq!((line, column.as_str(), what.as_str()), (Some(2), "x", "not valid UTF-8"));
        assert_eq!(first_error(b"a,\xff\n".as_slice()).0, Some(1));
    }

    #[test]
    fn reading_goes_on_after_a_bad_row_but_not_after_an_open_quote() {
        let ok: Vec<_> = rows("a,b\n1,1\nx,1\n2\n3,1\n").unwrap().map(|row| row.is_ok()).collect();
        assert_eq!(ok, [true, false, false, true]);
        let ok: Vec<_> = rows("a,b\n1,1\n2,\"1\n3,1\n").unwrap().map(|row| row.is_ok()).collect();
        assert_eq!(ok, [true, false]);
    }

    #[test]
    fn lines_count_blank_ones() {
        assert_eq!(first_error("a,b\r\n1,1\r\n\r\n\r\nx,1\r\n").0, Some(5));
    }

    #[test]
    fn errors_read_as_a_sentence() {
        let error = rows("a,b\nx,1\n").unwrap().find_map(Result::err).unwrap();
        let expected = "test, line 2, column a: \"x\" is not an integer; \
                        expected an integer from 0 to 9";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn decimals_are_scaled_exactly() {
        assert_eq!(scaled("10.357019999999999", 3), Some(10_357));
        assert_eq!(scaled("27.618719999999996", 3), Some(27_619));
        assert_eq!(scaled("0.06", 2), Some(6));
        assert_eq!(scaled("10", 2), Some(1_000));
        assert_eq!(scaled("0.995", 2), Some(100));
        for text in ["", ".", "1.", ".5", "1.2.3", "+1", "1234567", "1_0", " 1"] {
            assert_eq!(scaled(text, 2), None, "{text:?}");
        }
    }
}
