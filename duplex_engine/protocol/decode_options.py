"""`response.create`: what one answer may choose for itself (wire contract 3.6).

Owns the spellings of these options. A value of the wrong type counts as not given, as in the session object; only an
audio format that cannot be sent is an error. Which options a profile refuses is decided by whoever obeys the command.
"""

from collections.abc import Mapping
from typing import Final

from duplex_engine.errors import ProtocolViolation
from duplex_engine.protocol.commands import CreateResponse, ResponseOptions
from duplex_engine.protocol.events import UNSET
from duplex_engine.protocol.fields import MODALITIES, at, declared_format, is_name, is_number, wrong
from duplex_engine.protocol.formats import OUTPUT_ENCODINGS, Encoding
from duplex_engine.protocol.sizes import METADATA_BYTES
from duplex_engine.protocol.wire_json import dumps

REFUSED_OPTIONS: Final = (
    "instructions",
    "voice",
    "audio.output.voice",
    "temperature",
    "max_response_output_tokens",
    "max_output_tokens",
    "max_tokens",
    "tools",
    "tool_choice",
)
"""Options that the `strict` profile refuses when they are not null."""

TOKEN_LIMITS: Final = ("max_response_output_tokens", "max_output_tokens", "max_tokens")
FORMATS: Final = ("output_audio_format", "response_format", "audio.output.format")

Options = Mapping[str, object]


def read_create_response(event: Mapping[str, object], event_id: str | None) -> CreateResponse:
    """The command that `event` says. Raises ProtocolViolation `bad_event` or `unsupported_audio_format`."""
    chosen = event.get("response")
    if chosen is None:
        return CreateResponse(event_id=event_id)
    if not isinstance(chosen, Mapping):
        raise wrong("response", "an object", chosen)
    return CreateResponse(
        options=_options(chosen),
        unsupported=tuple(path for path in REFUSED_OPTIONS if at(chosen, path) not in (UNSET, None)),
        event_id=event_id,
    )


def _options(chosen: Options) -> ResponseOptions:
    metadata = chosen.get("metadata")
    if isinstance(metadata, Mapping) and (size := len(dumps(metadata))) > METADATA_BYTES:
        raise ProtocolViolation(
            "bad_event", f"response.metadata takes {size} bytes; the limit is {METADATA_BYTES}", "response.metadata"
        )
    tool_choice = chosen.get("tool_choice")
    return ResponseOptions(
        modalities=_strings(chosen.get("modalities")) or _strings(chosen.get("output_modalities")),
        output_encoding=_encoding(chosen),
        speed=_number(chosen, "speed", "audio.output.speed"),
        metadata=metadata if isinstance(metadata, Mapping) else {},
        in_history=chosen.get("conversation") != "none",
        instructions=_string(chosen, "instructions"),
        voice=_string(chosen, "voice", "audio.output.voice"),
        temperature=_number(chosen, "temperature"),
        max_response_output_tokens=_token_limit(chosen),
        tools=_objects(chosen.get("tools")),
        tool_choice=tool_choice if isinstance(tool_choice, str | Mapping) else None,
    )


def _encoding(chosen: Options) -> Encoding | None:
    for path in FORMATS:
        value = at(chosen, path)
        if value is not UNSET and value is not None:
            return declared_format(value, allowed=OUTPUT_ENCODINGS, param=f"response.{path}")[0]
    return None


def _token_limit(chosen: Options) -> int | None:
    values = (chosen.get(key) for key in TOKEN_LIMITS)
    return next((value for value in values if type(value) is int and value > 0), None)


def _number(chosen: Options, *paths: str) -> float | None:
    values = (at(chosen, path) for path in paths)
    return next((value for value in values if is_number(value)), None)


def _string(chosen: Options, *paths: str) -> str | None:
    values = (at(chosen, path) for path in paths)
    return next((value for value in values if isinstance(value, str)), None)


def _strings(value: object) -> tuple[str, ...] | None:
    if isinstance(value, list) and 0 < len(value) <= MODALITIES and all(is_name(entry) for entry in value):
        return tuple(value)
    return None


def _objects(value: object) -> tuple[Options, ...] | None:
    if isinstance(value, list) and all(isinstance(entry, Mapping) for entry in value):
        return tuple(value)
    return None
