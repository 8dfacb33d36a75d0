//! The auction events as a source of the runtime.

use weir_runtime::{ReadStatus, Record, Source, SplitReader};
use weir_state_api::{Error, ErrorKind, Result};

use super::event::{Event, Millis};
use super::generator::{InvalidSplit, Position, Settings, Split};

/// Generates the events, in splits that interleave.
#[derive(Debug, Clone)]
pub(crate) struct AuctionSite {
    /// Which events.
    pub(crate) settings: Settings,
    /// Into how many splits they are divided.
    pub(crate) splits: u32,
}

impl AuctionSite {
    /// All events in the order of their numbers.
    pub(crate) fn in_order(&self) -> Result<impl Iterator<Item = (Millis, Event)> + use<>> {
        Split::open(&self.settings, Position::start(0, 1)).map_err(invalid)
    }
}

fn invalid(error: InvalidSplit) -> Error {
    Error::new(ErrorKind::InvalidUsage, "these events cannot be generated").source(error)
}

impl Source for AuctionSite {
    type Out = Event;

    fn splits(&self) -> u32 {
        self.splits
    }

    fn open(&self, split: u32, offset: u64) -> Result<Box<dyn SplitReader<Event>>> {
        let (index, of) = (u64::from(split), u64::from(self.splits));
        if offset > 0 && index + (offset - 1) * of >= self.settings.events {
            return Err(Error::new(
                ErrorKind::Incompatible,
                format!("there are fewer events than {offset} in split {split}"),
            )
            .advice("restore with the options that the checkpoint was taken with"));
        }
        let position =
            Position { next_event_number: index + offset * of, ..Position::start(index, of) };
        let split = Split::open(&self.settings, position).map_err(invalid)?;
        Ok(Box::new(Reader(split)))
    }
}

struct Reader(Split);

impl SplitReader<Event> for Reader {
    fn read(&mut self, limit: usize, records: &mut Vec<Record<Event>>) -> Result<ReadStatus> {
        records.extend(self.0.by_ref().take(limit).map(|(time, value)| Record { time, value }));
        Ok(if self.0.is_at_end() { ReadStatus::End } else { ReadStatus::More })
    }

    fn watermark(&self) -> Millis {
        self.0.watermark()
    }
}
