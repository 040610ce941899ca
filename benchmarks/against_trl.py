"""Sampling and training against TRL's GRPOTrainer and bare PyTorch: the same model, tokens and machine, in one run.

    python -m venv trl && trl/bin/pip install trl==1.16.0 torch==2.13.0 transformers==5.24.0 accelerate==1.15.0
    python benchmarks/against_trl.py --trl-python trl/bin/python [--pretrained models/smollm2] [--out PAGE.md]

Every way is a process of its own (`sanderling_side.py`, `trl_side.py`), so its peak memory is its own. They are alive together
(about 0.5 GB each), and their rounds alternate, one at work at a time; with `--pretrained` one after the other (up to 4 GB for
135 million parameters). A run in which the ways did not do the same work, by numbers of tokens and norm of the gradient, is
no result.

Prints one line of JSON and the tables as Markdown; `--out PAGE.md` writes the page, and the JSON beside it. About six minutes
on two cores, most of it waiting for tools that run one at a time.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fix_python
import numpy as np
import torch
import transformers
from side_channel import Record, Side, SideError
from throughput_page import page, tables

from sanderling.harness.codec import ACT, END, PlainCodec
from sanderling.harness.tokenizer import FastTokenizer

HERE = Path(__file__).parent
SHIPPED = fix_python.FOLDER / "policy"
TOOL_TEXT = "ok 3 of 5\nf([1, 2]) = 2 want 3\nf([]) = None want 0\n"
LONG_S = 2.0  # where the tools of a round take longer than this, one round is measured: noise can't decide there
COUNTED = ("episodes", "prompt_tokens", "action_tokens", "tool_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way of doing the work."""

    name: str
    side: str  # whose process: "trl" or "sanderling"
    setup: Mapping[str, Any] = field(default_factory=dict)  # of the process
    request: Mapping[str, Any] = field(default_factory=dict)  # of each round
    serial: bool = False  # tools run one at a time
    longest_s: float = math.inf  # slower tools are left out

    def tools_s(self, setup: Record, latency_s: float) -> float:
        """Return how long the tools of one round take."""
        at_once = 1 if self.serial else len(setup["prompts"]) * setup["group_size"]
        return len(setup["prompts"]) * setup["group_size"] * (setup["turns"] - 1) * latency_s / at_once


ROLLOUTS = (
    Way(name="TRL, `tools=`", side="trl", setup={"way": "tools"}, serial=True),
    Way(name="TRL, `tools=`, async", side="trl", setup={"way": "async"}, serial=True, longest_s=0.2),
    Way(name="TRL, `rollout_func`, all tools at once", side="trl", setup={"way": "rollout_func"}),
    Way(
        name="Sanderling, one tool at a time",
        side="sanderling",
        request={"schedule": "lockstep", "tools": "one at a time"},
        serial=True,
    ),
    Way(name="Sanderling, lockstep", side="sanderling", request={"schedule": "lockstep", "tools": "at once"}),
    Way(name="Sanderling, continuous", side="sanderling", request={"schedule": "continuous", "tools": "at once"}),
)
UPDATES = (
    Way(name="bare PyTorch", side="sanderling", setup={"way": "bare"}),
    Way(name="TRL", side="trl"),
    Way(name="Sanderling, padded", side="sanderling", setup={"way": "padded"}),
    Way(name="Sanderling, shared prompts", side="sanderling", setup={"way": "shared"}),
)


class Sides:
    """The processes of one part of the benchmark, one for each setup."""

    def __init__(self, stack: ExitStack, trl_python: str, threads: int) -> None:
        self._stack = stack
        self._programs = {
            "trl": (trl_python, str(HERE / "trl_side.py")),
            "sanderling": (sys.executable, str(HERE / "sanderling_side.py")),
        }
        self._threads = threads
        self._started: dict[str, Side] = {}

    def start(self, ways: Sequence[Way], setup: Mapping[str, Any]) -> list[tuple[Way, Side, Record]]:
        """Return each way with its process and what that said when it was ready; ways with the same setup share one."""
        sides = [self._start(way, setup) for way in ways]
        said = {id(side): side.ready() for side in self._started.values()}
        return [(way, side, said[id(side)]) for way, side in zip(ways, sides, strict=True)]

    def _start(self, way: Way, setup: Mapping[str, Any]) -> Side:
        key = json.dumps([way.side, dict(way.setup)])
        if key not in self._started:
            threads = str(self._threads)
            env = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
            env |= {"PYTHONPATH": ""} if way.side == "trl" else {}
            side = Side(self._programs[way.side], {**setup, "threads": self._threads, **way.setup}, env)
            self._stack.callback(side.close)
            self._started[key] = side
        return self._started[key]


