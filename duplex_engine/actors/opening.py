"""What a session is opened with: the desk fills it in, the session lives by it. Owns the list, and decides nothing."""

from collections.abc import Callable

import attrs

from duplex_engine.actors.epoch import Lender
from duplex_engine.actors.observations import Observe
from duplex_engine.config import SessionLimits
from duplex_engine.model_plugins.contract import ModelPlugin, SessionPlan
from duplex_engine.protocol.capabilities import Capabilities
from duplex_engine.protocol.session_config import SessionConfig


@attrs.frozen(kw_only=True)
class Opening:
    """Everything a session is opened with.

    `release_seat`: called once, when the session is over. `tethered`: its opener ends it; nobody has to be attached.
    """

    id: str
    config: SessionConfig
    plan: SessionPlan
    plugin: ModelPlugin
    capabilities: Capabilities
    lender: Lender
    limits: SessionLimits
    observe: Observe
    release_seat: Callable[[], None]
    tethered: bool = False
