"""Python values as JSON values that keep the exact type, and back.

None, bool, int and str stand for themselves and a list is a JSON array; everything else is an object with one key:
`{"float": "-0.0"}`, `{"bytes": "00ff"}`, `{"tuple": [...]}`, `{"dict": [[key, value], ...]}`, `{"set": [...]}`,
`{"frozenset": [...]}`, `{"int": "0x..."}` for very large integers, and `{"opaque": "module.Type"}` for what isn't one of
these types *exactly*: a subclass is opaque too. Opaque never equals anything, not even itself.

This file is also read by programs inside a sandbox: it must stay one file, on the standard library only.
"""

from __future__ import annotations

import builtins
import json

MAX_DEPTH = 40
MAX_NODES = 20_000
MAX_TEXT = 100_000  # characters or bytes in one value, all its strings together
_JSON_INT_BITS = 4_096  # beyond, decimal text would be slow and, over 4,300 digits, refused by the interpreter


class _Budget:
    """What is left for one value; running out makes the rest opaque."""

    __slots__ = ("nodes", "text")

    def __init__(self):
        self.nodes = MAX_NODES
        self.text = MAX_TEXT


def encode(value):
    """Return the JSON value of a Python value. Never raises and never calls a method of an unknown type."""
    return _encode(value, 0, _Budget())


def _encode(value, depth, budget):
    budget.nodes -= 1
    kind = type(value)
    if value is None or kind is bool:
        return value
    if depth > MAX_DEPTH or budget.nodes < 0:
        budget.nodes = -1  # a value that contains itself would be walked again and again
        return _too_large()
    if kind is int:
        return value if value.bit_length() <= _JSON_INT_BITS else _capped("int", hex(value), budget)
    if kind is float:
        return {"float": repr(value)}
    if kind is str or kind is bytes:
        budget.text -= len(value)
        if budget.text < 0:
            return _too_large()
        return value if kind is str else {"bytes": value.hex()}
    if kind in (list, tuple, set, frozenset):
        items = _encode_all(value, depth, budget)
        if items is None:
            return _too_large()
        if kind is list:
            return items
        return {kind.__name__: items if kind is tuple else sorted(items, key=text_of)}
    if kind is dict:
        keys = _encode_all(value.keys(), depth, budget)
        items = None if keys is None else _encode_all(value.values(), depth, budget)
        return _too_large() if items is None else {"dict": [list(pair) for pair in zip(keys, items)]}  # noqa: B905
    return {"opaque": type_name(kind)}


def _encode_all(values, depth, budget):
    """The encoded items, or None as soon as there is too much."""
    items = []
    for value in values:
        items.append(_encode(value, depth + 1, budget))
        if budget.nodes < 0:
            return None
    return items


def _too_large():
    return {"opaque": "a value that is too deep or too large"}


def _capped(name, text, budget):
    budget.text -= len(text)
    return {name: text} if budget.text >= 0 else _too_large()


def type_name(kind):
    """Return `module.Name` of a type; one that only says that it is built in is called a false one."""
    name = type.__dict__["__name__"].__get__(kind)[:100]
    if getattr(builtins, name, None) is kind:
        return f"builtins.{name}"
    module = type.__getattribute__(kind, "__dict__").get("__module__")
    module = module[:100] if type(module) is str else "unknown"
    return f"false builtins.{name}" if module == "builtins" else f"{module}.{name}"


def decode(data):
    """Return the Python value of an encoded one: a fresh object each time.

    Raises ValueError for an opaque or malformed value.
    """
    kind = type(data)
    if data is None or kind in (bool, int, str):
        return data
    if kind is list:
        return [decode(item) for item in data]
    if kind is dict and len(data) == 1:
        ((name, inner),) = data.items()
        if name == "float":
            return float(inner)
        if name == "int":
            return int(inner, 16)
        if name == "bytes":
            return bytes.fromhex(inner)
        if name == "dict":
            return {decode(key): decode(item) for key, item in inner}
        sequence = {"tuple": tuple, "set": set, "frozenset": frozenset}.get(name)
        if sequence is not None:
            return sequence(decode(item) for item in inner)
    raise ValueError(f"not an encoded value: {str(data)[:80]}")


def text_of(data):
    """Return canonical JSON text of an encoded value: two values are equal if and only if their texts are.

    The order of a dict's keys and of a set's items does not count, as in Python's own comparison; types do.
    """
    return json.dumps(_sorted(data), separators=(",", ":"), sort_keys=True)


def _sorted(data):
    if type(data) is list:
        return [_sorted(item) for item in data]
    if type(data) is dict:
        if len(data) == 1:
            ((name, inner),) = data.items()
            if name in ("dict", "set", "frozenset") and type(inner) is list:
                items = [_sorted(item) for item in inner]
                return {name: sorted(items, key=lambda item: json.dumps(item, sort_keys=True))}
        return {key: _sorted(item) for key, item in data.items()}
    return data


def has_opaque(data):
    """Whether an encoded value holds something of an unknown type."""
    if type(data) is list:
        return any(has_opaque(item) for item in data)
    if type(data) is dict:
        return "opaque" in data or any(has_opaque(item) for item in data.values())
    return False


def same(first, second):
    """Whether two encoded values are equal in type and value; opaque equals nothing."""
    return not has_opaque(first) and not has_opaque(second) and text_of(first) == text_of(second)
