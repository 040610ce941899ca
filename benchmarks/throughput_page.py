"""The page of `against_trl.py`: what was compared, the tables, and what is not alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from side_channel import Record

RATIOS = (
    ("as they are", "Sanderling, lockstep", "TRL, `tools=`"),
    ("both one tool at a time", "Sanderling, one tool at a time", "TRL, `tools=`"),
    ("both all tools at once", "Sanderling, lockstep", "TRL, `rollout_func`, all tools at once"),
    ("the same, continuous schedule", "Sanderling, continuous", "TRL, `rollout_func`, all tools at once"),
)
"""What is compared: a name, and whose speed is divided by whose."""

_INTRODUCTION = """# Throughput against TRL

The same model, tokens, threads and machine in one run: TRL's `GRPOTrainer`, Sanderling, and bare PyTorch.
**Ratios count; speeds and seconds are those of one machine.**

```console
$ python -m venv trl && trl/bin/pip install trl=={trl} torch=={torch} transformers=={transformers} accelerate
$ python benchmarks/against_trl.py --trl-python trl/bin/python --pretrained models/smollm2 --out docs/results/throughput.md
```

TRL {trl}, torch {torch}, transformers {transformers}, float32, threads for each way: {threads}, cores: {cores}. Every way is a
process of its own; their rounds alternate, one at work at a time (the pretrained model: one way after the other); medians,
but a single round where the tools of a round take more than 2 s. Every round is in [throughput.json](throughput.json).
"""

_ROLLOUTS = """Model: {model}. {episodes} episodes at once in groups of
{group_size}, {turns} actions of {action} tokens each, a tool call after all but the last, {prompt} prompt tokens per
episode and {tool} per tool result. A run is refused unless all ways read and sampled the same numbers of tokens.
Lockstep is the default schedule of synchronous training: the next turn of all episodes is sampled together.
"""

_UPDATES = """Model: {model}. One optimiser update: forward, backward, clip, AdamW, on the same rows ({tokens} tokens:
those of the rows, without padding, and a prompt in common counts in each of its rows, however often it is computed). The
gradient norm of the first update agrees between the trainers to {agreement:.0e} (a run is refused above 1 %), so they did
the same work. Memory is VmHWM of the process; "above start" leaves out libraries, weights and whatever else was there
before the first update.
"""

_NOT_ALIKE = """## What is not alike

- **Actions are not parsed.** The policies sample freely, so that an action would rarely be a call. Every action but the last
  counts as a call of the one tool: in TRL through `parse_response` of the tokenizer, here through the harness. Tools sleep;
  there is a sandbox in memory and a reward that costs nothing. TRL has no sandboxes, so none is measured.
- **Length.** TRL holds the end token back so that all actions have one length (`min_new_tokens`); here no token ends an
  action. The tokens themselves are drawn at random and differ; their numbers do not.
- **Sampling.** TRL calls transformers' `generate` once per turn and reads the whole context again each time, because it
  keeps no keys and values between turns. That is its own way and stays in the figures. Sanderling reports the
  log-probability of each sampled token; TRL's default sampler does not. TRL's vLLM and continuous-batching back ends, and
  ours with vLLM, are not compared.
- **Tools of TRL.** In `GRPOTrainer` the tools of different episodes run one after another; async ones too, because only the
  calls of one action are gathered. "`rollout_func`" is a loop written for this benchmark on top of TRL's own sampling
  (`_generate_single_turn`), with a thread for each tool: what a user could write, not what is shipped. TRL's experimental
  `AsyncGRPOTrainer` samples with a vLLM server, so it is not compared.
- **Settings of TRL** are its defaults but for: float32 (its default is bfloat16), no gradient checkpointing (its default
  is on; it trades time for memory), loss "grpo" with unscaled advantages, AdamW with the betas used here.
- **Order of rows.** TRL pads all rows of a generation batch to the longest prompt and the longest completion, and shuffles
  them. Sanderling and the bare loop sort them by length and pad each micro-batch. All take the same number of rows at
  once, but for the shared layout, where more rows fit into the same number of computed tokens.
