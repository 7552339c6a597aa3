"""The journal with a wake-up: whoever follows it sleeps until something is appended.

Owns the waiting. What is retained, numbered and encoded is `protocol/journal.py`'s business.
"""

import trio

from duplex_engine.protocol.events import ServerEvent
from duplex_engine.protocol.journal import Cursor, Entry, Journal


class JournalFeed:
    """A session's journal as its actor writes it and its readers follow it."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._grown = trio.lowlevel.ParkingLot()

    def append(self, event: ServerEvent) -> Entry:
        """Append an event; readers wake."""
        entry = self.journal.append(event)
        if self._grown:
            self._grown.unpark_all()
        return entry

    def close(self) -> None:
        """Nothing more will come; readers see the end once they have read everything."""
        self.journal.close()
        self._grown.unpark_all()

    async def next_batch(self, cursor: Cursor, max_bytes: int) -> list[Entry]:
        """Everything new for `cursor`, at least one entry; empty when the journal has ended."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while not (batch := cursor.take(max_bytes)):
            if self.journal.closed:
                return []
            await self._grown.park()
        return batch