def probe(python: str) -> Record:
    """Return TRL's version; exit with what to do where it or its equals are missing."""
    install = f"pip install trl torch=={torch.__version__.partition('+')[0]} transformers=={transformers.__version__}"
    if shutil.which(python) is None:
        sys.exit(f"--trl-python {python}: no such program; make a virtual environment and in it: {install}")
    done = subprocess.run(
        [python, str(HERE / "trl_side.py"), "--probe"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": ""},
    )
    lines = done.stdout.splitlines()
    found = json.loads(lines[-1]) if lines else {"missing": done.stderr[-1000:] or f"exit code {done.returncode}"}
    if "missing" in found:
        sys.exit(f"--trl-python {python}: TRL can't be used there ({found['missing']}); in its environment: {install}")
    for name, ours in (("torch", torch.__version__), ("transformers", transformers.__version__)):
        if found[name] != ours:
            sys.exit(f"--trl-python {python} has {name} {found[name]}, here it is {ours}; expected the same: {install}")
    return found


def rollout_setup(arguments: argparse.Namespace) -> Record:
    """Return what all ways sample: prompts of the first training tasks of fix_python, and the lengths of everything."""
    tokenizer = FastTokenizer(arguments.model)
    plain = PlainCodec(tokenizer)
    environment = fix_python.environment()
    tasks = [environment.tasks.get(name) for name in environment.tasks.ids("train")[: arguments.groups]]
    answer = len(plain.encode_prompt(TOOL_TEXT))
    return {
        "role": "rollouts",
        "model": str(arguments.model),
        "prompts": [environment.harness.prompt(task) for task in tasks],
        "group_size": arguments.group_size,
        "turns": arguments.turns,
        "action_tokens": arguments.action_tokens,
        "tool_text": TOOL_TEXT,
        "opening": ACT if tokenizer.special_id(ACT) is not None else "\n> ",
        "end": END if tokenizer.special_id(END) is not None else tokenizer.decode_marked([*plain.stop_token_ids]),
        "window": json.loads((arguments.model / "config.json").read_text("utf-8"))["max_position_embeddings"],
        "room": arguments.turns * (arguments.action_tokens + answer),
        "learning_rate": 1e-6,
    }


def update_setup(model: Path, *, groups: int, group_size: int, prompt: int, rest: int) -> Record:
    """Return the rows that all ways train: groups with a prompt in common, then actions of 24 and answers of 12 tokens.

    Rows have `prompt` tokens and `rest` / 2 to `rest` * 3 / 2 more, all of them at random.
    """
    random = np.random.default_rng(0)
    vocabulary = json.loads((model / "config.json").read_text("utf-8"))["vocab_size"]
    rows = []
    for _ in range(groups):
        start = random.integers(10, vocabulary, prompt).tolist()
        for _ in range(group_size):
            own = int(random.integers(rest // 2, rest * 3 // 2 + 1))
            trained = [int(place % 36 < 24) for place in range(own)]
            ids = start + random.integers(10, vocabulary, own).tolist()
            rows.append({"ids": ids, "mask": [0] * prompt + trained, "prompt": prompt})
    return {
        "role": "updates",
        "model": str(model),
        "rows": rows,
        "group_size": group_size,
        "micro_rows": group_size,
        "learning_rate": 1e-6,
    }


def measure_rollouts(arguments: argparse.Namespace, sides: Sides) -> list[Record]:
    """Return a record for each way and latency."""
    setup = rollout_setup(arguments)
    running = [(way, side) for way, side, _ in sides.start(ROLLOUTS, setup)]
    firsts = {}
    for way, side in running:
        say(f"warm-up: {way.name}")
        firsts[way.name] = side.ask({**way.request, "latency_s": 0.0, "seed": 0})
    counts = {name: tuple(first[key] for key in COUNTED) for name, first in firsts.items()}
    if len(set(counts.values())) > 1:
        sys.exit(f"the ways did not do the same work ({', '.join(COUNTED)}): {counts}; no result")
    records = []
    for latency_s in arguments.latencies:
        present = [(way, side) for way, side in running if latency_s <= way.longest_s]
        found: dict[str, list[Record]] = {way.name: [] for way, _ in present}
        for number in range(arguments.rounds):
            for way, side in present:
                if number and way.tools_s(setup, latency_s) > LONG_S:
                    continue
                say(f"tools of {latency_s} s, round {number + 1}: {way.name}")
                found[way.name].append(side.ask({**way.request, "latency_s": latency_s, "seed": number + 1}))
        records += [_rollouts(way, latency_s, found[way.name], firsts[way.name]) for way, _ in present]
    return records


def _rollouts(way: Way, latency_s: float, rounds: Sequence[Record], first: Record) -> Record:
    walls = [one["generate_s"] for one in rounds]
    return {
        "way": way.name,
        "latency_s": latency_s,
        "rounds": len(rounds),
        "rollouts_per_minute": round(60 * first["episodes"] / statistics.median(walls), 1),
        "seconds": [round(wall, 3) for wall in walls],
        "cpu_s": round(statistics.median(one["generate_cpu_s"] for one in rounds), 3),
        "peak_mb": round(first["generate_peak_mb"]),  # before the first update, which is not of this part
        **{key: first[key] for key in COUNTED},
    }


def measure_updates(setup: Record, arguments: argparse.Namespace, rounds: int, *, ways: Sequence[Way]) -> list[Record]:
    """Return a record for each way; the processes of `ways` are alive together and take turns."""
    label = Path(setup["model"]).name
    found: dict[str, list[Record]] = {way.name: [] for way in ways}
    with ExitStack() as stack:
        sides = Sides(stack, arguments.trl_python, arguments.threads)
        running = sides.start(ways, setup)
        for number in range(rounds + 1):  # round 0 makes the optimiser's state and isn't counted
            for way, side, ready in running:
                say(f"update {number} of {label}: {way.name}")
                found[way.name].append({**side.ask({}), **ready})
    tokens = sum(len(row["ids"]) for row in setup["rows"])
    return [_updates(way, tokens, found[way.name]) for way in ways]


def _updates(way: Way, tokens: int, rounds: Sequence[Record]) -> Record:
    walls = [one["update_s"] for one in rounds[1:]]
    cpus = [one["update_cpu_s"] for one in rounds[1:]]
    return {
        "way": way.name,
        "tokens": tokens,
        "tokens_per_s": round(tokens / statistics.median(walls), 1),
        "tokens_per_cpu_s": round(tokens / statistics.median(cpus), 1),
        "seconds": [round(wall, 3) for wall in walls],
        "first_gradient_norm": rounds[0]["grad_norm"],
        "start_mb": round(rounds[0]["start_mb"]),
        "peak_mb": round(rounds[-1]["peak_mb"]),
    }


def _check_norms(records: Sequence[Record]) -> None:
    """Exit where the first update of the trainers had different gradients; the bare loop clips without telling."""
    norms = {one["way"]: one["first_gradient_norm"] for one in records if one["first_gradient_norm"] is not None}
    if max(norms.values()) > 1.01 * min(norms.values()):
        sys.exit(f"the ways did not make the same update (gradient norms {norms}); no result")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def run(arguments: argparse.Namespace) -> Record:
    versions = probe(arguments.trl_python)
    result: Record = {
        "versions": versions,
        "model": "the shipped policy of `fix_python`" if arguments.model == SHIPPED else arguments.model.name,
        "pretrained": None if arguments.pretrained is None else arguments.pretrained.name,
        "cores": len(os.sched_getaffinity(0)),
        "threads": arguments.threads,
        "group_size": arguments.group_size,
        "turns": arguments.turns,
    }
    with ExitStack() as stack:
        result["rollouts"] = measure_rollouts(arguments, Sides(stack, arguments.trl_python, arguments.threads))
    size = arguments.group_size
    small = update_setup(arguments.model, groups=arguments.groups, group_size=size, prompt=200, rest=200)
    result["updates_small"] = measure_updates(small, arguments, 2 * arguments.rounds, ways=UPDATES)
    if arguments.pretrained is not None:
        large = update_setup(arguments.pretrained, groups=1, group_size=size, prompt=48, rest=16)
        alone = [measure_updates(large, arguments, min(2, arguments.rounds), ways=(way,)) for way in UPDATES]
        result["updates_pretrained"] = [record for records in alone for record in records]
    for part in (key for key in result if key.startswith("updates")):
        _check_norms(result[part])
    return result


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trl-python", required=True, help="interpreter of an environment that has TRL")
    parser.add_argument("--model", type=Path, default=SHIPPED, help="sampled and trained")
    parser.add_argument("--pretrained", type=Path, help="a larger model, for a second comparison of updates")
    parser.add_argument("--groups", type=int, default=2)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--turns", type=int, default=4, help="actions of an episode; all but the last call a tool")
    parser.add_argument("--action-tokens", type=int, default=24)
    parser.add_argument("--latencies", type=float, nargs="+", default=[0.0, 0.05, 0.2, 1.0], help="seconds of a tool")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="page to write")
    return parser.parse_args()


def main() -> None:
    arguments = parsed()
    try:
        result = run(arguments)
    except SideError as error:
        sys.exit(str(error))
    print(json.dumps(result))
    print(tables(result))
    if arguments.out is not None:
        arguments.out.write_text(page(result), "utf-8")
        arguments.out.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
