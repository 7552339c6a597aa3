"""Fill these pages with what the code says: `python docs/generate.py` rewrites, `--check` only looks.

A code block below `<!-- examples/NAME -->` is that file. A table between `<!-- generated: NAME -->` and `<!-- end -->`
has columns of facts, which come from the code, and columns of words, which somebody wrote on the page. A row that stays
keeps its words; a new one begins with a question mark.
"""

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, get_args

import attrs

from duplex_engine.config import Limits, SessionLimits
from duplex_engine.conversation import overlap, turns
from duplex_engine.conversation.scene import DUPLEX_TIER
from duplex_engine.engine import EngineSnapshot
from duplex_engine.model_plugins.cascade.plugin import CascadePlugin
from duplex_engine.protocol import handshake
from duplex_engine.protocol.capabilities import Capabilities, TurnPolicy
from duplex_engine.protocol.commands import ClientCommand
from duplex_engine.protocol.errors import ANY, ERRORS, GA_CODES
from duplex_engine.protocol.events import UNSET, OutputAudioDelta, ServerEvent
from duplex_engine.server.metrics import Metrics
from duplex_engine.server.settings import ServeConfig

DOCS: Final = Path(__file__).resolve().parent
UNWRITTEN: Final = "?"
BLOCK: Final = re.compile(r"(<!-- generated: ([a-z-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
EXAMPLE: Final = re.compile(r"(<!-- (examples/\w+\.\w+) -->\n```\w+\n)(.*?)(```)", re.DOTALL)

Row = Sequence[str]


@attrs.frozen
class Table:
    """A table of a page. The first of the `facts` is a row's key; `words` are headings of columns people write."""

    facts: tuple[str, ...]
    rows: Callable[[], Iterable[Row]]
    words: tuple[str, ...] = ()

    def render(self, before: str) -> str:
        """The table now; `before` is how it stood on the page."""
        written = {row[0]: row[len(self.facts) :] for row in cells(before)}
        blank = (UNWRITTEN,) * len(self.words)
        lines = [_line((*self.facts, *self.words)), "|" + "---|" * (len(self.facts) + len(self.words))]
        for row in self.rows():
            kept = written.get(row[0], blank)
            lines.append(_line((*row, *(kept if len(kept) == len(self.words) else blank))))
        return "".join(f"{line}\n" for line in lines)


def cells(table: str) -> list[tuple[str, ...]]:
    """The rows of a table in Markdown, without its heading."""
    rows = [line for line in table.splitlines() if line.startswith("|")][2:]
    return [tuple(cell.strip() for cell in re.split(r"(?<!\\)\|", row.strip()[1:-1])) for row in rows]


def refreshed(page: str) -> str:
    """The text of a page with all its tables and examples up to date. Raises KeyError for a table that nobody knows."""
    page = BLOCK.sub(lambda found: found[1] + TABLES[found[2]].render(found[3]) + found[4], page)
    return EXAMPLE.sub(lambda found: found[1] + (DOCS.parent / found[2]).read_text() + found[4], page)


def pages() -> list[Path]:
    """All pages, in a stable order."""
    return sorted(DOCS.rglob("*.md"))


def _line(row: Row) -> str:
    return f"| {' | '.join(row)} |"


def _code(value: object) -> str:
    return f"`{value}`"


# --- what is said ------------------------------------------------------------------------------------------------


def _commands() -> Iterable[Row]:
    return ((_code(command.TYPE), _code(command.__name__)) for command in get_args(ClientCommand))


def _events() -> Iterable[Row]:
    for event in get_args(ServerEvent):
        # The indexes beside an answer's ids are always there and nearly always 0: the page says so once.
        named = (field for field in attrs.fields(event) if field.default != 0)
        fields = ", ".join(_field(event, field) for field in named)
        yield _code(event.TYPE), fields or "none", "on request" if event in DUPLEX_TIER else "yes"


def _field(event: type, field: "attrs.Attribute[Any]") -> str:
    name = "delta" if event is OutputAudioDelta and field.name == "audio" else field.name
    return f"[`{name}`]" if field.default is UNSET else f"`{name}`"


def _errors() -> Iterable[Row]:
    for code, rule in ERRORS.items():
        again = {None: "not said", True: "true", False: "false"}[rule.retryable]
        yield _code(code), _code(rule.type.value), rule.consequence.value, again


def _ga_codes() -> Iterable[Row]:
    for (code, command_type), name in GA_CODES.items():
        yield _code(name), _code(code), "any" if command_type == ANY else _code(command_type)


def _capabilities() -> Iterable[Row]:
    served = CascadePlugin().capabilities(None).to_wire()
    native = Capabilities(turn_policy=TurnPolicy.MODEL).to_wire()
    return ((_code(key), _json(served[key]), _json(native[key])) for key in served)


def _json(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(_code(entry) for entry in value) or "none"
    return _code({True: "true", False: "false", None: "null"}.get(value, value))  # type: ignore[call-overload]


# --- what is decided ---------------------------------------------------------------------------------------------


def _connection_states() -> Iterable[Row]:
    for state, ways in handshake.TRANSITIONS.items():
        yield state.value, "; ".join(f"{happening.value} → {after.value}" for happening, after in ways.items())


def _turn_states() -> Iterable[Row]:
    for state in turns.TurnState:
        ways = (
            f"{happening.value} → {_code(after.value)}"
            for (before, happening), after in turns.TRANSITIONS.items()
            if before is state
        )
        yield _code(state.value), "; ".join(ways)


def _overlap() -> Iterable[Row]:
    return ((row.number, _code(row.action.value), _code(row.reason)) for row in overlap.TABLE)


# --- what can be set and seen ------------------------------------------------------------------------------------


def _settings() -> Iterable[Row]:
    yield from _fields(ServeConfig, "", without="limits")
    yield from _fields(Limits, "limits.", without="session")
    yield from _fields(SessionLimits, "limits.session.")


def _fields(cls: Any, prefix: str, without: str = "") -> Iterable[Row]:
    defaults = cls()
    for field in attrs.fields(cls):
        if field.name != without:
            yield _code(prefix + field.name), _default(getattr(defaults, field.name))


def _default(value: object) -> str:
    if value is None or value == {}:
        return "none"
    if isinstance(value, bool):
        return _code(str(value).lower())
    return _code(f'"{value}"' if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else value)


def _metrics() -> Iterable[Row]:
    now = EngineSnapshot(ready=True, draining=False, seats_taken=0, max_sessions=0, workers={})
    text = Metrics().exposition(SimpleNamespace(snapshot=lambda: now)).decode()  # type: ignore[arg-type]
    says = dict(re.findall(r"^# HELP (\S+) (.*)$", text, re.MULTILINE))
    kinds: Mapping[str, str] = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    return ((_code(name), kind, says[name]) for name, kind in kinds.items() if not name.endswith("_created"))


TABLES: Final[Mapping[str, Table]] = {
    "commands": Table(("type", "class"), _commands, ("other spellings", "answer", "section")),
    "events": Table(("type", "fields", "sent in `ga`"), _events, ("when",)),
    "errors": Table(("code", "type", "connection", "`retryable`"), _errors, ("meaning", "what to do")),
    "ga-codes": Table(("in `ga`", "elsewhere", "in answer to"), _ga_codes, ("when",)),
    "capabilities": Table(("key", "`cascade`", "native model, defaults"), _capabilities, ("meaning",)),
    "connection-states": Table(("a connection that is", "what happens → what it becomes"), _connection_states),
    "turn-states": Table(("state", "what happens → next state"), _turn_states),
    "overlap": Table(("row", "action", "reason"), _overlap, ("when", "the sound is")),
    "settings": Table(("setting", "default"), _settings, ("flag", "meaning")),
    "metrics": Table(("name", "kind", "what"), _metrics, ("labels",)),
}


def main(arguments: Sequence[str]) -> int:
    """Rewrite what is out of date, or with `--check` name it; the exit code."""
    stale = [page for page in pages() if refreshed(page.read_text()) != page.read_text()]
    for page in stale:
        print(page.relative_to(DOCS))
        if "--check" not in arguments:
            page.write_text(refreshed(page.read_text()))
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
