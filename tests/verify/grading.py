"""A small task of its own for the verifier's tests: `pick(items, low)` keeps the items that are `low` or more."""

import asyncio
from dataclasses import dataclass

import pytest

from sanderling.errors import SandboxUnavailable
from sanderling.sandbox.bubblewrap import BubblewrapBackend
from sanderling.types import Limits, Submission, Task
from sanderling.verify.cases import Entry
from sanderling.verify.observation import ObservationVerifier
from sanderling.verify.values import encode

GOLD = """\
def pick(items, low):
    if low < 0:
        raise ValueError("low is negative")
    result = []
    for item in items:
        if item >= low:
            result.append(item)
    return result
"""
BUGGY = GOLD.replace("item >= low", "item > low")
EXAMPLES = (([1, 2, 3], 2), ([4], 5), ([], -1))
TASK = Task(
    id="pick/test/comparison-0",
    prompt="Fix pick.",
    base={"solution.py": BUGGY.encode(), "examples.json": b"[]"},
    editable=("solution.py",),
    limits=Limits(command_s=5.0, command_cpu_s=4.0, memory_mb=128, processes=8, disk_mb=8, grading_s=30.0),
)


@dataclass(frozen=True)
class PickCalls:
    source: str = GOLD

    def entry(self, task):
        return Entry(file="solution.py", function="pick")

    def gold(self, task):
        return self.source

    def examples(self, task):
        return [encode(list(call)) for call in EXAMPLES]

    def draw(self, task, rng, count):
        return [
            encode([[rng.randint(0, 5) for _ in range(rng.randint(0, 4))], rng.randint(-1, 5)]) for _ in range(count)
        ]


def verifier(**settings):
    defaults = {"draws": 24, "call_s": 1.0, "call_cpu_s": 0.2, "total_s": 4.0, "total_cpu_s": 2.0}
    return ObservationVerifier(PickCalls(), **{**defaults, **settings})


def submit(source, refused=()):
    content = source if isinstance(source, bytes) else source.encode()
    return Submission(files={"solution.py": content}, refused=tuple(refused))


def in_sandboxes(work):
    """Run `work(backend)` to its end with a real backend; skip the test where the machine can't have one."""

    async def run():
        backend = BubblewrapBackend()
        try:
            return await work(backend)
        finally:
            await backend.close()

    capabilities = BubblewrapBackend().probe()
    if not capabilities.usable:
        pytest.skip(f"no sandbox on this machine: {capabilities.missing}")
    try:
        return asyncio.run(run())
    except SandboxUnavailable as error:
        pytest.skip(str(error))
