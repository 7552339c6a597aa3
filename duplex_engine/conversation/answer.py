"""One answer of the assistant: what was said so far, how it ended, and how much of it was heard.

Owns the facts of an answer. Never builds an event: `projection/responses.py` reads them.
"""

from collections.abc import Mapping, Sequence

import attrs

from duplex_engine.audio.encode import OutputEncoder
from duplex_engine.conversation.facts import FunctionCall, ResponseKey, ResponseStatus, TextMark
from duplex_engine.conversation.items import Item
from duplex_engine.conversation.playback import Cursor, Ledger, heard_characters
from duplex_engine.protocol.formats import G711_RATE_HZ, Encoding
from duplex_engine.protocol.sizes import ALIGNMENT_MARKS

WAV_HEADER_BYTES = 44


@attrs.define(eq=False, kw_only=True)
class Answer:
    """An answer from `response.created` to `response.done`, and as long as its item is in the conversation.

    `epoch`: the label of all its events but its terminals. `written`: it is text, in a profile that says so with text
    events. `cut`: why it was interrupted; its model may not know yet. `held_text`: words whose sound is still inside
    the encoder. `whole`: the history takes all of it. `calls`: made in it, and said when it ends. `status` None: still
    being given.
    """

    key: ResponseKey
    id: str
    item: Item
    epoch: int
    turn_id: int
    modalities: tuple[str, ...]
    metadata: Mapping[str, object]
    encoder: OutputEncoder
    written: bool = False
    cursor: Cursor = attrs.Factory(Cursor)
    pieces: list[str] = attrs.Factory(list)
    characters: int = 0
    marks: list[TextMark] = attrs.Factory(list)
    samples_sent: int = 0
    held_text: str = ""
    calls: list[FunctionCall] = attrs.Factory(list)
    part_added: bool = False
    spoke: bool = False
    status: ResponseStatus | None = None
    cut: str | None = None
    whole: bool = False

    @property
    def speaks(self) -> bool:
        """Whether it was asked to have sound."""
        return "audio" in self.modalities

    @property
    def text(self) -> str:
        """The transcript so far."""
        if len(self.pieces) > 1:
            self.pieces[:] = ["".join(self.pieces)]
        return self.pieces[0] if self.pieces else ""

    def add_text(self, delta: str) -> None:
        """The transcript grew."""
        if delta:
            self.pieces.append(delta)
            self.characters += len(delta)

    def add_mark(self, mark: TextMark) -> None:
        """So many words were spoken by now. Of a long answer every second mark is kept, and then every fourth."""
        self.marks.append(mark)
        if len(self.marks) > 2 * ALIGNMENT_MARKS:
            del self.marks[-2::-2]

    def add_encoded(self, data: bytes, now: float) -> None:
        """These encoded bytes are being sent."""
        self.samples_sent += self._samples(data)
        self.cursor.sent_ms = self.samples_sent * 1000 // self.encoder.rate_hz
        if self.cursor.first_sent_at is None:
            self.cursor.first_sent_at = now

    def withdraw(self, sounds: Sequence[bytes]) -> None:
        """These encoded blocks were taken back before they were sent."""
        kept = self.samples_sent - sum(map(self._samples, sounds))
        self.cursor.cap(kept * 1000 // self.encoder.rate_hz)

    def _samples(self, data: bytes) -> int:
        encoding = self.encoder.encoding
        return (len(data) - (WAV_HEADER_BYTES if encoding is Encoding.WAV else 0)) // encoding.sample_bytes

    def words_heard(self, ledger: Ledger) -> str:
        """The words that may enter the history, without trailing white space (8.5)."""
        if not self.cursor.sent_ms:
            seen = not self.speaks or self.whole
            return self.text.rstrip() if seen else ""
        heard_ms = ledger.heard_ms(self.cursor)
        if self.whole and not (self.cursor.acknowledged and ledger.ack_only):
            heard_ms = self.cursor.limit_ms
        complete = self.status is ResponseStatus.COMPLETED
        count = heard_characters(heard_ms, self.characters, self.cursor.sent_ms, self.marks, complete=complete)
        return self.text[:count].rstrip()

    def words_shown(self, ledger: Ledger) -> str:
        """The transcript of its item: what was heard once it was cut short or truncated, else all of it."""
        if self.status is ResponseStatus.CANCELLED or self.cursor.cap_ms is not None:
            return self.words_heard(ledger)
        return self.text


def output_encoder(
    encoding: Encoding, model_rate_hz: int, session_encoding: Encoding, declared_rate_hz: int | None
) -> OutputEncoder:
    """The encoder of one answer: at the declared rate, else 8,000 Hz for G.711 and the model's own for the rest."""
    rate_hz = declared_rate_hz
    if encoding.telephone and (rate_hz is None or encoding is not session_encoding):
        rate_hz = G711_RATE_HZ
    return OutputEncoder(encoding, model_rate_hz, rate_hz or model_rate_hz)
