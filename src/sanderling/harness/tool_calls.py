"""Calls as JSON between tags, the form that Hermes and many models after it were trained on.

    <tool_call>
    {"name": "read_file", "arguments": {"path": "solution.py"}}
    </tool_call>

Parsing is exact: no guessing at what was meant, no repair, no default in place of what can't be read. Each malformed form has
its own words, so that a policy can learn from them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sanderling.harness.protocol import BadCall
from sanderling.harness.tools import CallError, Tool

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_THOUGHT = re.compile(r"\s*<think>.*?(</think>|\Z)", re.DOTALL)
_KEYS = ("name", "arguments")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One parsed and checked call."""

    name: str
    arguments: Mapping[str, Any]


class _Repeated(ValueError):
    pass


def without_thought(text: str) -> str:
    """Return an action without the thinking at its beginning; thinking that never ends leaves nothing."""
    found = _THOUGHT.match(text)
    return text[found.end() :] if found else text


def parse_calls(text: str, tools: Mapping[str, Tool], *, max_bytes: int) -> list[ToolCall | CallError]:
    """Return the calls of an action in order, each parsed and checked or with what is wrong; at least one.

    Text outside of the tags, and thinking before it, is no call. Where a call can't be read, the next one begins at the next
    opening tag.
    """
    rest = without_thought(text)
    calls: list[ToolCall | CallError] = []
    at = rest.find(OPEN)
    if at < 0:
        stray = f"there is {CLOSE} without {OPEN}" if CLOSE in rest else "no tool was called"
        return [_malformed(f"{stray}; write {OPEN}{{...}}{CLOSE}, or call submit when you are done")]
    while at >= 0:
        begin = at + len(OPEN)
        end = _end_of_call(rest, begin)
        calls.append(_parse(rest[begin:] if end is None else rest[begin:end], tools, max_bytes, closed=end is not None))
        at = rest.find(OPEN, begin if end is None else end)
    return calls


def _end_of_call(text: str, begin: int) -> int | None:
    """Return where the closing tag of a call stands; tags inside of JSON strings don't count. None: there is none."""
    start = begin + len(text[begin:]) - len(text[begin:].lstrip())
    try:
        _, after = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        after = begin
    close, following = text.find(CLOSE, after), text.find(OPEN, after)
    if close < 0 or 0 <= following < close:
        return None
    return close


def _parse(body: str, tools: Mapping[str, Tool], max_bytes: int, *, closed: bool) -> ToolCall | CallError:
    if not closed:
        body = body.partition(OPEN)[0]
    size = len(body.encode("utf-8", "replace"))
    if size > max_bytes:
        return CallError(kind=BadCall.OVERSIZED, message=f"the call has {size} bytes, at most {max_bytes}")
    if not closed:
        return _malformed(f"the call of {size} bytes has no {CLOSE}; it was cut, or the tag was forgotten")
    try:
        call = _DECODER.decode(body.strip())
    except _Repeated as error:
        return _malformed(f"the key {str(error)[:40]!r} stands twice in one object")
    except json.JSONDecodeError as error:
        return _malformed(f"the call of {size} bytes is not JSON: {error.msg} at character {error.pos}")
    except (ValueError, RecursionError) as error:
        return _malformed(f"the call of {size} bytes is not JSON that can be read: {str(error)[:80]}")
    return _checked(call, tools, size)


def _checked(call: Any, tools: Mapping[str, Tool], size: int) -> ToolCall | CallError:
    if not isinstance(call, dict):
        return CallError(
            kind=BadCall.NOT_AN_OBJECT, message=f"the call of {size} bytes is {_shown(call)}, expected an object"
        )
    if set(call) != set(_KEYS):
        keys = ", ".join(sorted(key[:40] for key in call)[:8]) or "nothing"
        return _malformed(f"the call has the keys {keys}; expected name and arguments")
    name, arguments = call["name"], call["arguments"]
    if not isinstance(name, str) or name not in tools:
        return CallError(kind=BadCall.UNKNOWN, message=f"no tool {_shown(name)}; there are {', '.join(tools)}")
    if not isinstance(arguments, dict):
        message = f"the arguments of {name} ({size} bytes) are {_shown(arguments)}, expected an object"
        return CallError(kind=BadCall.NOT_AN_OBJECT, message=message)
    if (wrong := tools[name].check(arguments)) is not None:
        return wrong
    if not _is_unicode(arguments):
        return CallError(kind=BadCall.WRONG_TYPE, message=f"an argument of {name} holds half of a surrogate pair")
    return ToolCall(name=name, arguments=arguments)


def _malformed(message: str) -> CallError:
    return CallError(kind=BadCall.MALFORMED, message=message)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= 60 else f"{text[:60]}..."


def _is_unicode(arguments: Mapping[str, Any]) -> bool:
    try:
        "".join(value for value in arguments.values() if isinstance(value, str)).encode()
    except UnicodeEncodeError:
        return False
    return True


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _Repeated(next(key for key in keys if keys.count(key) > 1))
    return made


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_no_repeats, parse_constant=_no_constant)
