"""A shift: the books of one life of a device program. Which slots are let, which questions wait, which calls are open.

Owns the pool of slots and the work of the next step. Pure bookkeeping in plain collections, O(what changed) a step: it
never waits and never touches the device. A crash throws the whole shift away.
"""

from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from itertools import count

from duplex_engine.actors.lease import Call, WorkerLease
from duplex_engine.model_plugins.contract import Result, Work


class Shift:
    """Slots are free, let, or retired; a retired one is free again in the step that resets it, never earlier.

    `asking`: leases with questions that have not gone to the device, in the order in which they asked. `drops`: tickets
    the device still works on for nobody. `wake` is called when there may be something to do.
    """

    def __init__(self, worker: str, slots: int, tickets: "count[int]", wake: Callable[[], object]) -> None:
        self.free = list(range(slots))
        self.let: dict[int, WorkerLease] = {}
        self.retired: dict[int, WorkerLease] = {}
        self.asking: dict[WorkerLease, None] = {}
        self.open_calls: dict[int, Call] = {}
        self.drops: set[int] = set()
        self._worker = worker
        self._tickets = tickets
        self._wake = wake

    @property
    def has_work(self) -> bool:
        """Whether the device has to be stepped."""
        return bool(self.open_calls or self.asking or self.retired or self.drops)

    @property
    def all_ask(self) -> bool:
        """Whether no slot is left whose question could still join the next step."""
        return len(self.asking) == len(self.let)

    # --- letting ------------------------------------------------------------------------------------------------

    def lend(self, specification: Mapping[str, object]) -> WorkerLease:
        """Let the lowest free slot, so that a batch stays as short as it can; there must be one."""
        slot = heappop(self.free)
        lease = self.let[slot] = WorkerLease(self._worker, slot, specification, self)
        return lease

    def retire(self, lease: WorkerLease) -> None:
        """The lease's block has been left. A row that the device never saw is clean, any other is reset first."""
        if self.let.pop(lease.slot, None) is None:
            return  # the shift ended before the lease did
        lease.retire()
        if lease.opened:
            self.retired[lease.slot] = lease
        else:
            heappush(self.free, lease.slot)
        self._wake()

    def asked(self, lease: WorkerLease) -> None:
        """A question waits in `lease.queued`."""
        self.asking[lease] = None
        self._wake()

    def hung_up(self, call: Call) -> None:
        """Nobody waits for the answers of `call` any more."""
        if not call.lease.queued:
            self.asking.pop(call.lease, None)
        if call.ticket is not None and self.open_calls.pop(call.ticket, None) is not None:
            self.drops.add(call.ticket)
            self._wake()

    # --- stepping -----------------------------------------------------------------------------------------------

    def gather(self) -> Work:
        """The work of the next step: resets, drops, and at most one question per slot."""
        resets, drops = tuple(sorted(self.retired)), tuple(sorted(self.drops))
        for slot in resets:
            heappush(self.free, slot)
        self.retired.clear()
        self.drops.clear()
        opens: list[tuple[int, Mapping[str, object]]] = []
        items: list[tuple[int, int, object]] = []
        for lease in tuple(self.asking):
            call = lease.take()
            if not lease.queued:
                del self.asking[lease]
            if not lease.opened:
                lease.opened = True
                opens.append((lease.slot, lease.specification))
            call.ticket = next(self._tickets)
            self.open_calls[call.ticket] = call
            items.append((lease.slot, call.ticket, call.payload))
        return Work(resets=resets, drops=drops, opens=tuple(opens), items=tuple(items))

    def deliver(self, result: Result) -> bool:
        """Address an answer to its call. False when nobody took it: its caller is gone, or too far behind."""
        call = self.open_calls.get(result.ticket)
        if call is None:
            if result.last:
                self.drops.discard(result.ticket)
            return False
        taken = call.put(result.outcome, last=result.last)
        if result.last or not taken:
            del self.open_calls[result.ticket]
        if not (result.last or taken):
            self.drops.add(result.ticket)
        return taken

    def close(self, cause: str) -> None:
        """The device program is gone: every caller learns it."""
        for lease in self.let.values():
            lease.lose(cause)
        self.let.clear()
