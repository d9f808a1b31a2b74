//! A range of bytes as a stream.

use std::io::{self, Read, Seek, SeekFrom};

use super::ByteRange;
use crate::tensor::TensorStorage;

/// Bytes that are read from a file at a time.
const BUFFER_BYTES: usize = 16 << 10;

/// Reads a range from a position on. Clones have positions of their own.
#[derive(Clone, Debug)]
pub struct ByteReader {
    range: ByteRange,
    position: usize,
    /// Bytes from `buffer_start` on.
    buffer: Vec<u8>,
    buffer_start: usize,
}

impl ByteReader {
    /// Reads a range from its beginning.
    pub fn new(range: ByteRange) -> ByteReader {
        ByteReader {
            range,
            position: 0,
            buffer: Vec::new(),
            buffer_start: 0,
        }
    }

    /// The bytes in the buffer from the position on.
    fn buffered(&self) -> &[u8] {
        let start = self.position.checked_sub(self.buffer_start);
        let bytes = start.and_then(|start| self.buffer.get(start..));
        bytes.unwrap_or_default()
    }

    fn fill(&mut self, length: usize) -> io::Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(length, 0);
        let copied = self.range.copy(self.position, &mut buffer);
        copied.map_err(|error| io::Error::other(error.message().to_string()))?;
        (self.buffer, self.buffer_start) = (buffer, self.position);
        Ok(())
    }
}

impl Read for ByteReader {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let rest = self.range.len().saturating_sub(self.position);
        if self.buffered().is_empty() && rest > 0 {
            self.fill(rest.min(BUFFER_BYTES))?;
        }
        let read = self.buffered().read(bytes)?;
        self.position += read;
        Ok(read)
    }
}

impl Seek for ByteReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let base = |length: usize| length as u64;
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::End(offset) => base(self.range.len()).checked_add_signed(offset),
            SeekFrom::Current(offset) => base(self.position).checked_add_signed(offset),
        };
        let position = position.and_then(|position| usize::try_from(position).ok());
        self.position = position.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::ByteSource;

    #[test]
    fn reads_what_a_cursor_reads() {
        let bytes: Vec<u8> = (0..50_000u32).map(|i| (i % 251) as u8).collect();
        let mut reader = ByteReader::new(ByteRange::whole(ByteSource::from_bytes(bytes.clone())));
        let mut cursor = io::Cursor::new(&bytes);
        for (to, length) in [
            (SeekFrom::Start(3), 40_000),
            (SeekFrom::Current(-39_000), 10),
            (SeekFrom::End(-5), 9),
            (SeekFrom::Start(60_000), 1),
            (SeekFrom::Start(16_384), 16_385),
        ] {
            assert_eq!(reader.seek(to).unwrap(), cursor.seek(to).unwrap());
            let read = |stream: &mut dyn Read| {
                let mut found = Vec::new();
                stream.take(length).read_to_end(&mut found).unwrap();
                found
            };
            assert_eq!(read(&mut reader), read(&mut cursor));
        }
        assert!(reader.seek(SeekFrom::Current(-70_000)).is_err());
    }
}
