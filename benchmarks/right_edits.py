"""How likely is the right repair? Per task: that the policy names the right line, and that it then makes the right change.

    python benchmarks/right_edits.py [--policy fix-python-tiny] [--tasks 300]

The context is the prompt, `test` and its report; probabilities are at temperature 1, of one wording of the right repair (others
that repair as well don't count). What is printed as "in 16 tries" is 1 - (1 - p)^16: a search that never learns from a failure.
About a minute on one core.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import dataclass
from random import Random

import torch
from fix_python.catalogue import problems
from fix_python.tasks import FILE, FixPythonTasks, load_index
from fix_python.warmup.edits import change_call
from fix_python.warmup.teacher import Piece, Role, prompt_of
from fix_python.warmup.train import to_row
from fix_python.warmup.trial import recorded_calls, visible_report
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

from sanderling.assemble import resolve_policy

TRIES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Chance:
    """Probabilities of one task."""

    family: str
    line: float
    change: float  # at the right line

    @property
    def in_tries(self) -> float:
        return 1 - (1 - self.line * self.change) ** TRIES


def repaired_at_once(task_id: str) -> tuple[Piece, ...]:
    """Return the episode that tests, looks at the right line and changes it."""
    entry, task = load_index()[1][task_id], FixPythonTasks().get(task_id)
    problem, source = problems()[entry.function], task.base[FILE].decode()
    calls = recorded_calls(problem.source, problem.name, problem.examples)
    assert calls is not None, task_id
    right = problem.source.split("\n")[entry.line - 1].strip()
    now = entry.text.strip()
    return (
        Piece(role=Role.PROMPT, text=prompt_of(entry.function, source)),
        Piece(role=Role.MISS, text="test"),
        Piece(role=Role.OBSERVATION, text=visible_report(source, calls)[0]),
        Piece(role=Role.ACTION, text=f"line {entry.line}"),
        Piece(role=Role.OBSERVATION, text=now),
        Piece(role=Role.ACTION, text=change_call(now, right)),
    )


@torch.no_grad()
def chance(model: AutoModelForCausalLM, tokenizer: Tokenizer, task_id: str) -> Chance:
    """Return the probabilities of a task's repair under a model."""
    row = to_row(repaired_at_once(task_id), tokenizer)
    logprobs = model(row.ids[None, :-1]).logits[0].log_softmax(-1).gather(-1, row.ids[1:, None])[:, 0]
    acted = (row.weights[1:] == 1.0).nonzero()[:, 0]
    gap = int((acted.diff() > 1).nonzero()[0]) + 1  # the two actions stand apart
    line, change = (float(logprobs[part].sum().exp()) for part in (acted[:gap], acted[gap:]))
    return Chance(family=load_index()[1][task_id].family, line=line, change=change)


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default="fix-python-tiny")
    parser.add_argument("--tasks", type=int, default=300)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    folder = resolve_policy(arguments.policy)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    print("| tasks | n | right line | right change, at that line | in 16 tries |\n|---|---:|---:|---:|---:|")
    for split in ("held-out", "train"):
        drawn = Random(7).sample(list(FixPythonTasks().ids(split)), arguments.tasks)
        by_family: dict[str, list[Chance]] = defaultdict(list)
        for task_id in drawn:
            found = chance(model, tokenizer, task_id)
            for group in (split, found.family) if split == "held-out" else (split,):
                by_family[group].append(found)
        for name, chances in sorted(by_family.items(), key=lambda item: -len(item[1])):
            columns = ([c.line for c in chances], [c.change for c in chances], [c.in_tries for c in chances])
            print(f"| {name} | {len(chances)} | " + " | ".join(f"{mean(values):.3f}" for values in columns) + " |")


if __name__ == "__main__":
    main()
