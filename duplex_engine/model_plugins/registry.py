"""Finding plugins by entry point or dotted path. Owns discovery; imports a plugin only when it is asked for."""

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import cast

from duplex_engine.errors import ConfigRejected
from duplex_engine.model_plugins.contract import ModelPlugin

GROUP = "duplex_engine.plugins"


def known_plugins() -> tuple[str, ...]:
    """Names of all installed plugins."""
    return tuple(sorted(point.name for point in entry_points(group=GROUP)))


def resolve(path: str) -> object:
    """The object at a dotted path `package.module:name`. Raises ImportError or AttributeError."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def load_plugin(name: str, options: Mapping[str, object]) -> ModelPlugin:
    """The plugin called `name` (an entry point, or a path `package.module:Class`), built with its options.

    Raises ConfigRejected when there is no such plugin, or when it refuses an option.
    """
    if ":" in name:
        factory = resolve(name)
    else:
        points = [point for point in entry_points(group=GROUP) if point.name == name]
        if not points:
            known = ", ".join(known_plugins()) or "none"
            raise ConfigRejected("invalid_argument", f"there is no plugin {name!r}; installed: {known}", "plugin")
        factory = points[0].load()
    try:
        return cast("Callable[..., ModelPlugin]", factory)(**options)
    except TypeError as error:
        raise ConfigRejected(
            "invalid_argument", f"plugin {name!r} does not take these options: {error}", "options"
        ) from error
