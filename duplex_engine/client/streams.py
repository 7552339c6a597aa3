"""Queues between the client's reader and the program that consumes, and the iterators over them.

Owns one policy: the reader never waits. A consumer that falls behind loses the oldest entries and can see how many
(`lag`). Iterators are objects: leave them at any time, close them when done. Never knows what it carries.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Generic, Self, TypeVar

import attrs
import outcome
import trio

from duplex_engine.client.errors import DuplexSessionClosedError, DuplexSessionLostError

__all__ = ["CAPACITY", "DropOldest", "Ending", "Stream"]

CAPACITY = 1024
T = TypeVar("T")


@attrs.frozen
class Ending:
    """Why nothing more will come. `expected`: this side asked for it; `lost`: the connection could not be kept."""

    reason: str
    expected: bool = True
    lost: bool = False

    def to_exception(self) -> DuplexSessionClosedError:
        """The same as an exception; each call makes a new one."""
        if self.lost:
            return DuplexSessionLostError(self.reason)
        return DuplexSessionClosedError(self.reason, expected=self.expected)


class DropOldest(Generic[T]):
    """A bounded queue whose writer never waits.

    `lag` counts entries that were dropped unread. After `end` the entries still queued can be taken, then every `get`
    raises the ending as DuplexSessionClosedError.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.lag = 0
        self._entries: deque[outcome.Value[T] | outcome.Error] = deque()
        self._capacity = capacity
        self._ending: Ending | None = None
        self._takers = trio.lowlevel.ParkingLot()

    def put(self, item: T) -> None:
        """Append an entry; the oldest one goes when the queue is full. After the end: no effect."""
        self._append(outcome.Value(item))

    def fail(self, error: Exception) -> None:
        """Append a failure: the `get` that reaches it raises, the next one goes on behind it."""
        self._append(outcome.Error(error))

    def end(self, ending: Ending) -> None:
        """Nothing more will come. Only the first call counts."""
        if self._ending is None:
            self._ending = ending
            self._takers.unpark_all()

    def discard(self) -> None:
        """Forget what is queued; not counted as lag, since nobody wants it."""
        self._entries.clear()

    async def get(self) -> T:
        """Take the oldest entry, waiting for one if need be. Cancelled: nothing was taken."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self._entries:
            if self._ending is not None:
                await trio.lowlevel.cancel_shielded_checkpoint()
                raise self._ending.to_exception()
            await self._takers.park()
        entry = self._entries.popleft()
        await trio.lowlevel.cancel_shielded_checkpoint()
        return entry.unwrap()

    def _append(self, entry: outcome.Value[T] | outcome.Error) -> None:
        if self._ending is not None:
            return
        if len(self._entries) == self._capacity:
            self._entries.popleft()
            self.lag += 1
        self._entries.append(entry)
        self._takers.unpark()


class Stream(Generic[T]):
    """An iterator over what `take` gets out of `queue`, for one task: `async for`, inside `with stream:` if it is to be
    closed afterwards.

    Iteration ends quietly when the end was expected or the stream was closed, otherwise it raises
    DuplexSessionClosedError. An exception out of the iteration does not close the stream: iterate again to go on.
    """

    def __init__(self, queue: DropOldest[Any], take: Callable[[], Awaitable[T]], on_close: Callable[[], None]) -> None:
        self._queue = queue
        self._take = take
        self._on_close = on_close
        self._closed = False

    @property
    def lag(self) -> int:
        """Entries lost so far because this consumer was too slow."""
        return self._queue.lag

    def close(self) -> None:
        """Stop: release what is queued for this stream. Closing twice is harmless."""
        if not self._closed:
            self._closed = True
            self._on_close()

    async def aclose(self) -> None:
        """`close` for code that expects an asynchronous one."""
        self.close()
        await trio.lowlevel.checkpoint()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        if self._closed:
            await trio.lowlevel.checkpoint()
            raise StopAsyncIteration
        try:
            return await self._take()
        except DuplexSessionClosedError as ended:
            if ended.expected or self._closed:
                raise StopAsyncIteration from None
            raise
