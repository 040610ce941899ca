"""Metrics are declared before they are written: name, unit, formula, and which way is better.

A name in a `StepReport` that nobody declared is an error, so that no number appears without a meaning. The table itself
is in `sanderling.store.declared`; docs/metrics.md is generated from it (`python -m sanderling.report.metrics`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import Literal

from sanderling.types import StepReport, StopReason

Kind = Literal["metrics", "timing", "counts"]
Better = Literal["higher", "lower", "neither"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One declared number.

    Example::

        Metric(name="solve_rate", kind="metrics", unit="share", formula="solved / graded members", better="higher")
    """

    name: str  # of the entry in the StepReport; with `prefix` the part before the varying rest
    kind: Kind  # mapping of the StepReport in which it stands
    unit: str
    formula: str
    better: Better = "neither"
    source: str = ""  # arXiv id, or what to read
    prefix: bool = False  # a family of names, such as stop_<reason>
    values: tuple[str, ...] = ()  # what may stand after the prefix; empty: anything


_REGISTRY: dict[tuple[Kind, str], Metric] = {}


def declare(metric: Metric) -> Metric:
    """Declare a metric, so that it may stand in a StepReport; returns it.

    Raises:
        ValueError: the name is declared already, with another meaning.
    """
    key = (metric.kind, metric.name)
    if _REGISTRY.get(key, metric) != metric:
        raise ValueError(f"metric {metric.name!r} ({metric.kind}) is declared already: {_REGISTRY[key].formula}")
    _REGISTRY[key] = metric
    return metric


def declared() -> tuple[Metric, ...]:
    """Return every declared metric, in the order of declaration."""
    return tuple(_table().values())


def find(kind: Kind, name: str) -> Metric | None:
    """Return the declaration behind a name, or None; an exact name wins over a family."""
    table = _table()
    if (exact := table.get((kind, name))) is not None and not exact.prefix:
        return exact
    families = [metric for metric in table.values() if metric.kind == kind and metric.prefix]
    for metric in sorted(families, key=lambda item: -len(item.name)):
        rest = name.removeprefix(metric.name)
        if rest not in ("", name) and (not metric.values or rest in metric.values):
            return metric
    return None


def check_declared(report: StepReport) -> None:
    """Check that every name in a report is declared.

    Raises:
        ValueError: names each one that isn't, with the nearest declared name and how to declare it.
    """
    missing = [(kind, name) for kind, name in _names(report) if find(kind, name) is None]
    if not missing:
        return
    lines = [f"  {name!r} in StepReport.{kind}{_nearest(kind, name)}" for kind, name in missing]
    raise ValueError(
        "step report with undeclared numbers:\n" + "\n".join(lines) + "\nuse a declared name, or declare it: "
        "sanderling.store.metrics.declare(Metric(name=..., kind=..., unit=..., formula=..., better=...))"
    )


def _table() -> dict[tuple[Kind, str], Metric]:
    import_module("sanderling.store.declared")  # declares the metrics of Sanderling itself, once
    return _REGISTRY


def _names(report: StepReport) -> Iterable[tuple[Kind, str]]:
    yield from (("metrics", name) for name in report.metrics)
    yield from (("timing", name) for name in report.timing)
    yield from (("counts", name) for name in report.counts)


def _nearest(kind: Kind, name: str) -> str:
    known = {metric.name: metric.kind for metric in _table().values()}
    if name in known and known[name] != kind:
        return f" (declared for StepReport.{known[name]})"
    close = get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


STOPS = tuple(reason.value for reason in StopReason)
