"""Checkpoints: a loadable model folder, the optimiser, and where the run stands. Whole or not there at all.

    <run>/checkpoints/000012/
      config.json  model.safetensors  tokenizer.json  ...    a Hugging Face folder of its own
      optimizer.pt                                           `Learner.state()`
      state.json                                             where the run stands; size and SHA-256 of every other file

A checkpoint is written into a hidden folder beside its place, flushed to disk, and renamed. A killed or failed save
leaves the earlier ones as they were.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from sanderling.engine.torch_model import no_progress_bars
from sanderling.errors import CheckpointError
from sanderling.learn.learner import Learner
from sanderling.store.checkpoint_folder import (
    FORMAT,
    HIDDEN,
    Latest,
    RunState,
    Skipped,
    by_step,
    digest,
    find_defect,
    latest,
    state_of,
)

__all__ = ["Latest", "RunState", "Skipped", "find_defect", "latest", "load_checkpoint", "save_checkpoint"]

_MODEL_FILES = ("tokenizer", "special_tokens", "vocab", "merges", "chat_template", "generation_config", "added_tokens")


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
    partial = place.parent / f"{HIDDEN}{place.name}"
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        for left in place.parent.glob(f"{HIDDEN}*"):  # of a save that was killed
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
    state = state_of(folder)
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
    files = {str(f.relative_to(folder)): {"bytes": f.stat().st_size, "sha256": digest(f)} for f in written}
    content = {"format": FORMAT, "run": asdict(state), "files": files}
    (folder / "state.json").write_text(json.dumps(content, indent=1) + "\n", "utf-8")
    _flush([*written, folder / "state.json", folder])


def _put(partial: Path, place: Path) -> None:
    """Rename into place. An older checkpoint of the same step (a resumed run came by again) makes room."""
    if place.exists():
        old = place.parent / f"{HIDDEN}replaced-{place.name}"
        place.rename(old)
        partial.rename(place)
        shutil.rmtree(old)
    else:
        partial.rename(place)
    _flush([place.parent])


def _remove_others(saved: Path, keep: int) -> None:
    found = by_step(saved.parent)
    here = found.index(saved)
    for folder in [*found[: max(0, here + 1 - keep)], *found[here + 1 :]]:
        doomed = (
            saved.parent / f"{HIDDEN}removed-{folder.name}"
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
