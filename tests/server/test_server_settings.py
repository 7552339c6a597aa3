"""Settings: strict, explained, and merged in a stated order."""

import tomllib
from pathlib import Path

import pytest

from duplex_engine.config import SessionLimits
from duplex_engine.errors import ConfigRejected
from duplex_engine.server.settings import (
    ServeConfig,
    check_consistency,
    is_loopback,
    load_config,
    merged,
    read_file,
    to_toml,
)

COMPLAINTS = [
    ({"prot": 1}, "there is no setting 'prot'; did you mean 'port'?"),
    ({"apikey": "x"}, "did you mean 'api_key'?"),
    ({"port": "8099"}, "port: must be a whole number, not '8099'"),
    ({"port": True}, "port: must be a whole number, not True"),
    ({"port": 8099.0}, "port: must be a whole number"),
    ({"port": 65536}, "port"),
    ({"port": -1}, "port"),
    ({"allow_anonymous": 1}, "allow_anonymous: must be true or false, not 1"),
    ({"host": 5}, "host: must be a string, not 5"),
    ({"api_key": 5}, "api_key: must be a string"),
    ({"drain_grace_s": "10"}, "drain_grace_s: must be a number"),
    ({"drain_grace_s": -1}, "drain_grace_s"),
    ({"write_deadline_s": 0}, "write_deadline_s"),
    ({"log_format": "xml"}, "'log_format' must be in ('text', 'json')"),
    ({"options": "x"}, "options: must be a table"),
    ({"limits": 4}, "limits: must be a table"),
    ({"limits": {"max_session": 2}}, "limits: there is no setting 'max_session'; did you mean 'max_sessions'?"),
    ({"limits": {"max_sessions": 0}}, "limits: 'max_sessions'"),
    (
        {"limits": {"session": {"idle_ttl": 5}}},
        "limits.session: there is no setting 'idle_ttl'; did you mean 'idle_ttl_s'?",
    ),
    ({"limits": {"session": {"journal_s": -1}}}, "limits.session: 'journal_s'"),
]


@pytest.mark.parametrize(("settings", "complaint"), COMPLAINTS)
def test_a_wrong_setting_is_named_with_the_way_out(settings: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigRejected) as refused:
        load_config(settings)
    assert complaint in refused.value.message


def test_all_wrong_settings_are_told_at_once() -> None:
    with pytest.raises(ConfigRejected) as refused:
        load_config({"port": "x", "host": 1, "limits": {"max_sessions": "many"}})
    assert [line.split(":")[0] for line in refused.value.message.splitlines()] == [
        "host",
        "port",
        "limits.max_sessions",
    ]


def test_nothing_said_means_the_defaults() -> None:
    assert load_config({}) == ServeConfig()
    assert (ServeConfig().host, ServeConfig().port, ServeConfig().plugin) == ("127.0.0.1", 8099, "cascade")


def test_the_engine_gets_its_part() -> None:
    config = load_config(
        {
            "plugin": "scripted",
            "model_name": "demo",
            "strict_model_names": True,
            "options": {"script": "listen"},
            "limits": {"max_sessions": 3, "session": {"idle_ttl_s": 7}},
        }
    )
    engine = config.engine
    assert (engine.plugin, engine.model_name, engine.strict_model_names) == ("scripted", "demo", True)
    assert engine.options == {"script": "listen"}
    assert engine.limits.max_sessions == 3
    assert engine.limits.session == SessionLimits(idle_ttl_s=7)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_needs_no_key(host: str) -> None:
    assert is_loopback(host)
    check_consistency(ServeConfig(host=host))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org", ""])
def test_an_open_address_needs_a_key_or_the_word(host: str) -> None:
    with pytest.raises(ConfigRejected, match="allow-anonymous"):
        check_consistency(ServeConfig(host=host))
    check_consistency(ServeConfig(host=host, api_key="k"))
    check_consistency(ServeConfig(host=host, allow_anonymous=True))


@pytest.mark.parametrize("half", [{"tls_cert": "c.pem"}, {"tls_key": "k.pem"}])
def test_half_a_certificate_is_refused(half: dict[str, str]) -> None:
    with pytest.raises(ConfigRejected, match="go together"):
        load_config(half)


def test_an_empty_key_is_refused() -> None:
    with pytest.raises(ConfigRejected, match="protects nothing"):
        load_config({"api_key": ""})


def test_the_printed_settings_load_again_and_hide_the_key() -> None:
    config = load_config(
        {"api_key": "s3cret", "options": {"llm": "light", "odd name": 'a "quote"', "n": 2.5, "on": True}}
    )
    text = to_toml(config)
    assert "s3cret" not in text
    again = load_config(tomllib.loads(text))
    assert again.options == config.options
    assert again.limits == config.limits
    assert "s3cret" not in repr(config)


def test_the_layer_above_wins_table_by_table() -> None:
    below = {"port": 1, "limits": {"max_sessions": 2, "session": {"idle_ttl_s": 3}}, "options": {"a": 1, "b": 1}}
    above = {"port": 9, "limits": {"max_sessions": 5}, "options": {"b": 2}}
    assert merged(below, above) == {
        "port": 9,
        "limits": {"max_sessions": 5, "session": {"idle_ttl_s": 3}},
        "options": {"a": 1, "b": 2},
    }
    assert below["port"] == 1


def test_an_unreadable_file_says_why(tmp_path: Path) -> None:
    with pytest.raises(ConfigRejected, match="No such file"):
        read_file(tmp_path / "missing.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("port = = 3")
    with pytest.raises(ConfigRejected, match=r"broken\.toml is no TOML"):
        read_file(broken)
    broken.write_bytes(b"host = '\xff'")
    with pytest.raises(ConfigRejected, match="is no TOML"):
        read_file(broken)
