//! Reading at a place of a file, from many threads.

use std::fs::File;
use std::io;

/// Reads exactly `length` bytes.
#[cfg(unix)]
pub(super) fn read_at(file: &File, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    use std::os::unix::fs::FileExt;
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

/// Reads exactly `length` bytes.
#[cfg(windows)]
pub(super) fn read_at(file: &File, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    use std::os::windows::fs::FileExt;
    let mut bytes = vec![0; length];
    let mut done = 0;
    while done < length {
        match file.seek_read(&mut bytes[done..], offset + done as u64)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => done += read,
        }
    }
    Ok(bytes)
}
