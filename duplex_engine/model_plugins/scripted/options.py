"""What can be chosen about the scripted plugin: its options, and what one session may bring.

Owns validation. Never plays anything.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from duplex_engine.errors import ConfigRejected
from duplex_engine.model_plugins.contract import HostKind, SessionPlan
from duplex_engine.model_plugins.scripted.script import Crash, Hang, Script, ScriptError, Statement, parse, statements
from duplex_engine.model_plugins.scripted.speech import MARKS
from duplex_engine.protocol.capabilities import Interrupt
from duplex_engine.protocol.session_config import SessionConfig

SCRIPTS = {
    "native": 'forever { listen 25; speak "This is a scripted voice. It only pretends to listen." for 3 }',
    "turn": 'forever { speak "This is a scripted voice. It only pretends to listen." for 3 }',
}
"""What is played when nothing else was asked for, by mode."""

STEPPERS = {
    HostKind.INLINE: "duplex_engine.model_plugins.scripted.stepper:ScriptedStepper",
    HostKind.THREAD: "duplex_engine.model_plugins.scripted.stepper:RealTimeStepper",
    HostKind.PROCESS: "duplex_engine.model_plugins.scripted.stepper:MortalStepper",
}

Validator = Callable[[Any, "attrs.Attribute[Any]", Any], None]


def _refused(attribute: "attrs.Attribute[Any]", value: object, wanted: str) -> ConfigRejected:
    return ConfigRejected("invalid_argument", f"{attribute.name}={value!r}: it has to be {wanted}", attribute.name)


def _one_of(*allowed: str) -> Validator:
    def check(_: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
        if value not in allowed:
            raise _refused(attribute, value, f"one of {', '.join(allowed)}")

    return check


def _number(*, above: float = -math.inf, least: float = -math.inf, optional: bool = False) -> Validator:
    def check(_: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
        if value is None and optional:
            return
        if isinstance(value, bool) or not isinstance(value, int | float) or not (value > above and value >= least):
            wanted = f"a number above {above:g}" if above > -math.inf else f"a number of at least {least:g}"
            raise _refused(attribute, value, wanted)

    return check


def _names(_: object, attribute: "attrs.Attribute[Any]", value: tuple[object, ...]) -> None:
    if not value or len(set(value)) < len(value) or not all(isinstance(name, str) and name for name in value):
        raise _refused(attribute, value, "a list of different names, at least one")


@attrs.frozen(kw_only=True)
class ScriptedOptions:
    """`mode`: "native" (the model decides) or "turn". `script`: see `script.py`; None: a short demonstration.

    `unit_ms`: length of an input unit and of a piece of output. `step_ms`: how long a worker's step takes, until a
    script says `slow`. `host`: "inline", "thread" or "process". `workers`: their names; the first one renders every
    voice whose session names no other. `lead_s`: how far output may run ahead of being due; None: unpaced. `interrupt`:
    what an interruption ends, "response" or "epoch". `obedient`: yield when the engine's bound on silent input is
    reached; else the engine has to cut. `chat`: offer chat completions, in turn mode.
    """

    mode: str = attrs.field(default="native", validator=_one_of("native", "turn"))
    script: str | None = None
    unit_ms: int = attrs.field(default=80, validator=_number(above=0))
    input_rate_hz: int = attrs.field(default=16_000, validator=_number(above=0))
    output_rate_hz: int = attrs.field(default=24_000, validator=_number(above=0))
    step_ms: float = attrs.field(default=10.0, validator=_number(least=0))
    step_timeout_s: float = attrs.field(default=5.0, validator=_number(above=0))
    host: str = attrs.field(default="inline", validator=_one_of(*(kind.value for kind in HostKind)))
    workers: tuple[str, ...] = attrs.field(default=("voice",), converter=tuple, validator=_names)
    max_sessions: int = attrs.field(default=1000, validator=_number(above=0))
    lead_s: float | None = attrs.field(default=None, validator=_number(least=0, optional=True))
    interrupt: str = attrs.field(default="response", validator=_one_of(*(kind.value for kind in Interrupt)))
    barge_in: bool = True
    client_commit: bool = True
    resume: bool = False
    obedient: bool = True
    context_units: int | None = attrs.field(default=None, validator=_number(above=0, optional=True))
    chat: bool = True

    @property
    def unit_s(self) -> float:
        """Seconds of one unit."""
        return self.unit_ms / 1000

    def read_script(self, source: str, param: str) -> Script:
        """The script that `source` means, if it can be played here. Raises ConfigRejected."""
        try:
            script = parse(source)
        except ScriptError as error:
            raise ConfigRejected("invalid_duplex_runtime_config", f"the script is wrong: {error}", param) from error
        for statement in statements(script):
            self._check(statement, param)
        return script

    def _check(self, statement: Statement, param: str) -> None:
        if isinstance(statement, Hang) and self.host == HostKind.THREAD.value:
            raise ConfigRejected(
                "invalid_duplex_runtime_config", "'hang' cannot be played on a thread: nothing could end it", param
            )
        if isinstance(statement, Crash) and statement.worker not in (None, *self.workers):
            raise ConfigRejected(
                "invalid_duplex_runtime_config",
                f"there is no worker {statement.worker!r} that could crash; there are {', '.join(self.workers)}",
                param,
            )


@attrs.frozen(kw_only=True)
class ScriptedPlan(SessionPlan):
    """What one session plays. `mark` None: a number that no other session of this engine got."""

    script: Script
    worker: str
    mark: int | None = None
    instructions: str = ""
    speaks: bool = True


def plan_session(options: ScriptedOptions, script: Script, config: SessionConfig) -> ScriptedPlan:
    """The plan of a session; its `extra_body` may choose `script`, `mark` and `worker`. Raises ConfigRejected."""
    own = config.extra_body.get("script")
    return ScriptedPlan(
        lead_s=options.lead_s,
        script=script if own is None else options.read_script(_text(own), "extra_body.script"),
        worker=_worker(options, config.extra_body),
        mark=_mark(config.extra_body),
        instructions=config.instructions or "",
        speaks=config.speaks,
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ConfigRejected("invalid_duplex_runtime_config", "a script has to be a string", "extra_body.script")
    return value


def _worker(options: ScriptedOptions, extra_body: Mapping[str, object]) -> str:
    name = extra_body.get("worker", options.workers[0])
    if name not in options.workers:
        known = ", ".join(options.workers)
        raise ConfigRejected(
            "invalid_duplex_runtime_config", f"there is no worker {name!r}; there are {known}", "extra_body.worker"
        )
    return str(name)


def _mark(extra_body: Mapping[str, object]) -> int | None:
    mark = extra_body.get("mark")
    if mark is None:
        return None
    if isinstance(mark, bool) or not isinstance(mark, int) or not 0 <= mark < MARKS:
        raise ConfigRejected(
            "invalid_duplex_runtime_config",
            f"mark {mark!r}: it has to be a whole number from 0 to {MARKS - 1}",
            "extra_body.mark",
        )
    return mark
