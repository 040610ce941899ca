"""Every example of docs/extend.md is written to a file and run by the command under it."""

from __future__ import annotations

import asyncio
import importlib
import json
import shlex
import sys
import tomllib
from pathlib import Path

import pytest
from markdown_blocks import ROOT, blocks

from sanderling import cli
from sanderling.assemble import load_environment
from sanderling.credit.catalogue import load_estimator
from sanderling.sandbox.bubblewrap import BubblewrapBackend
from sanderling.store.reader import RunReader
from sanderling.testing import check_credit, records
from sanderling.testing.sandbox_conformance import Outcome, run_conformance
from sanderling.testing.sandboxes import MemoryBackend
from sanderling.testing.tiny_model import tiny_llama_folder

PAGE = blocks(ROOT / "docs" / "extend.md")
EXAMPLES = [block.title for block in PAGE if block.language == "python"]
COMMANDS = [(block.after, line) for block in PAGE if block.language == "console" for line in block.commands()]
LETTERS = "sanderling.testing.letters:letter_environment"
MEMORY = "sanderling.testing.environments:memory_backend"
SMALL = [
    "--steps=1",
    "--rollout.groups_per_step=1",
    "--rollout.group_size=4",
    "--evaluation.tasks=1",
    "--evaluation.greedy=false",
    "--limits.max_turns=2",
    "--limits.max_action_tokens=8",
]
CHAT = (
    "{% for m in messages %}<|user|>{{ m['role'] }}: {{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
POLICIES = ("fix-python-tiny", "HuggingFaceTB/SmolLM2-135M-Instruct")
OWN_ENVIRONMENT = ("my_shell.py", "my_tools.py")  # examples on fix_python
NEEDS_NO_SANDBOX = {"my_verifier.py", "my_credit.py"}


@pytest.fixture(scope="session")
def sandboxed() -> None:
    found = BubblewrapBackend().probe()
    if not found.usable:
        pytest.skip(f"bubblewrap can't run here: {'; '.join(found.missing)}")


@pytest.fixture(scope="session")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tiny_llama_folder(tmp_path_factory.mktemp("policy") / "tiny")
    (folder / "chat_template.jinja").write_text(CHAT)  # only harnesses for chats read it
    return folder


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with every example, and the current directory."""
    for block in PAGE:
        if block.language == "python":
            (tmp_path / block.title).write_text(block.text, "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """Return a function that runs a command line in this process and returns what it printed."""

    def command(arguments: list[str]) -> str:
        monkeypatch.setattr(sys, "argv", ["sanderling", *arguments])
        code: object = 0
        try:
            cli.main()
        except SystemExit as end:
            code = end.code or 0
        captured = capsys.readouterr()
        assert code == 0, f"{shlex.join(arguments)} ended with {code}:\n{captured.out}\n{captured.err}"
        return captured.out

    return command


def _scaled_down(line: str, example: str, policy: Path) -> list[str]:
    """Return the arguments of a documented command with a tiny policy, few steps, and no sandbox where none is shown."""
    program, verb, *rest = shlex.split(line)
    assert program == "sanderling"
    rest = [str(policy) if token in POLICIES else token for token in rest]
    if verb == "tasks":
        return [verb, *rest]
    letters = [f"--sandbox.backend={MEMORY}"] if example in NEEDS_NO_SANDBOX else []
    if verb == "train":
        if not any(token.startswith("--environment") for token in rest):
            letters.append(f"--environment={LETTERS}")
        limits = [] if "my_engine.py" in line else SMALL
        return [verb, *rest, f"--policy={policy}", *limits, "--engine.threads=1", *letters, "--run", "run"]
    if "--env" not in rest and example not in OWN_ENVIRONMENT:
        letters += ["--env", LETTERS]
    if "--n" not in rest:
        letters += ["--n", "4" if verb == "eval" else "1"]
    limits = [] if "my_engine.py" in line else ["--limits.max_turns=2", "--limits.max_action_tokens=8"]
    return [verb, *rest, *limits, "--engine.threads=1", *letters]


@pytest.mark.parametrize(("example", "line"), COMMANDS, ids=[line for _, line in COMMANDS])
def test_documented_command_runs(example, line, written, run, policy, request):
    if example not in NEEDS_NO_SANDBOX and " tasks " not in line:
        request.getfixturevalue("sandboxed")
    out = run(_scaled_down(line, example, policy))
    assert example.removesuffix(".py") in line, "a command stands under the example that it uses"
    if " train " in line:
        reader = RunReader(written / "run")
        assert reader.steps() == [1]
        assert len(list(reader.rollouts(1).members())) == 4
        assert "1 steps in" in out
        named = "my_verifier.py:OneLine" if example == "my_verifier.py" else "of the environment"
        assert reader.environment()["verifier"] == named
    if " eval " in line:
        assert "solved = " in out


def test_every_example_is_short_and_has_a_command():
    assert set(EXAMPLES) == {
        f"my_{part}.py" for part in ("env", "shell", "tools", "verifier", "credit", "sandbox", "engine")
    }
    assert {example for example, _ in COMMANDS} == set(EXAMPLES)
    for block in PAGE:
        if block.language == "python":
            assert 15 <= len([line for line in block.text.splitlines() if line.strip()]) <= 35, block.title


def _solve_rate(run, policy: Path, *arguments: str) -> float:
    flags = ["eval", str(policy), "--env", "my_env.py:environment", "--n", "1", "--engine.threads=1", "--json"]
    return json.loads(run([*flags, *arguments]).splitlines()[-1])["solve_rate"]


def test_engine_environment_and_verifier_together(written, run, policy, sandboxed):
    """The played actions mend the function; a change of two lines does too, and only the verifier tells them apart."""
    assert _solve_rate(run, policy, "--engine.name=my_engine.py:Playback") == 1.0
    text = (written / "my_engine.py").read_text("utf-8")
    two_lines = text.replace('ACTIONS = ("set 2', 'ACTIONS = ("set 1 | def larger(b, a):", "set 2')
    assert two_lines != text
    (written / "two_lines.py").write_text(two_lines, "utf-8")
    assert _solve_rate(run, policy, "--engine.name=two_lines.py:Playback") == 1.0
    strict = "--verifier=my_verifier.py:OneLine"
    assert _solve_rate(run, policy, "--engine.name=my_engine.py:Playback", strict) == 1.0
    assert _solve_rate(run, policy, "--engine.name=two_lines.py:Playback", strict) == 0.0


def test_training_on_an_engine_without_the_weights_is_refused(written, run, policy, capsys, monkeypatch, sandboxed):
    flags = ["--environment=my_env.py:environment", "--engine.name=my_engine.py:Playback", f"--policy={policy}", *SMALL]
    monkeypatch.setattr(sys, "argv", ["sanderling", "train", *flags, "--run", "run"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 2
    assert "sampler and trainer disagree" in capsys.readouterr().err


def test_the_recording_backend_records_and_keeps_the_protocol(written, run, policy, sandboxed):
    parts = ["--engine.name=my_engine.py:Playback", "--sandbox.backend=my_sandbox.py:Recorded"]
    assert _solve_rate(run, policy, *parts) == 1.0
    log = [json.loads(line) for line in (written / "commands.jsonl").read_text("utf-8").splitlines()]
    assert any("from solution import larger" in argument for record in log for argument in record["argv"])
    assert len({record["sandbox"] for record in log}) == 2, "the agent's sandbox and the grading one"


def test_the_recording_backend_conforms(written, sandboxed):
    from sanderling.assemble import load_backend

    report = run_conformance(
        lambda: load_backend("my_sandbox.py:Recorded"), ids=["fork_independent", "submission_takes"]
    )
    report.raise_for_failures()
    assert len(report.of(Outcome.PASSED)) == 2


def test_the_tool_of_the_example_answers(written):
    environment = load_environment("fix_python", harness="my_tools.py:harness")
    assert list(environment.harness.tools) == ["outline", "read_file", "replace", "run_tests", "submit"]
    task = environment.tasks.get(environment.tasks.ids("train")[0])

    async def act(path: str):
        sandbox = await MemoryBackend().create(environment.sandbox_spec(task))
        call = json.dumps({"name": "outline", "arguments": {"path": path}})
        return await environment.harness.start(task, sandbox).act(f"<tool_call>{call}</tool_call>")

    assert asyncio.run(act("solution.py")).text == f"1\t{task.metadata['function']}"
    assert asyncio.run(act("examples.json")).text == "nothing"
    assert asyncio.run(act("gone.py")).text.startswith("error: ")


def test_discounted_credit_by_hand(written):
    group = records.group([1.0, 0.0, None], turns=3)
    estimator = load_estimator("my_credit.py:Discounted", {"gamma": 0.5})
    credit = estimator(group)
    for member, advantage in zip(group.graded(), (0.5, -0.5), strict=True):
        assert credit[member.trajectory.id].tolist() == [advantage / 4, advantage / 2, advantage]
    assert len(credit) == 2
    assert check_credit(estimator) == []


def test_entry_points_of_a_package_are_found(written, run, policy, sandboxed, monkeypatch):
    groups = tomllib.loads(next(block.text for block in PAGE if block.title == "pyproject.toml"))
    groups = groups["project"]["entry-points"]
    lines = []
    for group, names in groups.items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in names.items())]
    folder = written / "larger-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: larger\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("\n".join(lines))
    (written / "my_package.py").write_text(
        f"from pathlib import Path\ndef policy_folder():\n    return Path({str(policy)!r})\n"
    )
    monkeypatch.syspath_prepend(written)
    importlib.invalidate_caches()
    assert type(load_estimator("discounted", {"gamma": 0.5})).__name__ == "Discounted"
    flags = ["--engine.name=playback", "--sandbox.backend=recorded", "--verifier=one-line", "--engine.threads=1"]
    out = run(["eval", "larger-tiny", "--env", "larger", "--n", "1", *flags, "--json"])
    assert json.loads(out.splitlines()[-1])["solve_rate"] == 1.0
    for name in [name for name, module in sys.modules.items() if str(written) in str(getattr(module, "__file__", ""))]:
        monkeypatch.delitem(sys.modules, name)
