"""What the source has to look like, read as syntax trees: no fences, one broad except, one clock, small pieces."""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import duplex_engine

ROOT = Path(duplex_engine.__file__).parent
SOURCES = {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in sorted(ROOT.rglob("*.py"))}

FENCES = frozenset({"epoch", "generation", "turn_id", "incarnation", "request_id"})
FENCED = ("actors/", "engine.py", "model_plugins/")
DEVICE_SIDE = ("/stepper.py", "_stepper.py")
"""Files of plugins that run on the device's side, where there is no scope and no clock of Trio."""

MODULE_LINES = 450
FUNCTION_LINES = 50
TABLES = {
    ("conversation/machine.py", "__init__"): "the tables of commands and facts",
    ("protocol/capabilities.py", "to_wire"): "the payload of 40 keys",
}
"""Functions that are one literal table, and may be as long as it is."""

WALL_CLOCKS = frozenset({"time", "monotonic", "perf_counter", "time_ns", "monotonic_ns", "perf_counter_ns", "sleep"})
DOCUMENTED = ("engine.py", "errors.py", "testing/", "client/", "actors/handle.py", "model_plugins/behaviours.py")


def device_side(name: str) -> bool:
    return name.startswith("model_plugins/") and name.endswith(DEVICE_SIDE)


def everywhere(check: Callable[[str, ast.AST], Iterator[str]]) -> list[str]:
    """What a check finds in all modules."""
    return [f"{name}:{found}" for name, tree in SOURCES.items() for found in check(name, tree)]


def values_in(node: ast.AST) -> Iterator[str]:
    """Names of the values that an expression is made of, bare: of `self._epoch.plan` that is `plan`."""
    if isinstance(node, ast.Name):
        yield node.id.lstrip("_")
    elif isinstance(node, ast.Attribute):
        yield node.attr.lstrip("_")
    else:
        for child in ast.iter_child_nodes(node):
            yield from values_in(child)


def fences(name: str, tree: ast.AST) -> Iterator[str]:
    if not name.startswith(FENCED) or device_side(name):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and FENCES.intersection(values_in(node)):
            yield f"{node.lineno} compares {ast.unparse(node)}"


def test_nobody_compares_what_names_a_time() -> None:
    """Authority is holding a live object: an epoch, a generation or an id is a label and decides nothing."""
    assert everywhere(fences) == []


def test_the_check_for_fences_can_fail() -> None:
    planted = ast.parse("if self._epoch != reply.epoch:\n    pass")
    assert list(fences("actors/session.py", planted)) == ["1 compares self._epoch != reply.epoch"]
    assert len(list(fences("engine.py", ast.parse("int(a.turn_id) + 1 in seen")))) == 1
    assert list(fences("engine.py", ast.parse("draft.plan is self._epoch.plan"))) == []
    assert list(fences("protocol/journal.py", planted)) == []


def broad_excepts(name: str, tree: ast.AST) -> Iterator[str]:
    """Handlers of (almost) everything that do not raise again as their last act."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ExceptHandler):
            continue
        caught = {"BaseException"} if node.type is None else set(values_in(node.type))
        last = node.body[-1]
        raises_again = isinstance(last, ast.Raise) and last.exc is None
        if caught & {"Exception", "BaseException"} and not raises_again:
            yield str(node.lineno)


def test_one_broad_except() -> None:
    """A crash becomes a value in one place; everywhere else it goes on."""
    assert [place.split(":")[0] for place in everywhere(broad_excepts)] == ["actors/supervisor.py"]


def test_the_check_for_broad_excepts_can_fail() -> None:
    planted = "try:\n    pass\nexcept Exception:\n    {}"
    assert list(broad_excepts("", ast.parse(planted.format("pass")))) == ["3"]
    assert list(broad_excepts("", ast.parse(planted.format("raise")))) == []
    assert list(broad_excepts("", ast.parse(planted.format("pass").replace(" Exception", "")))) == ["3"]


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, node.module or ""


def asyncio_imports(name: str, tree: ast.AST) -> Iterator[str]:
    yield from (str(line) for line, module in imports(tree) if module.split(".")[0] == "asyncio")


def test_no_asyncio() -> None:
    assert everywhere(asyncio_imports) == []


def foreign_clocks(name: str, tree: ast.AST) -> Iterator[str]:
    """Calls and imports of the wall clock, and `sleep(0)`."""
    if device_side(name):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            yield from (f"{node.lineno} imports time.{alias.name}" for alias in node.names if alias.name in WALL_CLOCKS)
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        owner = node.func.value
        if isinstance(owner, ast.Name) and owner.id == "time" and node.func.attr in WALL_CLOCKS:
            yield f"{node.lineno} calls {ast.unparse(node)}"
        if node.func.attr == "sleep" and [ast.unparse(argument) for argument in node.args] in (["0"], ["0.0"]):
            yield f"{node.lineno} calls {ast.unparse(node)}"


def test_one_clock() -> None:
    """Time is Trio's or is given, so that a mock clock moves everything."""
    assert everywhere(foreign_clocks) == []


def test_the_check_for_clocks_can_fail() -> None:
    planted = ast.parse("import time\ntime.monotonic()\nawait trio.sleep(0)\nfrom time import perf_counter")
    assert len(list(foreign_clocks("actors/session.py", planted))) == 3
    assert list(foreign_clocks("model_plugins/scripted/stepper.py", planted)) == []


def test_modules_are_small() -> None:
    lengths = {name: len((ROOT / name).read_text().splitlines()) for name in SOURCES}
    assert {name: length for name, length in lengths.items() if length > MODULE_LINES} == {}


def long_functions(name: str, tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or (name, node.name) in TABLES:
            continue
        lines = 1 + (node.end_lineno or node.lineno) - node.lineno
        if lines > FUNCTION_LINES:
            yield f"{node.lineno} {node.name} has {lines} lines"


def test_functions_are_small() -> None:
    assert everywhere(long_functions) == []


@pytest.mark.parametrize("name", SOURCES)
def test_a_module_says_what_it_is(name: str) -> None:
    tree = SOURCES[name]
    assert not tree.body or ast.get_docstring(tree), f"{name} has no docstring"


def undocumented(name: str, tree: ast.AST, prefix: str = "") -> Iterator[str]:
    """Public functions, classes and methods that do something and have no docstring."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) or node.name.startswith("_"):
            continue
        declared_only = ast.unparse(node.body[0]) == "..."
        if not ast.get_docstring(node) and not declared_only:
            yield f"{node.lineno} {prefix}{node.name}"
        if isinstance(node, ast.ClassDef):
            yield from undocumented(name, node, f"{node.name}.")


def test_public_names_are_documented() -> None:
    found = [
        f"{name}:{place}"
        for name, tree in SOURCES.items()
        if name.startswith(DOCUMENTED)
        for place in undocumented(name, tree)
    ]
    assert found == []
