"""The plugins that the contract suite runs on. A new plugin joins by one line in `CANDIDATES`."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager

import attrs
import pytest
from cascade_quick import QuickCascade

from duplex_engine.model_plugins.contract import ModelPlugin
from duplex_engine.model_plugins.scripted.plugin import ScriptedPlugin
from duplex_engine.testing.caller import Caller
from duplex_engine.testing.rig import Rig, open_rig
from duplex_engine.testing.schedules import run_story


@attrs.frozen
class Candidate:
    """A plugin under test. `make` builds it; `session` is the session object of its callers.

    `virtual`: its workers run inline, so that its stories run on a virtual clock.
    """

    name: str
    make: Callable[[], ModelPlugin]
    session: Mapping[str, object] = attrs.Factory(dict)
    virtual: bool = True

    def open_rig(self) -> AbstractAsyncContextManager[Rig]:
        """An engine on a fresh plugin."""
        return open_rig(self.make())

    def run(self, story: Callable[[Rig], Awaitable[None]]) -> None:
        """Run a story on a fresh engine."""

        async def run() -> None:
            async with self.open_rig() as rig:
                await story(rig)

        run_story(run)

    def caller(self, rig: Rig, name: str | None = None) -> AbstractAsyncContextManager[Caller]:
        """A caller with a session that fits the plugin."""
        return rig.caller(name, self.session)


def native() -> ModelPlugin:
    return ScriptedPlugin(script='forever { listen 2; speak "all right then" for 0.24 }', step_timeout_s=1.0)


def turns() -> ModelPlugin:
    script = 'forever { hear "hm"; speak "all right then" for 0.24 }'
    return ScriptedPlugin(mode="turn", lead_s=0.1, script=script, step_timeout_s=1.0)


def fresh_contexts() -> ModelPlugin:
    script = 'forever { listen 2; speak "all right then" for 0.24 }'
    return ScriptedPlugin(interrupt="epoch", script=script, step_timeout_s=1.0)


NATIVE = {"extra_body": {"auto_response": True}}

CANDIDATES = [
    Candidate("scripted native", native, NATIVE),
    Candidate("scripted native, fresh contexts", fresh_contexts, NATIVE),
    Candidate("scripted turns", turns),
    Candidate("cascade", QuickCascade),
    Candidate("cascade, its own detector", QuickCascade, {"extra_body": {"auto_response": True}}),
]


@pytest.fixture(params=CANDIDATES, ids=[candidate.name for candidate in CANDIDATES])
def plugin_under_test(request: pytest.FixtureRequest) -> Candidate:
    """Each plugin in turn."""
    candidate: Candidate = request.param
    return candidate
