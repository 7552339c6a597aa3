"""What the guide to OpenAI's clients shows is what the calls of these clients do."""

import ast
import re
from pathlib import Path

import pytest
from environments import ENVIRONMENTS

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guide" / "openai-clients.md").read_text()
SHOWN = re.findall(r"<!-- (tests/peers/\w+_call\.py): (\w+) -->\n```python\n(.*?)```", GUIDE, re.DOTALL)


def source_of(file: str, function: str) -> str:
    """The source of a function of a file."""
    text = (ROOT / file).read_text()
    (node,) = [node for node in ast.parse(text).body if getattr(node, "name", None) == function]
    return f"{ast.get_source_segment(text, node)}\n"


def test_every_client_is_shown() -> None:
    calls = {f"tests/peers/{name.replace('-', '_')}_call.py" for name in ("openai", *ENVIRONMENTS)}
    assert {file for file, _, _ in SHOWN} == calls


@pytest.mark.parametrize(("file", "function", "code"), SHOWN, ids=[file for file, _, _ in SHOWN])
def test_code_is_that_of_the_calls(file: str, function: str, code: str) -> None:
    assert code == source_of(file, function)


@pytest.mark.parametrize("requirement", sorted({entry for entries in ENVIRONMENTS.values() for entry in entries}))
def test_versions_are_those_that_are_tested(requirement: str) -> None:
    package, _, version = requirement.partition("==")
    (row,) = re.findall(rf"^\|[^|]*`{package}`.*$", GUIDE.partition("## JavaScript")[0], re.MULTILINE)
    assert row.endswith(f"| {version} |")
