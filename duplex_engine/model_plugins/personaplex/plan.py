"""What PersonaPlex made of a session's configuration: voice, persona, how tokens are drawn, what a cancel does.

Owns the names and bounds of its settings. Never runs anything; imports no torch.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from duplex_engine.errors import ConfigRejected
from duplex_engine.model_plugins.contract import SessionPlan
from duplex_engine.model_plugins.personaplex.questions import Opening
from duplex_engine.model_plugins.personaplex.sizes import FRAME_SAMPLES, RATE_HZ
from duplex_engine.model_plugins.personaplex.text import Vocabulary
from duplex_engine.protocol.capabilities import Interrupt
from duplex_engine.protocol.session_config import SessionConfig

VOICE_NAME: Final = re.compile(r"[A-Z]{4}[0-9]+")
PRIVATE_KEYS: Final = (
    "personaplex_prefill_slots",
    "personaplex_model_path",
    "native_duplex",
    "minicpmo45_native_duplex",
)
TEMPERATURE_LIMIT: Final = 2.0
TOP_K_LIMIT: Final = 250
SEED_LIMIT: Final = 2**63 - 1
CANCEL_POLICIES: Final[Mapping[object, Interrupt | None]] = {
    None: None,
    "restart": None,
    "keep_context": Interrupt.RESPONSE,
}
REFUSED = "invalid_duplex_runtime_config"


@attrs.frozen(kw_only=True)
class PersonaPlexPlan(SessionPlan):
    """How this session is spoken to."""

    opening: Opening
    endless: bool = True
    late_s: float = FRAME_SAMPLES / RATE_HZ


@attrs.frozen(kw_only=True)
class House:
    """What the operator chose for all sessions. `voices`: names that can be had."""

    vocabulary: Vocabulary
    voices: Sequence[str]
    voice: str
    persona: str
    persona_characters: int
    max_backlog_s: float


def plan_session(config: SessionConfig, house: House) -> PersonaPlexPlan:
    """The plan for a configuration. Raises ConfigRejected for what the model cannot do, naming the field."""
    private = [key for key in PRIVATE_KEYS if key in config.extra_body]
    if private:
        raise ConfigRejected(REFUSED, f"{', '.join(private)} belong to the server", f"extra_body.{private[0]}")
    policy = config.extra_body.get("cancel_policy")
    if not isinstance(policy, str | None) or policy not in CANCEL_POLICIES:
        raise ConfigRejected(REFUSED, "cancel_policy is restart or keep_context", "extra_body.cancel_policy")
    persona = house.persona if config.instructions is None else config.instructions
    return PersonaPlexPlan(
        opening=Opening(
            voice=_voice(config.voice, house),
            persona=house.vocabulary.persona(persona, house.persona_characters),
            **_sampling(config),
        ),
        interrupt=CANCEL_POLICIES[policy],
        max_backlog_s=house.max_backlog_s,
    )


def replan_session(plan: PersonaPlexPlan, config: SessionConfig, house: House) -> PersonaPlexPlan:
    """The plan for a changed configuration: voice and persona stay what the context was built with."""
    changed = plan_session(config, house)
    if changed.opening.persona != plan.opening.persona:
        raise ConfigRejected(
            "persona_update_unsupported",
            "the persona is read once, at the beginning; open another session",
            "instructions",
        )
    if changed.opening.voice != plan.opening.voice:
        raise ConfigRejected("voice_update_unsupported", "the voice is chosen once; open another session", "voice")
    if changed.opening != plan.opening or changed.interrupt != plan.interrupt:
        raise ConfigRejected(
            REFUSED, "how tokens are drawn, and what a cancel does, is chosen at the opening", "extra_body"
        )
    return changed


def _voice(wanted: str | None, house: House) -> str:
    name = (wanted or house.voice).removesuffix(".pt")
    if not VOICE_NAME.fullmatch(name) or name not in house.voices:
        raise ConfigRejected(
            "invalid_voice", f"there is no voice {wanted!r}; there are {', '.join(house.voices)}", "voice"
        )
    return name


def _sampling(config: SessionConfig) -> dict[str, Any]:
    """Settings of the draw: the session's `temperature` for both kinds of token, each knob of `extra_body` for its own."""
    chosen: dict[str, Any] = {}
    if config.temperature is not None:
        temperature = _number("temperature", config.temperature, TEMPERATURE_LIMIT)
        chosen = {"text_temperature": temperature, "audio_temperature": temperature}
    for name in ("text_temperature", "audio_temperature"):
        if config.extra_body.get(name) is not None:
            chosen[name] = _number(f"extra_body.{name}", config.extra_body[name], TEMPERATURE_LIMIT)
    for name in ("text_top_k", "audio_top_k"):
        if config.extra_body.get(name) is not None:
            chosen[name] = _integer(f"extra_body.{name}", config.extra_body[name], 1, TOP_K_LIMIT)
    if config.extra_body.get("seed") is not None:
        chosen["seed"] = _integer("extra_body.seed", config.extra_body["seed"], 0, SEED_LIMIT)
    return chosen


def _number(param: str, value: object, limit: float) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not math.isfinite(value)
        or not 0 <= value <= limit
    ):
        raise ConfigRejected(REFUSED, f"{param} is {value!r}; expected a number from 0 (greedy) to {limit:g}", param)
    return float(value)


def _integer(param: str, value: object, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ConfigRejected(REFUSED, f"{param} is {value!r}; expected an integer from {least} to {most}", param)
    return value
