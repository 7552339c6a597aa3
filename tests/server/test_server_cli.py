"""The command line: what flags mean, and in which order they win."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from duplex_engine.errors import ConfigRejected
from duplex_engine.server.cli import configure, main, option, parser, plugin_of
from duplex_engine.server.settings import ServeConfig


@pytest.fixture(autouse=True)
def _logs_restored() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def configured(*flags: str, **environment: str) -> ServeConfig:
    return configure(parser().parse_args(flags), environment)


def test_without_arguments_the_embedded_voice_serves_this_machine_only() -> None:
    assert configured() == ServeConfig()


def test_every_flag_reaches_its_setting() -> None:
    config = configured(
        *("--plugin", "scripted", "--host", "::1", "--port", "9000", "--api-key", "k", "--max-sessions", "3"),
        *("--tls-cert", "c", "--tls-key", "d", "--log-format", "json", "--log-level", "debug", "--allow-anonymous"),
        *("--drain-grace", "2.5", "--option", "mode=turn", "--option", "unit_ms=40"),
    )
    assert config == ServeConfig(
        plugin="scripted",
        host="::1",
        port=9000,
        api_key="k",
        tls_cert="c",
        tls_key="d",
        log_format="json",
        log_level="debug",
        allow_anonymous=True,
        drain_grace_s=2.5,
        options={"mode": "turn", "unit_ms": 40},
        limits=config.limits,
    )
    assert config.limits.max_sessions == 3


def test_a_flag_of_zero_is_said() -> None:
    config = configured("--port", "0", "--drain-grace", "0")
    assert (config.port, config.drain_grace_s) == (0, 0.0)


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "engine.toml"
    file.write_text(
        'port = 1\nhost = "::1"\napi_key = "from file"\n[options]\na = 1\nb = 1\n[limits]\nmax_sessions = 2\n'
    )
    config = configured("--config", str(file), "--port", "2", "--option", "b=2", DUPLEX_ENGINE_API_KEY="from env")
    assert (config.port, config.host, config.api_key) == (2, "::1", "from env")
    assert config.options == {"a": 1, "b": 2}
    assert config.limits.max_sessions == 2
    assert configured("--api-key", "from flag", DUPLEX_ENGINE_API_KEY="from env").api_key == "from flag"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("a=1", ("a", 1)),
        ("a=1.5", ("a", 1.5)),
        ("a=true", ("a", True)),
        ("a=word", ("a", "word")),
        ("a=", ("a", "")),
        ('script=speak "x=y" for 1', ("script", 'speak "x=y" for 1')),
        ("day=1979-05-27", ("day", "1979-05-27")),
        ("a=[1]", ("a", "[1]")),
        ("a=1\nb=2", ("a", "1\nb=2")),
        ("a=NaN", ("a", "NaN")),
        ("a=null", ("a", "null")),
        ("a=False", ("a", "False")),
    ],
)
def test_an_option_is_a_number_a_boolean_or_text(text: str, meant: tuple[str, object]) -> None:
    assert option(text) == meant


@pytest.mark.parametrize("text", ["", "a", "=1"])
def test_an_option_needs_a_key(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        configured("--option", text)
    assert stopped.value.code == 2
    assert "is not key=value" in capsys.readouterr().err


def test_llm_is_an_option_of_the_cascade_alone() -> None:
    assert configured("--llm", "light").options == {"llm": "light"}
    assert configured("--llm", "light", "--plugin", "scripted").options == {}


def test_help_tells_everything(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    text = capsys.readouterr().out
    for word in (
        *("--plugin", "--option", "--llm", "--host", "--port", "--config", "--api-key", "DUPLEX_ENGINE_API_KEY"),
        *("--tls-cert", "--tls-key", "--max-sessions", "--log-format", "--log-level", "--allow-anonymous"),
        *("--print-config", "--drain-grace", "8099", "cascade", "SIGTERM", "Exit codes"),
    ):
        assert word in text


def test_the_settings_in_force_are_printed_without_the_key(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--print-config", "--port", "9", "--api-key", "s3cret"]) == 0
    text = capsys.readouterr().out
    assert "port = 9" in text
    assert "s3cret" not in text


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--host", "0.0.0.0"], "--allow-anonymous"),
        (["--config", "/nowhere.toml"], "cannot read /nowhere.toml"),
        (["--plugin", "parrot"], "there is no plugin 'parrot'"),
        (["--plugin", "no_such_module:Plugin"], "cannot be imported"),
        (["--plugin", "duplex_engine:Nothing"], "cannot be imported"),
        (["--plugin", "scripted", "--option", "colour=red"], "does not take these options"),
        (["--tls-cert", "only.pem"], "go together"),
    ],
)
def test_what_cannot_be_started_is_told_in_one_message(
    flags: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(flags) == 2
    captured = capsys.readouterr()
    assert complaint in captured.err
    assert "Traceback" not in captured.err


def test_missing_weights_are_told_in_one_message_with_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """Found at start-up by the plugin, or by its worker when it loads."""
    assert main(["--plugin", "cascade", "--llm", "no-such-model", "--port", "0"]) == 2
    assert "no-such-model" in capsys.readouterr().err
    assert main(["--plugin", "server_rig:Hopeless", "--port", "0", "--log-level", "error"]) == 2
    assert "run: fetch-weights" in capsys.readouterr().err.splitlines()[-1]


def test_missing_packages_come_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str, options: object) -> None:
        raise ImportError("No module named 'onnxruntime'")

    monkeypatch.setattr("duplex_engine.server.cli.load_plugin", load)
    with pytest.raises(ConfigRejected, match=r"pip install 'duplex-engine\[cascade\]'"):
        plugin_of(ServeConfig(plugin="cascade"))
