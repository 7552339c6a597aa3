"""What the cascade made of a session's configuration. Owns the bounds of its options. Never runs anything."""

from contextlib import suppress
from typing import Any

import attrs

from duplex_engine.errors import ConfigRejected
from duplex_engine.model_plugins.cascade.tools import Tools, read_tools
from duplex_engine.model_plugins.contract import SessionPlan
from duplex_engine.protocol.commands import ResponseOptions
from duplex_engine.protocol.session_config import Profile, SessionConfig

VOICES = ("joe",)
LEAD_S = 0.6
"""Sound leaves at most this long before it is due: enough against jitter, and most of an interrupted answer was never sent."""
TEMPERATURE = 0.0
"""Greedy: models this small lose the thread at anything above."""
TEMPERATURE_LIMIT = 2.0
MAX_TOKENS = 90
CALL_TOKENS = 200
"""The same where a function may be called: a call that is cut off is no call."""
MAX_TOKENS_LIMIT = 2048
SPEED_RANGE = (0.5, 2.0)


@attrs.frozen(kw_only=True)
class CascadePlan(SessionPlan):
    """How this session is answered. `instructions` None: the assistant's own. `temperature` 0 is greedy.

    `call_tokens` stand in for `max_tokens` where a function may be called. `chains`: what a function said may be answered
    by calling another; small models do nothing else then.
    """

    lead_s: float | None = LEAD_S
    instructions: str | None = None
    temperature: float = TEMPERATURE
    max_tokens: int = MAX_TOKENS
    call_tokens: int = CALL_TOKENS
    speed: float = 1.0
    speaks: bool = True
    tools: Tools = attrs.Factory(Tools)
    chains: bool = False

    def for_response(self, options: ResponseOptions) -> "CascadePlan":
        """The plan of one answer: what its `response.create` chose, bounded like the session's own."""
        chosen: dict[str, Any] = {}
        if options.instructions is not None:
            chosen["instructions"] = options.instructions
        if options.temperature is not None:
            chosen["temperature"] = min(max(options.temperature, 0.0), TEMPERATURE_LIMIT)
        if options.max_response_output_tokens is not None:
            most = min(options.max_response_output_tokens, MAX_TOKENS_LIMIT)
            chosen["max_tokens"] = chosen["call_tokens"] = most
        if options.modalities is not None:
            chosen["speaks"] = "audio" in options.modalities
        if options.speed is not None:
            chosen["speed"] = min(max(options.speed, SPEED_RANGE[0]), SPEED_RANGE[1])
        if options.tools is not None or options.tool_choice is not None:
            with suppress(ConfigRejected):  # what cannot be had is left out (12.4 row 8)
                chosen["tools"] = self.tools.chosen(options.tools, options.tool_choice)
        return attrs.evolve(self, **chosen) if chosen else self


def plan_session(config: SessionConfig, *, lead_s: float | None = LEAD_S, chains: bool = False) -> CascadePlan:
    """The plan for a configuration. Raises ConfigRejected for a voice, temperature, speed or tools that cannot be had."""
    _check_voice(config)
    temperature = TEMPERATURE if config.temperature is None else config.temperature
    if not 0 <= temperature <= TEMPERATURE_LIMIT:
        raise ConfigRejected(
            "invalid_duplex_runtime_config",
            f"temperature {temperature:g} is not between 0 and {TEMPERATURE_LIMIT:g}",
            "temperature",
        )
    low, high = SPEED_RANGE
    speed = 1.0 if config.speed is None else config.speed
    if not low <= speed <= high:
        raise ConfigRejected(
            "invalid_duplex_runtime_config", f"speed {speed:g} is not between {low} and {high}", "speed"
        )
    if config.ref_audio is not None:
        raise ConfigRejected(
            "invalid_duplex_runtime_config", "the embedded voice cannot be cloned; leave ref_audio out", "ref_audio"
        )
    most = config.max_response_output_tokens
    return CascadePlan(
        lead_s=lead_s,
        instructions=config.instructions,
        temperature=temperature,
        max_tokens=min(most or MAX_TOKENS, MAX_TOKENS_LIMIT),
        call_tokens=min(most or CALL_TOKENS, MAX_TOKENS_LIMIT),
        speed=speed,
        speaks=config.speaks,
        tools=read_tools(config.tools, config.tool_choice),
        chains=chains,
    )


def _check_voice(config: SessionConfig) -> None:
    # Stock clients always name one of their own voices; those mean "a voice" here.
    if config.voice is None or config.voice in VOICES or config.profile is Profile.GA:
        return
    raise ConfigRejected(
        "invalid_voice", f"there is no voice {config.voice!r}; available: {', '.join(VOICES)}", "voice"
    )


def replan_session(plan: CascadePlan, config: SessionConfig) -> CascadePlan:
    """The plan for a changed configuration; everything applies from the next turn."""
    return plan_session(config, lead_s=plan.lead_s, chains=plan.chains)
