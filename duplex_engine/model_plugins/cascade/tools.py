"""Functions that the language model may call: what a session offers, how the model reads it, and what it may write.

Owns the checks of `tools` and `tool_choice`, their bounds, and the grammar that holds the model to them. Pure. Never
reads what the model wrote: `calls.py` does.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import attrs

from duplex_engine.errors import ConfigRejected

MOST_TOOLS: Final = 16
MOST_CHARACTERS: Final = 3000
"""What the model reads of all tools together: with the history it has to fit the context, and it is read on a CPU."""
MOST_CALLS: Final = 8
NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
TYPES: Final = ("object", "array", "string", "number", "integer", "boolean", "null")
KEYED: Final = ("properties", "$defs", "definitions")
LISTED: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
NESTED: Final = ("items", "additionalProperties")
"""Where in a JSON schema there are more of them: by name, in a list, alone."""
SPEAKABLE: Final = r"/[^<{`*#\n]+/"
"""Words of one paragraph. Nothing in them can be taken for a call, and nothing for code or markdown."""

Json = Mapping[str, Any]


@attrs.frozen
class Tool:
    """A function. `signature`: what the model reads of it. `parameters`: the JSON schema of its arguments."""

    name: str
    signature: str
    parameters: str


@attrs.frozen
class Tools:
    """What may be called. `forced`: a call of one of these has to be made when a user is answered.

    `held_back`: what is there and may not be called (tool_choice "none").
    """

    offered: tuple[Tool, ...] = ()
    forced: tuple[str, ...] = ()
    held_back: tuple[Tool, ...] = ()

    def chosen(self, tools: Sequence[Json] | None, choice: object) -> "Tools":
        """The same for one answer that chooses for itself; None: as in the session. Raises ConfigRejected."""
        offered = self.offered or self.held_back if tools is None else read_tools(tools, None).offered
        return _choose(offered, choice)

    def without(self, names: Collection[str]) -> "Tools":
        """The others; none of them has to be called."""
        return Tools(tuple(tool for tool in self.offered if tool.name not in names))


def read_tools(tools: Sequence[Json], choice: object) -> Tools:
    """What a session's `tools` and `tool_choice` mean. Raises ConfigRejected `invalid_duplex_runtime_config`."""
    if len(tools) > MOST_TOOLS:
        raise _refused(f"{len(tools)} tools are offered; the limit is {MOST_TOOLS}", "tools")
    offered = tuple(_tool(tool, f"tools[{place}]") for place, tool in enumerate(tools))
    names = [tool.name for tool in offered]
    if len(set(names)) < len(names):
        raise _refused(f"two tools have the same name; there are {', '.join(names)}", "tools")
    size = sum(len(tool.signature) for tool in offered)
    if size > MOST_CHARACTERS:
        raise _refused(
            f"all tools together take {size} characters; the limit is {MOST_CHARACTERS}: shorten their descriptions",
            "tools",
        )
    return _choose(offered, choice)


def _tool(tool: Json, place: str) -> Tool:
    kind = tool.get("type", "function")
    if kind != "function":
        raise _refused(f"tools of type {kind!r} cannot be called here, only functions", f"{place}.type")
    inner = tool.get("function")
    function: Json = inner if isinstance(inner, Mapping) else tool
    name, description = function.get("name"), function.get("description") or ""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise _refused(f"a function needs a name of up to 64 letters, digits and _ . -, not {name!r}", f"{place}.name")
    parameters = function.get("parameters") or {"type": "object", "properties": {}}
    if not isinstance(parameters, Mapping) or parameters.get("type", "object") != "object":
        raise _refused(f"the parameters of {name} have to be a JSON schema of an object", f"{place}.parameters")
    _check_schema(parameters, parameters, f"{place}.parameters")
    read = {"name": name, "description": str(description), "parameters": parameters}
    return Tool(name, json.dumps({"type": "function", "function": read}, ensure_ascii=False), json.dumps(parameters))


