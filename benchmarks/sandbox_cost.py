"""What a sandbox costs: create, one command, destroy, as a ratio to a bare posix_spawn of the same command.

Both are measured in turns within one run, so that a busy machine hits them alike; read the ratios, not the milliseconds.

    python benchmarks/sandbox_cost.py [--rounds 100] [--json costs.json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from sanderling.sandbox.bubblewrap import BubblewrapBackend
from sanderling.sandbox.protocol import Command, SandboxBackend, SandboxSpec

COMMANDS = {"true": ("/bin/true",), "python": ("python3", "-I", "-S", "-c", "pass")}
FILES = {"solution.py": b"def f():\n    return 1\n", "notes.txt": b"text\n" * 100}


def bare_ms(argv: tuple[str, ...]) -> float:
    """Start a program by posix_spawn and wait for its end."""
    program = sys.executable if argv[0] == "python3" else argv[0]
    began = time.perf_counter()
    os.waitpid(os.posix_spawn(program, argv, {}), 0)
    return (time.perf_counter() - began) * 1e3


async def sandboxed_ms(backend: SandboxBackend, argv: tuple[str, ...]) -> dict[str, float]:
    """Create a sandbox, run one command in it, destroy it."""
    began = time.perf_counter()
    sandbox = await backend.create(SandboxSpec(files=FILES))
    created = time.perf_counter()
    result = await sandbox.exec(Command(argv=argv))
    ran = time.perf_counter()
    await sandbox.destroy()
    ended = time.perf_counter()
    if result.exit_code != 0:
        raise SystemExit(f"{argv} ended with {result.exit_code}: {result.stderr!r}")
    phases = {"create": created - began, "exec": ran - created, "destroy": ended - ran, "all": ended - began}
    return {name: seconds * 1e3 for name, seconds in phases.items()}


def summary(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {"p50_ms": statistics.median(ordered), "p99_ms": ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]}


async def measure(rounds: int) -> dict[str, dict[str, dict[str, float]]]:
    """Return summaries by command and phase; "bare" is the anchor."""
    with tempfile.TemporaryDirectory() as state:
        backend = BubblewrapBackend(Path(state))
        try:
            await sandboxed_ms(backend, COMMANDS["true"])  # starts the launcher
            values: dict[str, dict[str, list[float]]] = {name: {} for name in COMMANDS}
            for _ in range(rounds):
                for name, argv in COMMANDS.items():
                    values[name].setdefault("bare", []).append(bare_ms(argv))
                    for phase, spent in (await sandboxed_ms(backend, argv)).items():
                        values[name].setdefault(phase, []).append(spent)
        finally:
            await backend.close()
    return {name: {phase: summary(spent) for phase, spent in phases.items()} for name, phases in values.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    costs = asyncio.run(measure(options.rounds))
    print(f"{'command':8} {'phase':8} {'p50 ms':>8} {'p99 ms':>8} {'ratio of p50':>13}")
    for name, phases in costs.items():
        for phase, numbers in phases.items():
            numbers["ratio"] = numbers["p50_ms"] / phases["bare"]["p50_ms"]
            print(f"{name:8} {phase:8} {numbers['p50_ms']:8.2f} {numbers['p99_ms']:8.2f} {numbers['ratio']:13.1f}")
    if options.json:
        options.json.write_text(json.dumps(costs, indent=2) + "\n")


if __name__ == "__main__":
    main()
