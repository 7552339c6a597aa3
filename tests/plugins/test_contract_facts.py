"""What every plugin has to say about itself, and how it has to take a configuration."""

import inspect
import json
import pickle

import attrs
import numpy as np

from duplex_engine.audio.vad import WINDOW_SAMPLES
from duplex_engine.config import SessionLimits
from duplex_engine.model_plugins.contract import ModelPlugin, SessionPlan, WorkerSpec
from duplex_engine.model_plugins.registry import resolve
from duplex_engine.protocol.session_config import SessionConfig


def made(plugin_under_test) -> ModelPlugin:  # type: ignore[no-untyped-def]
    plugin: ModelPlugin = plugin_under_test.make()
    return plugin


def test_it_has_a_name_and_says_what_it_runs(plugin_under_test) -> None:  # type: ignore[no-untyped-def]
    plugin = made(plugin_under_test)
    assert plugin.name
    models = json.loads(json.dumps([dict(model) for model in plugin.describe()]))
    assert models
    for model in models:
        assert {"name", "licence", "version"} <= set(model)


def test_its_capabilities_follow_the_seats_it_is_given(plugin_under_test) -> None:  # type: ignore[no-untyped-def]
    plugin = made(plugin_under_test)
    assert plugin.capabilities(7).max_sessions == 7
    assert plugin.capabilities(None).max_sessions >= 1
    assert len(plugin.capabilities(2).to_wire()) == 40


def test_its_units_are_as_long_as_it_says(plugin_under_test) -> None:  # type: ignore[no-untyped-def]
    plugin = made(plugin_under_test)
    unit = plugin.unit_format()
    assert unit.rate_hz > 0
    assert unit.samples > 0
    assert unit.output_rate_hz > 0
    capabilities = plugin.capabilities(None)
    assert capabilities.chunk_period_ms > 0
    if capabilities.native:
        assert abs(capabilities.chunk_period_ms - 1000 * unit.period_s) < 1


def test_its_workers_can_be_started_anywhere(plugin_under_test) -> None:  # type: ignore[no-untyped-def]
    specs = made(plugin_under_test).workers(3)
    assert len({spec.name for spec in specs}) == len(specs)
    for spec in specs:
        assert spec.slots >= 1
        stepper = resolve(spec.stepper)
        assert all(callable(getattr(stepper, method)) for method in ("load", "step", "close"))
        copied = pickle.loads(pickle.dumps(spec))
        assert isinstance(copied, WorkerSpec)
        assert copied == spec


def test_its_detectors_are_independent(plugin_under_test) -> None:  # type: ignore[no-untyped-def]
    plugin = made(plugin_under_test)
    first, second = plugin.detector(), plugin.detector()
    assert first is not second
    assert 0 <= first.probability(np.zeros(WINDOW_SAMPLES, np.float32)) < 0.5
    first.reset()


def test_it_plans_without_side_effects(plugin_under_test) -> None:  # type: ignore[no-untyped-def]
    plugin = made(plugin_under_test)
    config = SessionConfig(native=plugin.capabilities(None).native)
    plan = plugin.plan(config)
    assert isinstance(plan, SessionPlan)
    assert attrs.has(type(plan))
    assert plugin.plan(config) == plan
    assert plugin.replan(plan, config, {}, started=True) == plan


def test_its_memories_are_independent(plugin_under_test) -> None:  # type: ignore[no-untyped-def]
    plugin = made(plugin_under_test)
    first, second = plugin.remember(SessionLimits()), plugin.remember(SessionLimits())
    assert first is None or first is not second


def test_it_converses(plugin_under_test) -> None:  # type: ignore[no-untyped-def]
    plugin = made(plugin_under_test)
    assert inspect.iscoroutinefunction(plugin.converse)
    assert inspect.iscoroutinefunction(plugin.warm_up)