def _check_schema(schema: object, whole: Json, place: str) -> None:
    """Refuse what the grammar could not say: the runtime passes over a grammar that it cannot read."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping):
        raise _refused(f"a JSON schema has to be an object, not {schema!r}", place)
    kinds = schema.get("type", "object")
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if kind not in TYPES:
            raise _refused(f"there is no JSON type {kind!r}; there are {', '.join(TYPES)}", f"{place}.type")
    if "$ref" in schema and not _leads_somewhere(str(schema["$ref"]), whole):
        raise _refused(f"{schema['$ref']!r} leads nowhere in this schema", f"{place}.$ref")
    for key, inner in schema.items():
        if key in KEYED and isinstance(inner, Mapping):
            for name, value in inner.items():
                _check_schema(value, whole, f"{place}.{key}.{name}")
        elif key in LISTED and isinstance(inner, list):
            for number, value in enumerate(inner):
                _check_schema(value, whole, f"{place}.{key}[{number}]")
        elif key in (*KEYED, *LISTED, *NESTED):
            _check_schema(inner if key in NESTED else None, whole, f"{place}.{key}")


def _leads_somewhere(reference: str, whole: Json) -> bool:
    start, *path = reference.split("/")
    there: object = whole
    for key in path:
        there = there.get(key) if isinstance(there, Mapping) else None
    return start == "#" and there is not None


def _choose(offered: tuple[Tool, ...], choice: object) -> Tools:
    names = tuple(tool.name for tool in offered)
    if choice is None or choice == "auto":
        return Tools(offered)
    if choice == "none":
        return Tools(held_back=offered)
    if choice == "required":
        return Tools(offered, names)
    name = _named(choice)
    if name not in names:
        raise _refused(
            f"tool_choice is auto, none, required or a function of the tools ({', '.join(names) or 'none'}), "
            f"not {name or choice!r}",
            "tool_choice",
        )
    return Tools(offered, (name,))


def _named(choice: object) -> str:
    if not isinstance(choice, Mapping) or choice.get("type") != "function":
        return ""
    inner = choice.get("function")
    return str((inner if isinstance(inner, Mapping) else choice).get("name") or "")


def _refused(message: str, param: str) -> ConfigRejected:
    return ConfigRejected("invalid_duplex_runtime_config", message, param)


# --- the grammar of an answer ---------------------------------------------------------------------------------------


WORDS_ALONE: Final = f"%llguidance {{}}\nstart: {SPEAKABLE}\n"
"""An answer that calls nothing."""


def answer_grammar(tools: Tools) -> str:
    """What may be written: words, then calls of what is offered, with arguments that fit; or, if forced, one call alone.

    In the notation of llguidance, which the runtime knows.
    """
    callable_ = [tool for tool in tools.offered if not tools.forced or tool.name in tools.forced]
    more = f'("\\n" call){{0,{MOST_CALLS - 1}}}'
    start = "call" if tools.forced else f'TEXT? ("\\n"? call {more})?'
    rules = [
        "%llguidance {}",
        f"start: {start}",
        f"TEXT: {SPEAKABLE}",
        "call: " + " | ".join(f"call_{number}" for number in range(len(callable_))),
    ]
    for number, tool in enumerate(callable_):
        opening = _literal(f'<tool_call>\n{{"name": "{tool.name}", "arguments": ')
        closing = _literal("}\n</tool_call>")
        rules.append(f"call_{number}: {opening} arguments_{number} {closing}")
        rules.append(f"arguments_{number}: %json {_strict_schema(tool)}")
    return "\n".join(rules) + "\n"


def _literal(text: str) -> str:
    return json.dumps(text)


def _strict_schema(tool: Tool) -> str:
    """The schema, with nothing beside what it names, and written as the model has learned to write it."""
    schema = {"additionalProperties": False, **json.loads(tool.parameters)}
    layout = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": ", "lenient": True}
    return json.dumps({**schema, "type": "object", "x-guidance": layout})
