"""How long a session waits for its client: idle, detached, or never attached at all.

Owns the moments that count and what their expiry means (wire contract 2.10). Reads no clock and ends nothing: the session
asks when to look again and what to do then.
"""

import math

import attrs

from duplex_engine.conversation.effects import EndSession

ABANDONED_AFTER_S = 10.0
"""How long a session waits for its first guest: whoever opened it attaches at once or has gone."""


@attrs.define
class Patience:
    """The patience of one session. `grace_s` None: the session cannot be resumed, a lost client ends it at once.

    `tethered`: its opener ends it; nobody has to be attached. `active_at`: when the client or the model last did
    something that renews the lease; an assignment is all that an append costs.
    """

    idle_ttl_s: float
    grace_s: float | None
    tethered: bool
    active_at: float
    _vacant_until: float = attrs.field(init=False)
    _vacancy_ending: EndSession = attrs.field(init=False, factory=lambda: EndSession("open_abandoned"))

    def __attrs_post_init__(self) -> None:
        self._vacant_until = math.inf if self.tethered else self.active_at + ABANDONED_AFTER_S

    def attended(self) -> None:
        """A guest is attached."""
        self._vacant_until = math.inf

    def vacated(self, now: float) -> None:
        """The guest is gone."""
        if self.tethered:
            return
        if self.grace_s is None:
            self._vacant_until, self._vacancy_ending = now, EndSession("disconnect")
        else:
            self._vacant_until = now + self.grace_s
            self._vacancy_ending = EndSession("disconnect_grace_expired", expired=True)

    @property
    def until(self) -> float:
        """When to ask for `verdict` at the latest."""
        return min(self.active_at + self.idle_ttl_s, self._vacant_until)

    def verdict(self, now: float, *, busy: bool) -> EndSession | None:
        """How the session has to end now, if it has to. A busy one (an answer is given or owed) is not idle."""
        if now >= self._vacant_until:
            return self._vacancy_ending
        if now < self.active_at + self.idle_ttl_s:
            return None
        if busy:
            self.active_at = now
            return None
        return EndSession("idle_ttl_expired", expired=True)
