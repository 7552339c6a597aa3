"""What can be configured, as frozen values: limits of a session, deployment of a plugin, the engine itself.

Owns defaults and bounds (wire contract, appendix B). Reading TOML is `server/settings.py`.
"""

from collections.abc import Mapping
from typing import Any

import attrs
from attrs import validators

MIB = 1024 * 1024
_positive: Any = validators.gt(0)


@attrs.frozen(kw_only=True)
class SessionLimits:
    """Bounds of one session. Bytes unless the name says otherwise; `_s` seconds, `_ms` milliseconds."""

    input_bytes: int = attrs.field(default=16 * MIB, validator=_positive)
    pending_turns: int = attrs.field(default=4, validator=_positive)
    mailbox_commands: int = attrs.field(default=256, validator=_positive)
    output_bytes: int = attrs.field(default=2 * MIB, validator=_positive)
    output_events: int = attrs.field(default=512, validator=_positive)
    journal_bytes: int = attrs.field(default=8 * MIB, validator=_positive)
    journal_s: float = attrs.field(default=60.0, validator=_positive)
    idle_ttl_s: float = attrs.field(default=300.0, validator=_positive)
    disconnect_grace_s: float = attrs.field(default=30.0, validator=validators.ge(0))
    item_bytes: int = attrs.field(default=16 * MIB, validator=_positive)
    image_items: int = attrs.field(default=8, validator=_positive)
    image_bytes: int = attrs.field(default=4 * MIB, validator=_positive)
    silence_units_native: int = attrs.field(default=64, validator=_positive)
    silence_units_turn: int = attrs.field(default=8, validator=_positive)
    answer_s: float = attrs.field(default=600.0, validator=_positive)
    function_outputs: int = attrs.field(default=8, validator=_positive)
    failed_epochs: int = attrs.field(default=3, validator=_positive)
    failed_epochs_window_s: float = attrs.field(default=60.0, validator=_positive)
    lag_notice_ms: int = attrs.field(default=1000, validator=_positive)
    lease_timeout_s: float = attrs.field(default=30.0, validator=_positive)


@attrs.frozen(kw_only=True)
class Limits:
    """Bounds of the engine. `max_sessions` None means the plugin's own default (decisions, Amendment 13)."""

    max_sessions: int | None = attrs.field(default=None, validator=validators.optional(_positive))
    session: SessionLimits = SessionLimits()


@attrs.frozen(kw_only=True)
class EngineConfig:
    """Everything `open_engine` needs.

    `plugin`: an entry point name of group `duplex_engine.plugins`, a dotted path `package.module:Class`, or empty when a
    plugin object is passed to `open_engine`. `options`: the plugin's own settings, validated by the plugin.
    """

    plugin: str = "cascade"
    options: Mapping[str, object] = attrs.Factory(dict)
    limits: Limits = Limits()
    strict_model_names: bool = False
    model_name: str | None = None
