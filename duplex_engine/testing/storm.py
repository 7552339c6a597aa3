"""A caller who lets nobody finish: asks, and cuts off whatever comes, by every means and at every moment.

Owns the random choices: what is asked, what is done meanwhile, when the answer is cut off, and how. Checks nothing: what
has to hold of the record is `invariants.py`.
"""

import base64
import random
from collections.abc import Mapping, Sequence

import attrs
import numpy as np

from duplex_engine.testing.caller import DELTA, Caller, NotHeard

Command = Mapping[str, object]

SCRIPTS = {
    "turn": """forever {
        speak "a long answer that somebody will cut off" for 2
        wait 0.15; speak "after some thought" for 1
        speak "short" for 0.16
        speak "with a call" for 0.4; call look_up {"place": "here"}; wait 0.1
        speak "until it fails" for 0.3; fail model_busy "as the script says"
        listen 0.2; speak "after a pause" for 0.5; yield
    }""",
    "native": """forever {
        listen 1; speak "a long answer that somebody will cut off" for 2
        listen 1; speak "short" for 0.16
        speak "and another at once" for 0.5; yield
        listen 2; speak "with a call" for 0.3; call look_up {"place": "here"}
        speak "until it fails" for 0.3; fail
        speak "after some thought" for 0.4; wait 0.15
    }""",
}
"""Answers of all lengths and ends, by the mode of the scripted plugin."""

DETECTED: Command = {"turn_detection": {"type": "server_vad"}}
SESSIONS: Mapping[str, Sequence[Command]] = {
    "turn": (
        {},
        {"playback_commit_policy": "ack_only"},
        {**DETECTED, "overlap_short_ack_ms": 0},
        {**DETECTED, "overlap_short_ack_ms": 300, "extra_body": {"auto_response": True}},
    ),
    "native": (
        {"extra_body": {"auto_response": True}},
        {**DETECTED, "extra_body": {"auto_response": True}},
    ),
}
"""Session objects under which the same commands mean different things, by mode."""


def _sound(units: int, loudness: int = 6000) -> str:
    """So many units of 80 ms of sound."""
    times = np.arange(units * 1280)
    return base64.b64encode((np.sin(times / 8) * loudness).astype("<i2").tobytes()).decode()


def _append(units: int, loudness: int = 6000, **fields: object) -> Command:
    return {"type": "input_audio_buffer.append", "audio": _sound(units, loudness), **fields}


SPEECH, LONG_SPEECH, SILENCE = _append(3), _append(8), _append(7, 0)
COMMIT: Command = {"type": "input_audio_buffer.commit", "response_create": True}
KEEP: Command = {"type": "input_audio_buffer.commit", "response_create": False}
CREATE: Command = {"type": "response.create"}
WRITING: Command = {
    "type": "conversation.item.create",
    "item": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "and this?"}]},
}
CANCEL: Command = {"type": "response.cancel"}
CLEAR: Command = {"type": "output_audio_buffer.clear"}

QUESTIONS: Sequence[Sequence[Command]] = (
    (SPEECH, COMMIT),
    (SPEECH, COMMIT),
    (SPEECH, KEEP, CREATE),
    (WRITING, CREATE),
    (SPEECH, SILENCE),
    (SPEECH,),
)
ASIDES: Sequence[Sequence[Command]] = (
    (),
    (),
    (),
    ({"type": "input_audio_buffer.clear"},),
    ({"type": "session.update", "session": {"metadata": {"mood": "impatient"}}},),
    ({"type": "session.update", "session": {"temperature": 0.5, "output_audio_format": "pcm16"}},),
    ({"type": "session.update", "session": {"model": "another"}},),
    (WRITING,),
    (LONG_SPEECH, COMMIT),
    (CREATE, CREATE),
)
"""What is said while an answer is due, or given. Some of it is refused."""

INSTANTS = ("response.created", "response.speak", DELTA, "response.output_audio.done", "response.done")
"""Events at whose instant an answer is cut off, instead of after a random time."""
PAUSES_S = (0.0, 0.01, 0.1, 1.0)
PATIENCE_S = 0.5


@attrs.define
class Storm:
    """One caller's storm. `cuts`: how many attempts to cut an answer off there have been.

    `losses`: how often, from 0 to 1, the line fails before an attempt and the session is resumed; for sessions that can be.
    """

    caller: Caller
    rng: random.Random
    losses: float = 0.0
    cuts: int = 0

    async def rages(self, cuts: int) -> None:
        """Ask and cut off until there were `cuts` attempts. Raises SessionGone when the session ends before."""
        while self.cuts < cuts:
            if self.rng.random() < 0.5:
                await self._catches_its_breath()
            await self._says(self.rng.choice(QUESTIONS))
            await self._says(self.rng.choice(ASIDES))
            await self._awaits_the_moment()
            if self.rng.random() < self.losses:
                await self._loses_the_line()
            attempts = [self._cut() for _ in range(min(self.rng.choice((1, 1, 1, 2, 3)), cuts - self.cuts))]
            self.cuts += len(attempts)
            await self._says(attempts)

    async def leaves(self) -> None:
        """Ask once more, and go before the answer has ended: with a word, with words behind the last, or without."""
        await self._says(self.rng.choice(QUESTIONS))
        await self._awaits_the_moment()
        if self.rng.random() < 0.2:
            self.caller.hangs_up()
            return
        await self._says(({"type": "session.close"}, *self.rng.choice(QUESTIONS), self._cut()))
        await self.caller.hears_the_end()

    async def _says(self, commands: Sequence[Command]) -> None:
        if commands:
            await self.caller.sends_together(*commands)

    async def _loses_the_line(self) -> None:
        """Come back at once, or after a while in which the session speaks on."""
        self.caller.loses_the_line()
        await self.caller.waits(self.rng.uniform(0, self.rng.choice(PAUSES_S)))
        await self.caller.comes_back()
        if self.rng.random() < 0.5:
            await self._awaits_the_moment()

    async def _catches_its_breath(self) -> None:
        """Go on when everything so far was obeyed: a server that is slow is not to be buried, but cut off as well."""
        self.caller.catches_up()
        await self._says(({"type": "session.heartbeat"},))
        await self.caller.hears("session.heartbeat_ack")

    async def _awaits_the_moment(self) -> None:
        if self.rng.random() < 0.4:
            self.caller.catches_up()
            try:
                await self.caller.hears(self.rng.choice(INSTANTS), within_s=PATIENCE_S)
            except NotHeard:
                pass
        else:
            await self.caller.waits(self.rng.uniform(0, self.rng.choice(PAUSES_S)))

    def _cut(self) -> Command:
        """One attempt to cut an answer off: this one, none in particular, a former one, or one that never was."""
        named = {"response_id": self._some_response()}
        return self.rng.choice(
            (
                CANCEL,
                {**CANCEL, **named},
                {"type": "barge_in"},
                {"type": "input.cancel"},
                CLEAR,
                {**CLEAR, **named},
                LONG_SPEECH,
                {**SPEECH, "overlap_action": "barge_in"},
                {**SPEECH, "force_barge_in": True},
            )
        )

    def _some_response(self) -> str:
        known = self.caller.responses()
        if not known or self.rng.random() < 0.1:
            return "resp-that-never-was"
        return known[-1 - min(int(self.rng.expovariate(1)), len(known) - 1)]
