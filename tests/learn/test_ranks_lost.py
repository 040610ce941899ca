"""A worker that dies, stops or can't start ends the step with its name; a controller that is killed leaves none behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from flat_problem import rows_with_shared_prompts
from rank_problem import learner_of, weights_of

from sanderling.batch.micro import micro_batches
from sanderling.engine.torch_model import ModelDtype
from sanderling.errors import LearnerError
from sanderling.learn.config import LearnerConfig
from sanderling.learn.gradients import Gradients
from sanderling.learn.rank_messages import ModelSource, RankLimits
from sanderling.learn.rank_process import GONE_S
from sanderling.learn.ranks import Ranks
from sanderling.testing.tiny_model import tiny_llama_folder

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_llama_folder(tmp_path_factory.mktemp("policy") / "tiny")


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"  # an orphan that nobody has waited for yet runs no more


def gone_within(pids, seconds) -> bool:
    deadline = time.monotonic() + seconds
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(map(alive, pids))


def test_a_killed_worker_is_named_with_its_exit_code(folder):
    learner = learner_of(folder, 3)
    rows = rows_with_shared_prompts()
    learner.step(rows)
    before, pids = weights_of(learner), learner._passes.worker_pids
    os.kill(pids[1], signal.SIGKILL)
    began = time.monotonic()
    with pytest.raises(LearnerError, match=r"rank 2 .* ended with exit code -9 \(SIGKILL\); no update was made"):
        learner.step(rows)
    assert time.monotonic() - began < 60.0  # of a busy machine; the limit of an answer is twice as long
    assert torch.equal(weights_of(learner), before) and learner.policy_version == 1
    assert gone_within(pids, 1.0)  # the other one, too
    with pytest.raises(LearnerError, match="have ended"):
        learner.step(rows)
    learner.close()


def test_killed_in_the_middle_of_whatever_it_does(folder):
    rows = rows_with_shared_prompts(groups=6)
    for delay in (0.05, 0.2):
        learner = learner_of(folder, 2)
        pids = learner._passes.worker_pids
        timer = threading.Timer(delay, os.kill, (pids[0], signal.SIGKILL))
        timer.start()
        began = time.monotonic()
        with pytest.raises(LearnerError, match=r"rank 1 .* ended with exit code -9"):
            while time.monotonic() - began < 60.0:
                learner.step(rows)
        assert time.monotonic() - began < 60.0
        learner.close()


def test_a_stopped_worker_is_named_within_the_limit(folder):
    own = Gradients(ModelSource(folder=folder, dtype=ModelDtype.FLOAT32).load(), LearnerConfig(processes=2, threads=2))
    ranks = Ranks(own, ModelSource(folder=folder, dtype=ModelDtype.FLOAT32), RankLimits(answer_s=2.0))
    pids, micros = ranks.worker_pids, micro_batches(rows_with_shared_prompts(), 256)
    assert len(ranks.logprobs(micros)) == len(micros)
    os.kill(pids[0], signal.SIGSTOP)
    began = time.monotonic()
    with pytest.raises(LearnerError, match=r"rank 1 .* gives no answer and did not end; no update was made"):
        ranks.logprobs(micros)
    assert (
        time.monotonic() - began < 2.0 + 2 * GONE_S + 30.0
    )  # the limit, twice the time to end by itself, a busy machine
    assert gone_within(pids, 1.0)


def test_a_worker_that_can_not_load_the_model_says_why(folder, tmp_path):
    own = Gradients(ModelSource(folder=folder).load(), LearnerConfig(processes=2, threads=2))
    with pytest.raises(LearnerError, match=r"rank 1 of the learner failed: ModelError: .*nowhere"):
        Ranks(own, ModelSource(folder=tmp_path / "nowhere"))


CONTROLLER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from flat_problem import rows_with_shared_prompts
from rank_problem import learner_of
learner = learner_of(Path(sys.argv[1]), 3)
print(*learner._passes.worker_pids, flush=True)
rows = rows_with_shared_prompts()
while True:
    learner.step(rows)
"""


def test_a_killed_controller_leaves_no_process_and_no_folder(folder, tmp_path):
    arguments = [sys.executable, "-c", CONTROLLER, str(folder), str(Path(__file__).parent)]
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, text=True, env=os.environ | {"TMPDIR": str(tmp_path)}
    ) as controller:
        assert controller.stdout is not None
        pids = [int(word) for word in controller.stdout.readline().split()]
        assert len(pids) == 2 and all(map(alive, pids))
        time.sleep(0.5)  # somewhere in its updates
        controller.kill()
    assert gone_within(pids, 5.0)
    assert list(tmp_path.iterdir()) == []


def test_a_controller_that_is_killed_while_its_workers_start_leaves_none(folder, tmp_path):
    arguments = [sys.executable, "-c", CONTROLLER, str(folder), str(Path(__file__).parent)]
    with subprocess.Popen(arguments, env=os.environ | {"TMPDIR": str(tmp_path)}) as controller:
        deadline = time.monotonic() + 60.0
        while len(pids := workers_in(tmp_path)) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        controller.kill()
    assert len(pids) == 2 and gone_within(pids, 30.0)
    assert list(tmp_path.iterdir()) == []


def workers_in(place: Path) -> list[int]:
    """Return the processes of workers whose meeting folder lies in `place`."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"sanderling.learn.worker" in words and any(w.startswith(bytes(place)) for w in words):
                found.append(int(process.name))
    return found
