"""What a server is told: a strict TOML file, flags over it, and one frozen value out of both.

Owns names, defaults and checks of every server setting. An unknown key is an error that names the nearest known one.
Never reads the command line (`cli.py`) and never acts on a setting.
"""

import difflib
import ipaddress
import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
from attrs import validators
from cattrs import Converter, transform_error
from cattrs.errors import BaseValidationError, ForbiddenExtraKeysError
from cattrs.gen import make_dict_structure_fn

from duplex_engine.config import EngineConfig, Limits
from duplex_engine.errors import ConfigRejected

LOG_FORMATS: Final = ("text", "json")
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
MASKED: Final = "********"

_positive: Any = validators.gt(0)
_not_negative: Any = validators.ge(0)
_log_format: Any = validators.in_(LOG_FORMATS)
_log_level: Any = validators.in_(LOG_LEVELS)


@attrs.frozen(kw_only=True)
class ServeConfig:
    """Everything `python -m duplex_engine.server` can be told; `_s` are seconds.

    `port` 0 asks the system for a free one. `api_key` None leaves the server open, which is refused on an address that
    others can reach unless `allow_anonymous`. `options` are the plugin's own settings, validated by the plugin.
    `head_timeout_s`: how long a request may take to arrive. `write_deadline_s`: how long a client may take to read.
    """

    plugin: str = "cascade"
    options: Mapping[str, object] = attrs.Factory(dict)
    model_name: str | None = None
    strict_model_names: bool = False
    host: str = "127.0.0.1"
    port: int = attrs.field(default=8099, validator=[_not_negative, validators.le(65535)])
    api_key: str | None = attrs.field(default=None, repr=False)
    allow_anonymous: bool = False
    tls_cert: str | None = None
    tls_key: str | None = None
    log_format: str = attrs.field(default="text", validator=_log_format)
    log_level: str = attrs.field(default="info", validator=_log_level)
    drain_grace_s: float = attrs.field(default=10.0, validator=_not_negative)
    write_deadline_s: float = attrs.field(default=5.0, validator=_positive)
    head_timeout_s: float = attrs.field(default=10.0, validator=_positive)
    max_connections: int = attrs.field(default=4096, validator=_positive)
    limits: Limits = attrs.Factory(Limits)

    @property
    def engine(self) -> EngineConfig:
        """The part of it that the engine needs."""
        return EngineConfig(
            plugin=self.plugin,
            options=self.options,
            limits=self.limits,
            strict_model_names=self.strict_model_names,
            model_name=self.model_name,
        )

    @property
    def tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.tls_cert is not None


def check_consistency(config: ServeConfig) -> None:
    """What no single setting can say about itself. Raises ConfigRejected."""
    if (config.tls_cert is None) != (config.tls_key is None):
        raise _rejected("tls_cert and tls_key go together; give both, or neither", "tls_cert")
    if config.api_key == "":
        raise _rejected("an empty api_key protects nothing; leave it out, or give one", "api_key")
    if config.api_key is None and not config.allow_anonymous and not is_loopback(config.host):
        raise _rejected(
            f"{config.host} can be reached by others and no key is set; give --api-key (or DUPLEX_ENGINE_API_KEY), "
            "or say --allow-anonymous if everybody may talk to this server",
            "host",
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to `host`, a name or an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_file(path: Path) -> Mapping[str, object]:
    """The tables of a TOML file, unchecked. Raises ConfigRejected when it cannot be read or is no TOML."""
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise _rejected(f"cannot read {path}: {error.strerror or error}", "config") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _rejected(f"{path} is no TOML: {error}", "config") from error


def load_config(settings: Mapping[str, object]) -> ServeConfig:
    """The configuration that these settings spell. Raises ConfigRejected, naming every setting that is wrong."""
    try:
        config = _converter.structure(settings, ServeConfig)
    except BaseValidationError as error:
        raise _rejected("\n".join(map(_path_first, transform_error(error, "", _explain))), None) from None
    check_consistency(config)
    return config


def merged(below: Mapping[str, object], above: Mapping[str, object]) -> dict[str, object]:
    """`below` with everything that `above` says put over it, table by table."""
    result = dict(below)
    for key, value in above.items():
        under = result.get(key)
        both_tables = isinstance(under, Mapping) and isinstance(value, Mapping)
        result[key] = merged(under, value) if both_tables else value  # type: ignore[arg-type]
    return result


def to_toml(config: ServeConfig) -> str:
    """The configuration as a file that `--config` takes; the key is masked, what is not set is left out."""
    values = attrs.asdict(config)
    if values["api_key"] is not None:
        values["api_key"] = MASKED
    return "\n".join(_toml_lines(values, ""))


def _toml_lines(table: Mapping[str, object], name: str) -> Iterator[str]:
    yield from (f"[{name}]" for _ in range(bool(name)))
    for key, value in table.items():
        if value is not None and not isinstance(value, Mapping):
            # Strings, numbers, booleans and lists of them are spelled alike in JSON and TOML.
            yield f"{_toml_key(key)} = {json.dumps(value, ensure_ascii=False)}"
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield ""
            yield from _toml_lines(value, f"{name}.{_toml_key(key)}" if name else _toml_key(key))


def _toml_key(key: str) -> str:
    plain = key.isascii() and key.replace("_", "").replace("-", "").isalnum()
    return key if plain else json.dumps(key, ensure_ascii=False)


def _rejected(message: str, param: str | None) -> ConfigRejected:
    return ConfigRejected("invalid_argument", message, param)


# --- strict types and readable complaints ------------------------------------------------------------------------


def _expect(expected: str, *types: type) -> Callable[[object, object], Any]:
    def structure(value: object, _: object) -> object:
        if type(value) not in types:
            raise TypeError(f"must be {expected}, not {value!r}")
        return value

    return structure


def _strict_converter() -> Converter:
    converter = Converter(forbid_extra_keys=True)
    converter.register_structure_hook(str, _expect("a string", str))
    converter.register_structure_hook(bool, _expect("true or false", bool))
    converter.register_structure_hook(int, _expect("a whole number", int))
    converter.register_structure_hook(float, _expect("a number", int, float))
    converter.register_structure_hook_func(lambda kind: kind == Mapping[str, object], _expect("a table", dict))
    converter.register_structure_hook_factory(attrs.has, partial(_table, converter=converter))
    return converter


def _table(cls: Any, converter: Converter) -> Callable[[object, object], Any]:
    check = _expect("a table", dict)
    structure: Any = make_dict_structure_fn(cls, converter, _cattrs_forbid_extra_keys=True)

    def structure_table(value: object, kind: object) -> object:
        return structure(check(value, kind), kind)

    return structure_table


_converter: Final = _strict_converter()


def _explain(error: BaseException, kind: type | None) -> str:
    if isinstance(error, ForbiddenExtraKeysError):
        known = [field.name for field in attrs.fields(error.cl)]
        return "; ".join(_unknown_key(key, known) for key in sorted(error.extra_fields))
    return str(error.args[0])


def _path_first(complaint: str) -> str:
    message, _, path = complaint.rpartition(" @ ")
    return f"{path.removeprefix('.')}: {message}" if path else message


def _unknown_key(key: str, known: list[str]) -> str:
    nearest = difflib.get_close_matches(key, known, n=1, cutoff=0.0)[0]
    return f"there is no setting {key!r}; did you mean {nearest!r}?"
