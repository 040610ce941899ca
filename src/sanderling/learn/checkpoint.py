"""Checkpoints: a loadable model folder, the optimiser, and where the run stands. Whole or not there at all.

    <run>/checkpoints/000012/
      config.json  model.safetensors  tokenizer.json  ...    a Hugging Face folder of its own
      optimizer.pt                                           `Learner.state()`
      state.json                                             where the run stands; size and SHA-256 of every other file

A checkpoint is written into a hidden folder beside its place, flushed to disk, and renamed. A killed or failed save
leaves the earlier ones as they were.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from sanderling.engine.torch_model import no_progress_bars
from sanderling.errors import CheckpointError
from sanderling.learn.learner import Learner
from sanderling.types import JsonValue

FORMAT = 1
_HIDDEN = ".partial-"
_MODEL_FILES = ("tokenizer", "special_tokens", "vocab", "merges", "chat_template", "generation_config", "added_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """Where a run stands after a step."""

    step: int
    policy_version: int
    config_hash: str  # of the settings that a resumed run has to share
    data_position: JsonValue = None  # whatever the scheduler needs to neither lose nor repeat a task
    screening: JsonValue = None  # counts of `screening.watch.Watch`


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A checkpoint that can't be used, and why."""

    folder: Path
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Latest:
    """The newest usable checkpoint (None: there is none) and the newer ones that were passed over."""

    folder: Path | None
    skipped: tuple[Skipped, ...]


def save_checkpoint(run: Path, learner: Learner, state: RunState, *, model_folder: Path | None, keep: int = 2) -> Path:
    """Write `<run>/checkpoints/<step>` and remove all but the newest `keep` checkpoints.

    Checkpoints of later steps go as well: they belong to a course that was given up when the run went on from an earlier
    step, and `latest` must not find them.

    Args:
        run: the run folder.
        learner: of the policy; its model folder is the checkpoint's.
        state: where the run stands.
        model_folder: the folder from which the policy was loaded; its tokenizer files are copied. None: no tokenizer.
        keep: at least 1.

    Returns:
        The folder of the new checkpoint.

    Raises:
        CheckpointError: it can't be written, such as on a full disk. The earlier checkpoints are untouched.
    """
    if keep < 1:
        raise CheckpointError(f"keep={keep} would remove the checkpoint just written; expected at least 1")
    place = run / "checkpoints" / f"{state.step:06d}"
    partial = place.parent / f"{_HIDDEN}{place.name}"
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        for left in place.parent.glob(f"{_HIDDEN}*"):  # of a save that was killed
            shutil.rmtree(left)
        partial.mkdir()
        _write(partial, learner, state, model_folder)
        _put(partial, place)
    except (OSError, RuntimeError, SafetensorError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        free = shutil.disk_usage(run).free // 2**20 if run.exists() else 0
        raise CheckpointError(
            f"checkpoint {place} can't be written ({free} MiB free): {error}; earlier checkpoints are untouched. "
            "Make room or lower the number of checkpoints kept"
        ) from error
    _remove_others(place, keep)
    return place


def load_checkpoint(folder: Path, learner: Learner, config_hash: str | None = None) -> RunState:
    """Put a checkpoint's weights, optimiser and random state into `learner` and return where the run stood.

    Args:
        folder: as `latest` found it.
        learner: of a model of the same shape.
        config_hash: refuse a checkpoint of other settings; None: take any.

    Raises:
        CheckpointError: damaged, incomplete, of other settings, or of another model.
    """
    if (defect := find_defect(folder)) is not None:
        raise CheckpointError(f"checkpoint {folder} can't be used: {defect}")
    state = RunState(**json.loads((folder / "state.json").read_text("utf-8"))["run"])
    if config_hash is not None and state.config_hash != config_hash:
        raise CheckpointError(
            f"checkpoint {folder} belongs to a run with config hash {state.config_hash}, this one has {config_hash}; "
            "resume with the settings in the run folder's config.toml or start a new run"
        )
    saved = torch.load(folder / "optimizer.pt", map_location="cpu", weights_only=True)
    weights = {}
    for file in sorted(folder.glob("*.safetensors")):
        weights |= load_file(file)
    learner.load_state(saved, weights)
    return state


def latest(run: Path) -> Latest:
    """Find the newest checkpoint that is whole. Every one that is passed over is named with its reason."""
    skipped = []
    for folder in reversed(_by_step(run / "checkpoints")):
        defect = find_defect(folder)
        if defect is None:
            return Latest(folder=folder, skipped=tuple(skipped))
        skipped.append(Skipped(folder=folder, reason=defect))
    return Latest(folder=None, skipped=tuple(skipped))


def find_defect(folder: Path) -> str | None:
    """Return why a checkpoint can't be used, or None when every file is there with the size and digest it was saved
    with."""
    try:
        state = json.loads((folder / "state.json").read_text("utf-8"))
        files, saved_format = state["files"], state["format"]
        RunState(**state["run"])
    except FileNotFoundError:
        return "no state.json: the checkpoint is incomplete"
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return f"state.json is damaged: {error!r}"
    if saved_format != FORMAT:
        return f"its format is {saved_format}, this version reads {FORMAT}"
    for name, expected in files.items():
        file = folder / name
        if not file.is_file():
            return f"{name} is missing"
        if file.stat().st_size != expected["bytes"]:
            return f"{name} has {file.stat().st_size} bytes, it was saved with {expected['bytes']}"
        if _digest(file) != expected["sha256"]:
            return f"{name} was changed after it was saved: its SHA-256 differs"
    return None


def _write(folder: Path, learner: Learner, state: RunState, model_folder: Path | None) -> None:
    with no_progress_bars():
        learner.save_model(folder)
    if model_folder is not None:
        for file in sorted(model_folder.iterdir()):
            if file.is_file() and file.name.startswith(_MODEL_FILES) and not (folder / file.name).exists():
                shutil.copyfile(file, folder / file.name)
    with (folder / "optimizer.pt").open("wb") as stream:
        torch.save(learner.state(), stream)
    written = sorted(f for f in folder.rglob("*") if f.is_file())
    files = {str(f.relative_to(folder)): {"bytes": f.stat().st_size, "sha256": _digest(f)} for f in written}
    content = {"format": FORMAT, "run": asdict(state), "files": files}
    (folder / "state.json").write_text(json.dumps(content, indent=1) + "\n", "utf-8")
    _flush([*written, folder / "state.json", folder])


def _put(partial: Path, place: Path) -> None:
    """Rename into place. An older checkpoint of the same step (a resumed run came by again) makes room."""
    if place.exists():
        old = place.parent / f"{_HIDDEN}replaced-{place.name}"
        place.rename(old)
        partial.rename(place)
        shutil.rmtree(old)
    else:
        partial.rename(place)
    _flush([place.parent])


def _by_step(parent: Path) -> list[Path]:
    found = [folder for folder in parent.iterdir() if folder.name.isdigit()] if parent.is_dir() else []
    return sorted(found, key=lambda folder: int(folder.name))


def _remove_others(saved: Path, keep: int) -> None:
    found = _by_step(saved.parent)
    here = found.index(saved)
    for folder in [*found[: max(0, here + 1 - keep)], *found[here + 1 :]]:
        doomed = (
            saved.parent / f"{_HIDDEN}removed-{folder.name}"
        )  # renamed first: a kill leaves no half checkpoint behind
        folder.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)


def _flush(paths: Sequence[Path]) -> None:
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
