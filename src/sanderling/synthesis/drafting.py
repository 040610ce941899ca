"""From a bug that tests notice to a task folder: base, hidden tests, statement and patch."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from sanderling.errors import EngineError, TaskError
from sanderling.synthesis.candidates import Candidate
from sanderling.synthesis.census import Census
from sanderling.synthesis.code_base import CodeBase
from sanderling.synthesis.git_folder import git_folder
from sanderling.synthesis.hiding import choose_hidden, without_tests
from sanderling.synthesis.layout import Layout
from sanderling.synthesis.leaks import leaked_line, visible_gold
from sanderling.synthesis.splits import Unit
from sanderling.synthesis.statement import StatementModel, Symptoms, bare, template
from sanderling.synthesis.trials import Rejection, Trial, file_of
from sanderling.tasks.folder import Expected, Source, TaskFolder, TaskHeader
from sanderling.tasks.patches import make_patch
from sanderling.types import Limits

TASK_LIMITS = Limits(
    command_s=60.0,
    command_cpu_s=60.0,
    disk_mb=64,
    memory_mb=1024,
    max_turns=50,
    max_context_tokens=16_384,
    max_action_tokens=1024,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What all tasks of one code base have in common."""

    code: CodeBase
    layout: Layout
    census: Census
    splits: Mapping[Unit, str]
    seed: int
    hide_share: float
    model: StatementModel | None = None
    limits: Limits = field(default_factory=lambda: TASK_LIMITS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A task folder that still lacks its number, or the reason why there is none."""

    folder: TaskFolder | None
    rejection: Rejection | None = None


async def draft_task(candidate: Candidate, trial: Trial, recipe: Recipe) -> Draft:
    """Compose the task of a bug that was admitted so far. `Expected` holds no recording yet."""
    planted, path = candidate.planted, candidate.path
    gold = recipe.code.files[path].decode()
    hidden = choose_hidden(trial.fail_to_pass, recipe.hide_share, recipe.seed)
    try:
        shown = visible_tests(recipe.code.files, hidden)
    except TaskError:
        return Draft(folder=None, rejection=Rejection.CANNOT_HIDE)
    base = {**recipe.code.files, **shown, path: planted.source.encode()}
    if visible_gold(base, gold, planted) is not None:
        return Draft(folder=None, rejection=Rejection.GOLD_VISIBLE)
    symptoms = Symptoms(
        name=recipe.code.name,
        version=recipe.code.version,
        failures=trial.failures,
        hidden=hidden,
        sources=recipe.layout.sources,
        tests=_sources_of(recipe.code.files, hidden),
    )
    written = await write_statement(symptoms, candidate, recipe.model)
    if written is None:
        return Draft(folder=None, rejection=Rejection.STATEMENT_LEAKS)
    statement, writer = written
    visible = {name.partition("[")[0] for name in trial.fail_to_pass} - set(hidden)
    metadata = {
        "family": candidate.proposal.family,
        "file": path,
        "function": candidate.proposal.function,
        "line": str(candidate.proposal.first_line),
        "lines_removed": str(len(planted.removed)),
        "lines_added": str(len(planted.added)),
        "visible": "fails" if visible else "passes",
        "statement": writer,
    }
    header = TaskHeader(
        id=task_id(candidate, recipe, 0),
        source=Source(name=recipe.code.name, version=recipe.code.version),
        editable=recipe.layout.editable,
        modules=recipe.layout.roots,
        visible_tests=visible_command(recipe.layout),
        limits=recipe.limits,
        metadata=metadata,
    )
    folder = TaskFolder(
        header=header,
        instruction=statement,
        base={**base, **git_folder(base)},
        tests={name: recipe.code.files[name] for name in shown},
        expected=Expected(fail_to_pass=trial.fail_to_pass, pass_to_pass=trial.pass_to_pass),
        gold_patch=make_patch({path: planted.source.encode()}, {path: recipe.code.files[path]}),
    )
    return Draft(folder=folder)


def task_id(candidate: Candidate, recipe: Recipe, number: int) -> str:
    """Return the id of the `number`-th bug of this family in this function; its second part is the split."""
    function = candidate.proposal.function
    split = recipe.splits[candidate.path, function.partition(".")[0]]
    root = next((r for r in recipe.layout.roots if r != "." and candidate.path.startswith(f"{r}/")), None)
    module = (candidate.path.removeprefix(f"{root}/") if root else candidate.path).removesuffix(".py").replace("/", ".")
    return f"{recipe.code.name}/{split}/{module}.{function}.{candidate.proposal.family}-{number}"


def numbered(folder: TaskFolder, candidate: Candidate, recipe: Recipe, number: int) -> TaskFolder:
    """Return a task with its final id."""
    return replace(folder, header=replace(folder.header, id=task_id(candidate, recipe, number)))


def visible_tests(files: Mapping[str, bytes], hidden: Sequence[str]) -> dict[str, bytes]:
    """Return the visible version of every test file that holds a hidden definition.

    Raises:
        TaskError: a definition can't be cut out.
    """
    shown = {}
    for path in sorted({file_of(name) for name in hidden}):
        definitions = [name.partition("::")[2] for name in hidden if file_of(name) == path]
        shown[path] = without_tests(files[path].decode(), definitions).source.encode()
    return shown


def visible_command(layout: Layout) -> tuple[str, ...]:
    """Return the command with which an agent runs the visible tests."""
    roots = () if layout.roots == (".",) else tuple(f"--root={root}" for root in layout.roots)
    return ("python3", "/tools/run_tests.py", "-q", *roots)


async def write_statement(
    symptoms: Symptoms, candidate: Candidate, model: StatementModel | None
) -> tuple[str, str] | None:
    """Return a statement that shows no line of the right solution, and who wrote it; None where there is none."""
    written: list[tuple[str, str]] = []
    if model is not None:
        with suppress(EngineError):  # the template is as true, only less like what people write
            written.append((await model.write(symptoms), "model"))
    written += [(template(symptoms), "template"), (bare(symptoms), "bare")]
    for text, writer in written:
        if leaked_line(text, candidate.planted, candidate.planted.source) is None:
            return text, writer
    return None


def _sources_of(files: Mapping[str, bytes], hidden: Sequence[str]) -> str:
    """Return the text of hidden test functions, for a model that describes what they show."""
    found = []
    for definition in hidden:
        path, _, name = definition.partition("::")
        text = files[path].decode()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name.rpartition("::")[2]:
                found.append(ast.get_source_segment(text, node) or "")
                break
    return "\n\n".join(found)
