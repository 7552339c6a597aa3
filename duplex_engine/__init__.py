"""duplex-engine: an actor engine and server for full-duplex speech models.

Owns the public names, resolved lazily so that importing the package loads nothing heavy.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duplex_engine.config import EngineConfig, Limits, SessionLimits
    from duplex_engine.engine import Engine, open_engine

__version__ = "0.1.0"

_HOME = {
    "Engine": "duplex_engine.engine",
    "EngineConfig": "duplex_engine.config",
    "Limits": "duplex_engine.config",
    "SessionLimits": "duplex_engine.config",
    "open_engine": "duplex_engine.engine",
}

__all__ = ["Engine", "EngineConfig", "Limits", "SessionLimits", "__version__", "open_engine"]


def __getattr__(name: str) -> object:
    try:
        home = _HOME[name]
    except KeyError:
        raise AttributeError(f"module 'duplex_engine' has no attribute {name!r}") from None
    return getattr(import_module(home), name)
