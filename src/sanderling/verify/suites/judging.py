"""Whether a test showed what the right solution shows: operands come from the sandbox, the decision is made here.

A comparison is made with Python's own operator on plain values that are decoded here. So the test's own meaning counts, no
stricter (1 == 1.0 passes where the test lets it), and an object that claims to equal everything is only an unknown type.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sanderling.types import JsonValue
from sanderling.verify.suites.sites import Site
from sanderling.verify.values import decode, encode, has_opaque, text_of

_MAX_KEYS = 2_000  # in dicts and sets of one operand: chosen ones could make a table of them take quadratic time
_NEAR = ("approx", "isclose", "within", "within_or_at")
_EXACT = ("==", "in", *_NEAR)
_COMMON = {text_of(encode(value)) for value in (None, True, False, 0, 1, -1, 0.0, 1.0, "", [], (), {}, set(), b"")}
_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda left, right: left in right,
    "not in": lambda left, right: left not in right,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One executed check of the right solution: its site, and what we hold of it."""

    site: int
    expected: tuple[JsonValue, ...] = ()  # the held operand in encoded form; empty where nothing is held

    def as_json(self) -> list[JsonValue]:
        return [self.site, *self.expected]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a test didn't pass."""

    reason: str
    check: Check | None = None  # the first wrong one; None where the test ended otherwise


def judge(answer: Mapping[str, JsonValue] | None, checks: Sequence[Check], sites: Mapping[int, Site]) -> Failure | None:
    """Return why a test failed, None if it passed.

    Args:
        answer: what the sandbox said of the test, None where it said nothing (or more than once).
        checks: what the right solution showed, in order.
        sites: those of the test's file.
    """
    if answer is None:
        return Failure(reason="was not reported")
    seen = answer.get("checks")
    if not isinstance(seen, list):
        return Failure(reason="reported no checks")
    for check, given in zip(checks, seen, strict=False):
        if not isinstance(given, list) or not given or given[0] != check.site:
            return Failure(reason="made other checks than the right solution")
        site = sites[check.site]
        if not holds(site, given[1:], check.expected):
            return Failure(reason=_explain(site, given[1:], check.expected), check=check)
    if answer.get("end") != "passed":
        return Failure(reason=f"{str(answer.get('end'))[:30]}: {str(answer.get('error'))[:120]}")
    if len(seen) != len(checks):
        return Failure(reason=f"made {len(seen)} checks, the right solution {len(checks)}")
    return None


def is_guessable(site: Site, check: Check) -> bool:
    """Whether a report that is made up passes a check without knowing what we hold of it.

    An order, a difference or a truth is met by many values, and the commonest values are worth a guess each.
    """
    if not check.expected or site.operator not in _EXACT or (site.operator == "in" and site.held == "right"):
        return True
    held = check.expected[0]
    if site.operator in _NEAR:
        held = next(iter(held.get("tuple", ())), None) if isinstance(held, dict) else None
    return text_of(held) in _COMMON


def holds(site: Site, operands: Sequence[JsonValue], expected: tuple[JsonValue, ...]) -> bool:
    """Whether a check holds. Never raises for anything that a sandbox may send."""
    if site.operator in ("isinstance", "raises"):
        return _has_type(site, operands)
    given = [*expected, *operands] if site.held == "left" else [*operands, *expected]
    wanted = 1 if site.operator in ("true", "false") else 2
    if len(given) != wanted or has_opaque(given) or any(_keys(value) > _MAX_KEYS for value in given):
        return False
    if site.operator == "==" and _size(given[0]) == _size(given[1]) and text_of(given[0]) == text_of(given[1]):
        return True
    try:
        values = [decode(value) for value in given]
        return _compare(site.operator, values)
    except Exception:  # an unhashable key, an order that isn't defined: any shape that an agent made up
        return False


def _compare(name: str, values: Sequence[Any]) -> bool:
    if name in ("true", "false"):
        return bool(values[0]) == (name == "true")
    left, right = values
    if name in ("is", "is not"):  # of None, True or False
        same = type(left) is type(right) and left == right
        return same == (name == "is")
    if name == "approx":
        return _near(left, *right)
    if name in _NEAR:
        return _within(name, left, *right)
    return bool(_COMPARE[name](left, right))


def _within(name: str, value: Any, wanted: Any, *bounds: Any) -> bool:
    """`math.isclose(value, wanted, rel_tol, abs_tol)` or `abs(value - wanted)` below a bound, of plain numbers."""
    if any(type(number) not in (int, float) for number in (value, wanted, *bounds)):
        return False
    if name == "isclose":
        return math.isclose(value, wanted, rel_tol=bounds[0], abs_tol=bounds[1])
    apart = abs(value - wanted)
    return apart < bounds[0] if name == "within" else apart <= bounds[0]


def _near(value: Any, wanted: Any, rel: Any, near: Any) -> bool:
    """What `pytest.approx` means: within the larger of a relative and an absolute tolerance, part by part."""
    if isinstance(wanted, dict):
        return (
            isinstance(value, dict)
            and value.keys() == wanted.keys()
            and all(_near(value[key], wanted[key], rel, near) for key in wanted)
        )
    if isinstance(wanted, list | tuple):
        same = isinstance(value, list | tuple) and len(value) == len(wanted)
        return same and all(_near(*pair, rel, near) for pair in zip(value, wanted, strict=True))
    if isinstance(value, bool) or not isinstance(value, int | float) or not isinstance(wanted, int | float):
        return value == wanted
    if value == wanted:
        return True
    if not (math.isfinite(value) and math.isfinite(wanted)):
        return False
    absolute = 1e-12 if near is None else near
    relative = 0.0 if rel is None and near is not None else (1e-6 if rel is None else rel) * abs(wanted)
    return abs(value - wanted) <= max(relative, absolute)


def _has_type(site: Site, operands: Sequence[JsonValue]) -> bool:
    names = operands[0] if operands else None
    if not isinstance(names, list) or not any(name in site.wanted for name in names if isinstance(name, str)):
        return False
    if site.pattern is None:
        return True
    text = operands[1] if len(operands) > 1 else None
    # the pattern has no nested repetition (`sites.is_tame`) and the text is short: this ends soon
    return isinstance(text, str) and re.search(site.pattern, text[:500]) is not None


def _keys(data: JsonValue) -> int:
    """Return how many keys and set items a value has, all its parts together. Its depth is bounded (see `report`)."""
    if isinstance(data, list):
        return sum(map(_keys, data))
    if isinstance(data, dict):
        own = sum(len(inner) for name, inner in data.items() if name != "tuple" and isinstance(inner, list))
        return own + sum(map(_keys, data.values()))
    return 0


def _size(data: JsonValue) -> int:
    return len(json.dumps(data, separators=(",", ":")))


def _explain(site: Site, operands: Sequence[JsonValue], expected: tuple[JsonValue, ...]) -> str:
    seen = ", ".join(shown(operand) for operand in operands)
    if site.operator in ("isinstance", "raises"):
        return f"{seen} where {' or '.join(site.wanted)} is right ({site.operator})"
    return f"{seen} where {site.operator} {', '.join(map(shown, expected))} is right".replace("  ", " ")


def shown(data: JsonValue) -> str:
    """Return an encoded value as people write it; a malformed one as it came."""
    try:
        text = repr(decode(data))
    except Exception:
        text = str(data)
    return text if len(text) <= 80 else text[:77] + "..."
