//! TensorBoard event files: protobuf messages in TFRecord frames.

use prost::{Message, Oneof};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

/// The longest time that an event stays in memory.
const FLUSHED: Duration = Duration::from_secs(5);

/// A file of scalars by step.
pub struct EventFile {
    file: BufWriter<File>,
    flushed: Instant,
}

#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(double, tag = "1")]
    wall_time: f64,
    #[prost(int64, tag = "2")]
    step: i64,
    #[prost(oneof = "Content", tags = "3, 5, 7")]
    content: Option<Content>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Content {
    #[prost(string, tag = "3")]
    FileVersion(String),
    #[prost(message, tag = "5")]
    Summary(Summary),
    #[prost(message, tag = "7")]
    SessionLog(SessionLog),
}

#[derive(Clone, PartialEq, Message)]
struct Summary {
    #[prost(message, repeated, tag = "1")]
    value: Vec<Scalar>,
}

#[derive(Clone, PartialEq, Message)]
struct Scalar {
    #[prost(string, tag = "1")]
    tag: String,
    #[prost(float, optional, tag = "2")]
    simple_value: Option<f32>,
}

#[derive(Clone, PartialEq, Message)]
struct SessionLog {
    /// 1: a session starts, which replaces the events of earlier files in the folder from its step on.
    #[prost(int32, tag = "1")]
    status: i32,
}

impl EventFile {
    /// Creates a file in a folder, which is created if it is missing. Events of earlier files from `step` on are replaced.
    pub fn create(folder: &Path, step: u64) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let name = format!("events.out.tfevents.{:.0}.rewire.{}", seconds(), std::process::id());
        let mut file = Self { file: BufWriter::new(File::create(folder.join(name))?), flushed: Instant::now() };
        file.write(0, Content::FileVersion("brain.Event:2".to_owned()))?;
        file.write(step, Content::SessionLog(SessionLog { status: 1 }))?;
        file.flush()?;
        Ok(file)
    }

    /// Adds scalars of a step by their tags.
    pub fn add(&mut self, step: u64, scalars: impl IntoIterator<Item = (String, f64)>) -> io::Result<()> {
        let scalar = |(tag, value)| Scalar { tag, simple_value: Some(value as f32) };
        let value = scalars.into_iter().map(scalar).collect();
        self.write(step, Content::Summary(Summary { value }))?;
        if self.flushed.elapsed() > FLUSHED { self.flush() } else { Ok(()) }
    }

    /// Flushes all events to the operating system.
    pub fn flush(&mut self) -> io::Result<()> {
        self.flushed = Instant::now();
        self.file.flush()
    }

    fn write(&mut self, step: u64, content: Content) -> io::Result<()> {
        let event = Event { wall_time: seconds(), step: step as i64, content: Some(content) }.encode_to_vec();
        let length = (event.len() as u64).to_le_bytes();
        self.file.write_all(&length)?;
        self.file.write_all(&checksum(&length))?;
        self.file.write_all(&event)?;
        self.file.write_all(&checksum(&event))
    }
}

/// The masked CRC-32C of TFRecord.
fn checksum(bytes: &[u8]) -> [u8; 4] {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

/// Seconds since 1970.
fn seconds() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_framed_records() {
        // The check value of CRC-32C for "123456789" is 0xe3069283.
        assert_eq!(checksum(b"123456789"), 0xc78a_b0e5_u32.to_le_bytes());
        let folder = tempfile::tempdir().unwrap();
        let mut file = EventFile::create(&folder.path().join("new"), 7).unwrap();
        file.add(7, [("loss/total".to_owned(), 0.0), ("lr/dense".to_owned(), 0.25)]).unwrap();
        file.flush().unwrap();
        let path = std::fs::read_dir(folder.path().join("new")).unwrap().next().unwrap().unwrap().path();
        assert!(path.file_name().unwrap().to_str().unwrap().starts_with("events.out.tfevents."));
        let (bytes, mut at, mut events) = (std::fs::read(path).unwrap(), 0, vec![]);
        while at < bytes.len() {
            let length = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
            let (head, data) = (&bytes[at..at + 8], &bytes[at + 12..at + 12 + length]);
            assert_eq!(bytes[at + 8..at + 12], checksum(head));
            assert_eq!(bytes[at + 12 + length..at + 16 + length], checksum(data));
            events.push(Event::decode(data).unwrap());
            at += 16 + length;
        }
        let contents: Vec<_> = events.iter().map(|event| (event.step, event.content.clone().unwrap())).collect();
        let scalar = |tag: &str, value| Scalar { tag: tag.to_owned(), simple_value: Some(value) };
        let value = vec![scalar("loss/total", 0.0), scalar("lr/dense", 0.25)];
        let expected = [
            (0, Content::FileVersion("brain.Event:2".to_owned())),
            (7, Content::SessionLog(SessionLog { status: 1 })),
            (7, Content::Summary(Summary { value })),
        ];
        assert_eq!(contents, expected);
        assert!(events.iter().all(|event| event.wall_time > 1e9));
    }
}
