"""Tools are typed functions: name, parameters and their types are those of an async method, words are its docstring.

    async def read_file(self, path: str, start: int = 1) -> Reply:
        '''Print a file.

        Args:
            path: file in the workspace.
            start: first line.
        '''

The schema is what `transformers.utils.get_json_schema` makes of the same function, which is what chat templates expect.
"""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

from sanderling.errors import ConfigError
from sanderling.harness.chat_template import Schema
from sanderling.harness.protocol import BadCall, Reply

_JSON_TYPES: Mapping[type, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}
_WORDS: Mapping[type, str] = {str: "a string", int: "an integer", float: "a number", bool: "a boolean"}
_ARGUMENT = re.compile(r"^\s+(\w+): *(.*)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallError:
    """Why a call was not dispatched, in words for the policy."""

    kind: BadCall
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One argument of a tool."""

    name: str
    kind: type  # str, int, float or bool
    nullable: bool
    required: bool
    description: str

    def accepts(self, value: Any) -> bool:
        """Return whether a JSON value is of the type, exactly: no text stands for a number, no bool is an integer."""
        if value is None:
            return self.nullable
        return type(value) is self.kind or (self.kind is float and type(value) is int)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """What a policy may call."""

    name: str
    description: str
    parameters: tuple[Parameter, ...]

    def schema(self) -> Schema:
        """Return the JSON schema of the tool."""
        properties: dict[str, Any] = {}
        for one in self.parameters:
            properties[one.name] = {"type": _JSON_TYPES[one.kind]} | ({"nullable": True} if one.nullable else {})
            properties[one.name] |= {"description": one.description}
        needed = [one.name for one in self.parameters if one.required]
        parameters = {"type": "object", "properties": properties} | ({"required": needed} if needed else {})
        function = {"name": self.name, "description": self.description, "parameters": parameters}
        return {"type": "function", "function": function}

    def check(self, arguments: Mapping[str, Any]) -> CallError | None:
        """Return what is wrong with the arguments, or None."""
        known = {one.name: one for one in self.parameters}
        for name, value in arguments.items():
            if name not in known:
                takes = ", ".join(known) or "nothing"
                return CallError(
                    kind=BadCall.UNKNOWN_ARGUMENT,
                    message=f"{self.name} has no argument {name[:40]!r}; it takes {takes}",
                )
            if not known[name].accepts(value):
                message = f"{name} of {self.name} takes {_WORDS[known[name].kind]}, got {_json_type(value)}"
                return CallError(kind=BadCall.WRONG_TYPE, message=message)
        missing = [one.name for one in self.parameters if one.required and one.name not in arguments]
        if missing:
            return CallError(kind=BadCall.MISSING_ARGUMENT, message=f"{self.name} needs {', '.join(missing)}")
        return None


def declare(function: Callable[..., Awaitable[Reply]]) -> Tool:
    """Return the tool that a function or method is.

    Raises:
        ConfigError: a parameter has no type, another one than str, int, float and bool (or one of them `| None`), or no
            words in the docstring's "Args:".
    """
    name = getattr(function, "__name__", repr(function))
    summary, words = _docstring(function)
    hints = get_type_hints(function)
    parameters = []
    for one in inspect.signature(function).parameters.values():
        if one.name == "self":
            continue
        kind, nullable = _kind(hints.get(one.name))
        if kind is None or one.name not in words or not summary:
            raise ConfigError(
                f"tool {name!r}: parameter {one.name!r} has the type {hints.get(one.name)!r} and the words "
                f"{words.get(one.name)!r}; expected str, int, float or bool, and a line under 'Args:' of the docstring"
            )
        required = one.default is inspect.Parameter.empty
        parameters.append(
            Parameter(name=one.name, kind=kind, nullable=nullable, required=required, description=words[one.name])
        )
    return Tool(name=name, description=summary, parameters=tuple(parameters))


def _kind(hint: Any) -> tuple[type | None, bool]:
    parts = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    kinds = [part for part in parts if part is not type(None)]
    kind = kinds[0] if len(kinds) == 1 and kinds[0] in _JSON_TYPES else None
    return kind, len(kinds) < len(parts)


def _docstring(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Return the text before "Args:" and the words for each argument, continued lines joined."""
    text, _, arguments = (inspect.getdoc(function) or "").partition("\nArgs:\n")
    words: dict[str, str] = {}
    name = ""
    for line in arguments.splitlines():
        if not line.strip() or not line.startswith(" "):
            break
        found = _ARGUMENT.match(line)
        if found and not line.startswith(" " * 8):
            name, words[found[1]] = found[1], found[2].strip()
        elif name:
            words[name] += f" {line.strip()}"
    return text.strip(), words


def _json_type(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "an object"
    return "an array" if isinstance(value, list) else _WORDS[type(value)]
