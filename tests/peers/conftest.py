"""The server that all peers share, and the logs of servers in the report of a test that failed."""

from collections.abc import Generator, Iterator

import pytest
from peer_server import RUNNING, Server, serving


@pytest.fixture(scope="session")
def cascade(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The embedded voice with its light model; it takes a while to load, so there is one for all."""
    with serving(tmp_path_factory.mktemp("cascade"), "--llm", "light") as server:
        yield server


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows what the servers said."""
    report = yield
    if report.failed:
        report.sections.extend(("server log", server.words()) for server in RUNNING)
    return report