- **Logits.** The bare loop makes the logits of all positions, the trainers only those of the completion (TRL) or of trained
  tokens (Sanderling). Both trainers also compute entropies. So a trainer can be faster than the bare loop.
- **Reading the rows in.** TRL's update is timed without its own preparation of the batch (rewards, advantages, padding of
  the generation batch); Sanderling's and the bare loop's are timed with their cut into micro-batches.
- **Memory while sampling** is that of the first round; TRL's process holds a trainer with it, ours an engine alone.
"""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def _rollouts(records: Sequence[Record]) -> str:
    latencies = list(dict.fromkeys(one["latency_s"] for one in records))
    speed = {(one["way"], one["latency_s"]): one["rollouts_per_minute"] for one in records}
    first = {one["way"]: one for one in records if one["latency_s"] == latencies[0]}
    columns = [f"{latency:g} s" for latency in latencies]
    absolute = [
        [
            way,
            *(f"{speed[way, latency]:.0f}" if (way, latency) in speed else "–" for latency in latencies),
            f"{1000 * one['cpu_s'] / one['episodes']:.0f}",
            str(one["peak_mb"]),
        ]
        for way, one in first.items()
    ]
    ratios = [
        [name, *(f"{speed[ours, latency] / speed[theirs, latency]:.2f}" for latency in latencies)]
        for name, ours, theirs in RATIOS
    ]
    cpu = f"CPU ms per rollout, {columns[0]}"
    return "\n".join(
        [
            _table(["rollouts per minute, tool of", *columns, cpu, "peak MB"], absolute),
            _table(["Sanderling / TRL, tool of", *columns], ratios),
        ]
    )


def _updates(records: Sequence[Record]) -> str:
    bare = records[0]
    rows = [
        [
            one["way"],
            f"{one['tokens_per_s']:.0f}",
            f"{one['tokens_per_s'] / bare['tokens_per_s']:.2f}",
            f"{one['tokens_per_cpu_s'] / bare['tokens_per_cpu_s']:.2f}",
            str(one["peak_mb"]),
            str(one["peak_mb"] - one["start_mb"]),
        ]
        for one in records
    ]
    return _table(["way", "tokens/s", "over bare", "over bare, CPU time", "peak MB", "above start"], rows)


def _parts(result: Record) -> list[tuple[str, str, str]]:
    """Return title, introduction and table of each part."""
    one = result["rollouts"][0]
    episodes = one["episodes"]
    sizes = {
        "model": result["model"],
        "episodes": episodes,
        "group_size": result["group_size"],
        "turns": result["turns"],
        "action": one["action_tokens"] // episodes // result["turns"],
        "prompt": round(one["prompt_tokens"] / episodes),
        "tool": one["tool_tokens"] // episodes // max(1, result["turns"] - 1),
    }
    parts = [("Rollouts", _ROLLOUTS.format(**sizes), _rollouts(result["rollouts"]))]
    for key, title, model in (
        ("updates_small", "Updates", result["model"]),
        ("updates_pretrained", "Updates of a pretrained model", result["pretrained"]),
    ):
        if key in result:
            records = result[key]
            norms = [record["first_gradient_norm"] for record in records if record["first_gradient_norm"] is not None]
            text = _UPDATES.format(model=model, tokens=records[0]["tokens"], agreement=max(norms) / min(norms) - 1.0)
            parts.append((title, text, _updates(records)))
    return parts


def tables(result: Record) -> str:
    """Return the tables as Markdown."""
    return "\n".join(f"## {title}\n\n{table}" for title, _, table in _parts(result))


def page(result: Record) -> str:
    """Return the whole page."""
    versions = {name: version.partition("+")[0] for name, version in result["versions"].items()}
    head = _INTRODUCTION.format(**versions, threads=result["threads"], cores=result["cores"])
    parts = [f"## {title}\n\n{text}\n{table}" for title, text, table in _parts(result)]
    return "\n".join([head, *parts, _NOT_ALIKE])
