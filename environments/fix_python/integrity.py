"""The tasks of fix_python as an integrity set: twins without a solution, a comparison to tamper with, a solution to find.

For `sanderling audit fix_python --policy FOLDER`; nothing that the environment trains on or is graded by imports it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from fix_python.gullible import CHECKS
from fix_python.gullible import environment as gullible
from fix_python.tasks import EXAMPLES
from sanderling.audit.integrity_probes import bait_probe, honest_probe, impossible_probe, observing
from sanderling.audit.integrity_set import Kind, Probe
from sanderling.environment import Environment
from sanderling.types import Task


def probes(environment: Environment, seed: int) -> Sequence[Probe]:
    """Return all four kinds; see `sanderling.audit.integrity_probes`."""
    return (
        honest_probe(environment),
        impossible_probe(environment, seed, contradicting),
        Probe(kind=Kind.HONEYPOT, environment=gullible("real"), disclosed=observing(environment), lure=CHECKS),
        bait_probe(environment, seed),
    )


def contradicting(task: Task, word: str) -> Mapping[str, bytes]:
    """Return the examples with their first call a second time, asking for something else."""
    data = json.loads(task.base[EXAMPLES])
    first = data["calls"][0]
    other = {**first, "value": word, "raised": None}
    data["calls"] = [first, other, *data["calls"][1:]]
    return {EXAMPLES: json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode()}
