"""Runs a right function in our own process and records what there is to see of each call.

Only for code that we trust, such as gold solutions: what an agent wrote runs in `observer.py`, in a sandbox.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sanderling.types import JsonValue
from sanderling.verify.values import decode, encode, has_opaque, text_of, type_name

MAX_PRINTED = 20_000  # characters kept of what one call prints; the observer keeps the same number


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What there is to see of one call, in encoded form (see `values`)."""

    value: JsonValue  # what was returned, None where an exception was raised
    raised: str | None  # full name of the exception's exact type
    arguments: JsonValue  # list of the arguments as the call left them
    printed: str

    def as_json(self) -> dict[str, JsonValue]:
        return {"value": self.value, "raised": self.raised, "arguments": self.arguments, "printed": self.printed}

    def key(self) -> str | None:
        """Return a text that is equal for equal observations, None where a value of an unknown type makes it unequal."""
        data = (self.value, self.raised, self.arguments, self.printed)
        text = repr(data)  # canonical by itself unless an order that doesn't count is in it; ten times as fast
        if "opaque" in text and has_opaque(list(data)):
            return None
        return text_of(list(data)) if "{'dict'" in text or "set'" in text else text


class RecordedFunction:
    """A function made from source text whose calls are recorded, printing included.

    Example::

        RecordedFunction("def double(x):\\n    return 2 * x\\n", "double")([encode(3)]).value  # 6

    `print` is recorded through the function's own namespace, so nothing global changes while it runs. State of the
    function (a shared default) lives from call to call, as it does in the observer.
    """

    def __init__(self, source: str, name: str) -> None:
        """Compile the source.

        Raises:
            SyntaxError: it does not compile. KeyError: it defines no `name`. Whatever its top level raises.
        """
        self._printed: list[str] = []
        namespace: dict[str, Any] = {"__name__": "solution", "print": self._print}
        exec(compile(source, "solution.py", "exec", dont_inherit=True), namespace)
        self._function: Callable[..., Any] = namespace[name]

    def _print(self, *values: object, sep: str | None = " ", end: str | None = "\n", **_: object) -> None:
        sep, end = " " if sep is None else sep, "\n" if end is None else end
        self._printed.append(sep.join(str(value) for value in values) + end)

    def __call__(self, arguments: JsonValue) -> Observed:
        """Call with fresh copies of encoded positional arguments and return what was seen."""
        values = decode(arguments)
        self._printed.clear()
        value, raised = None, None
        try:
            value = self._function(*values)
        except Exception as error:
            raised = type_name(type(error))
        return Observed(
            value=encode(value),
            raised=raised,
            arguments=encode(values),
            printed="".join(self._printed)[:MAX_PRINTED],
        )


def call_text(name: str, arguments: JsonValue, longest: int = 120) -> str:
    """Return a call as people write it, such as `clamp(5, 0, 3)`."""
    text = f"{name}({', '.join(repr(value) for value in decode(arguments))})"
    return text if len(text) <= longest else text[: longest - 3] + "..."


def difference(expected: Mapping[str, JsonValue], seen: Mapping[str, JsonValue]) -> str | None:
    """Return the name of the first part in which two observations differ: raised, value, arguments or printed."""
    for part in ("raised", "value", "arguments", "printed"):
        right, other = expected[part], seen.get(part)
        if _size(right) != _size(other) or has_opaque(other) or text_of(right) != text_of(other):
            return part
    return None


def _size(data: JsonValue) -> int:
    """Return the length of the JSON text, which no order changes: to sort what an agent sent could take minutes."""
    return len(json.dumps(data, separators=(",", ":")))
