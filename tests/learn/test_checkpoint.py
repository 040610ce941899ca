"""Checkpoints: exact resume, loadable folders, and nothing half-written is ever taken for whole."""

import json
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import time

import numpy as np
import pytest
import torch
from learning_task import rows_of, sample_group
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from sanderling.credit import Grpo
from sanderling.engine.torch_model import Attention, ModelDtype, load_model
from sanderling.errors import CheckpointError, ModelError
from sanderling.harness.tokenizer import FastTokenizer
from sanderling.learn.checkpoint import RunState, find_defect, latest, load_checkpoint, save_checkpoint
from sanderling.learn.config import LearnerConfig, OptimizerConfig
from sanderling.learn.learner import Learner
from sanderling.testing.models import tiny_llama


def learner_of(seed=1, width=32):
    config = LearnerConfig(optimizer=OptimizerConfig(learning_rate=1e-3, warmup_updates=4), minibatches_per_step=2)
    return Learner(tiny_llama(seed=seed, width=width), config)


def state_of(step, learner, **more):
    return RunState(step=step, policy_version=learner.policy_version, config_hash="c0ffee", **more)


def names(run):
    return sorted(f.name for f in (run / "checkpoints").iterdir())


def train(learner, steps, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        learner.step(rows_of([sample_group(learner.model, "g", generator=generator)], Grpo()))


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    tiny_llama().save_pretrained(folder)
    tokenizer = Tokenizer(WordLevel({"a": 0, "b": 1, "<|end|>": 2}, unk_token="a"))
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>"}), "utf-8")
    return folder


def test_a_resumed_run_goes_on_exactly(tmp_path, model_folder):
    first = learner_of()
    train(first, 3)
    position = {"next": 17, "running": ["t1", "t2"]}
    folder = save_checkpoint(tmp_path, first, state_of(3, first, data_position=position), model_folder=model_folder)
    assert folder == tmp_path / "checkpoints" / "000003" == latest(tmp_path).folder
    drawn = torch.rand(3)
    train(first, 2, seed=9)
    second = learner_of(seed=2)
    state = load_checkpoint(folder, second, "c0ffee")
    assert state == RunState(step=3, policy_version=6, config_hash="c0ffee", data_position=position)
    assert torch.equal(torch.rand(3), drawn)  # torch's random state is restored
    train(second, 2, seed=9)
    assert second.policy_version == first.policy_version == 10
    assert all(torch.equal(t, second.weights()[name]) for name, t in first.weights().items())


def test_a_checkpoint_is_a_model_folder(tmp_path, model_folder):
    learner = learner_of()
    train(learner, 1)
    folder = save_checkpoint(tmp_path, learner, state_of(1, learner), model_folder=model_folder)
    loaded = load_model(folder)
    ids = torch.arange(10)[None]
    assert torch.equal(loaded(input_ids=ids).logits, learner.model(input_ids=ids).logits)
    assert loaded.config._attn_implementation == "sdpa"
    assert (
        load_model(folder, dtype=ModelDtype.FLOAT32, attention=Attention.EAGER).config._attn_implementation == "eager"
    )
    assert FastTokenizer(folder).eos_id == 2


def test_only_the_newest_are_kept(tmp_path):
    learner = learner_of()
    for step in range(1, 6):
        save_checkpoint(tmp_path, learner, state_of(step, learner), model_folder=None, keep=2)
    assert names(tmp_path) == ["000004", "000005"]
    with pytest.raises(CheckpointError, match="keep=0"):
        save_checkpoint(tmp_path, learner, state_of(6, learner), model_folder=None, keep=0)


def test_going_on_from_an_earlier_step_removes_the_later_ones(tmp_path):
    learner = learner_of()
    for step in (10, 20, 30, 15):
        save_checkpoint(tmp_path, learner, state_of(step, learner), model_folder=None, keep=3)
    assert names(tmp_path) == ["000010", "000015"] and latest(tmp_path).folder.name == "000015"


def test_saving_and_loading_print_nothing(tmp_path, model_folder, capfd):
    learner = learner_of()
    load_model(save_checkpoint(tmp_path, learner, state_of(1, learner), model_folder=model_folder))
    assert capfd.readouterr() == ("", "")


def test_the_same_step_again_replaces_it(tmp_path):
    learner = learner_of()
    save_checkpoint(tmp_path, learner, state_of(1, learner), model_folder=None)
    train(learner, 1)
    folder = save_checkpoint(tmp_path, learner, state_of(1, learner), model_folder=None)
    assert find_defect(folder) is None and load_checkpoint(folder, learner_of()).policy_version == 2
    assert names(tmp_path) == ["000001"]


def cut(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def flip(folder):
    content = bytearray((folder / "optimizer.pt").read_bytes())
    content[len(content) // 2] ^= 1
    (folder / "optimizer.pt").write_bytes(content)


def newer_format(folder):
    content = json.loads((folder / "state.json").read_text("utf-8"))
    (folder / "state.json").write_text(json.dumps(content | {"format": 99}), "utf-8")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (cut, "model.safetensors has .* bytes, it was saved with"),
        (flip, "optimizer.pt was changed after it was saved"),
        (lambda f: (f / "config.json").unlink(), "config.json is missing"),
        (lambda f: (f / "state.json").unlink(), "no state.json"),
        (lambda f: (f / "state.json").write_text("{", "utf-8"), "state.json is damaged"),
        (lambda f: (f / "state.json").write_text("[]", "utf-8"), "state.json is damaged"),
        (newer_format, "its format is 99"),
    ],
)
def test_damaged_checkpoints_are_passed_over_with_a_reason(tmp_path, damage, reason):
    learner = learner_of()
    for step in (1, 2):
        save_checkpoint(tmp_path, learner, state_of(step, learner), model_folder=None)
    damage(tmp_path / "checkpoints" / "000002")
    found = latest(tmp_path)
    assert found.folder == tmp_path / "checkpoints" / "000001"
    (skipped,) = found.skipped
    assert skipped.folder.name == "000002"
    with pytest.raises(CheckpointError, match=f"000002 can't be used: {reason}"):
        load_checkpoint(skipped.folder, learner)


def test_no_checkpoint_at_all(tmp_path):
    assert latest(tmp_path).folder is None and latest(tmp_path).skipped == ()


def test_checkpoints_of_other_runs_and_models_are_refused(tmp_path):
    learner = learner_of()
    folder = save_checkpoint(tmp_path, learner, state_of(1, learner), model_folder=None)
    with pytest.raises(CheckpointError, match="config hash c0ffee, this one has beef"):
        load_checkpoint(folder, learner_of(), "beef")
    with pytest.raises(CheckpointError, match="doesn't fit this model"):
        load_checkpoint(folder, learner_of(width=16), "c0ffee")


def test_model_folders_that_cannot_be_loaded(tmp_path, model_folder):
    with pytest.raises(ModelError, match=r"no config\.json"):
        load_model(tmp_path)
    shutil.copyfile(model_folder / "config.json", tmp_path / "config.json")
    with pytest.raises(ModelError, match="no weights in"):
        load_model(tmp_path)


def save_for_ever(run):
    learner, found = learner_of(), latest(run).folder
    step = int(found.name) if found else 0
    while True:
        step += 1
        save_checkpoint(run, learner, state_of(step, learner), model_folder=None, keep=2)


def test_a_killed_save_leaves_whole_checkpoints_only(tmp_path):
    """Kill a process that saves without a pause, at several moments; what `latest` finds is whole and never goes back."""
    seen, halves = 0, 0
    for delay in (0.0, 0.004, 0.011, 0.019, 0.03, 0.007, 0.001, 0.015):
        child = multiprocessing.get_context("fork").Process(target=save_for_ever, args=(tmp_path,))
        child.start()
        deadline = time.monotonic() + 60
        while not (tmp_path / "checkpoints" / f"{seen + 1:06d}").exists() and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(delay)
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        halves += any(name.startswith(".") for name in names(tmp_path))
        found = latest(tmp_path)
        assert found.folder is not None and found.skipped == ()
        step = load_checkpoint(found.folder, learner_of()).step
        assert step > seen
        seen = step
    assert halves  # some kill did hit a save
    learner = learner_of()
    save_checkpoint(tmp_path, learner, state_of(seen + 1, learner), model_folder=None, keep=1)
    assert names(tmp_path) == [f"{seen + 1:06d}"]  # nothing is left of the killed saves


def save_with_small_files(run, pipe):
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
    learner = learner_of()
    try:
        save_checkpoint(run, learner, state_of(2, learner), model_folder=None)
    except Exception as error:
        pipe.send((type(error).__name__, str(error)))


def test_a_failed_write_is_an_error_and_leaves_the_earlier_one(tmp_path):
    learner = learner_of()
    before = save_checkpoint(tmp_path, learner, state_of(1, learner), model_folder=None)
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=save_with_small_files, args=(tmp_path, theirs))
    child.start()
    assert ours.poll(60)
    name, message = ours.recv()
    child.join()
    assert name == "CheckpointError" and "000002 can't be written" in message and "earlier checkpoints" in message
    assert names(tmp_path) == ["000001"] and latest(tmp_path).folder == before


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"mounting a tmpfs failed: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small disk")
def test_a_full_disk_is_an_error_and_leaves_the_earlier_one(small_disk):
    learner = learner_of()
    before = save_checkpoint(small_disk, learner, state_of(1, learner), model_folder=None)
    train(learner, 1)  # now there is optimiser state as well, and both don't fit
    with pytest.raises(CheckpointError, match=r"can't be written \(0 MiB free\).*earlier checkpoints are untouched"):
        save_checkpoint(small_disk, learner, state_of(2, learner), model_folder=None)
    assert names(small_disk) == ["000001"] and latest(small_disk).folder == before
    assert load_checkpoint(before, learner_of()).step == 1
    assert np.isfinite(learner.step([]).metrics["learning_rate"])
