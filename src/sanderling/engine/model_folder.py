"""From the name of a policy to a model folder, and what can be checked about a folder without loading it."""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from sanderling.errors import ModelError, PluginError

POLICY_GROUP = "sanderling.policies"
"""Entry points of this group lead to a callable without arguments that returns the path of a model folder."""

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
HUB_FILES = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]
"""What of a model on the hub is downloaded: weights, config and tokenizer, no code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFolder:
    """What is known of a model folder before any weight is loaded."""

    path: Path
    architecture: str
    vocab_size: int | None  # rows of the embedding by the config
    tokenizer_size: int | None  # highest token id + 1, None where the folder has no tokenizer.json


def resolve_policy(name: str, *, local_files_only: bool = False) -> Path:
    """Return the model folder that `name` stands for.

    Tried in this order: a registered policy (entry point group `sanderling.policies`), a local folder, an id
    "owner/model" of the Hugging Face hub, which is downloaded once (or only looked up, with `local_files_only`).

    Raises:
        PluginError: a registered policy doesn't return a path.
        ModelError: nothing of that name exists.
    """
    registered = {entry.name: entry for entry in entry_points(group=POLICY_GROUP)}
    if name in registered:
        return _registered(name, registered[name])
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    if not is_hub_id(name):
        close = difflib.get_close_matches(name, registered, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        raise ModelError(
            f"no model folder {name!r} and no policy of that name{hint} Registered policies: "
            f"{', '.join(sorted(registered)) or 'none'}. Expected one of these, a folder, or a hub id owner/model"
        )
    return _download(name, local_files_only)


def is_hub_id(name: str) -> bool:
    """Return whether `name` has the form "owner/model"."""
    return _HUB_ID.fullmatch(name) is not None


def _registered(name: str, entry: Any) -> Path:
    try:
        path = entry.load()()
    except Exception as error:
        raise PluginError(f"policy {name!r} ({entry.value}) can't be made: {type(error).__name__}: {error}") from error
    if not isinstance(path, Path):
        raise PluginError(f"policy {name!r} ({entry.value}) returned {path!r}; expected the Path of a model folder")
    return path


def _download(name: str, local_files_only: bool) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=HUB_FILES, local_files_only=local_files_only))
    except Exception as error:  # network, authorisation, unknown id: all of them leave us without a model
        first_line = str(error).strip().splitlines()[0]
        raise ModelError(
            f"{name!r} is no local folder, and the hub gave no model of that id: {type(error).__name__}: {first_line} "
            "Download it where there is a network and pass the folder"
        ) from error


def inspect_folder(folder: Path, *, need_tokenizer: bool = True) -> ModelFolder:
    """Check that a folder holds a config, whole weight files and a tokenizer that fits.

    Raises:
        ModelError: says which part is missing or broken.
    """
    if not folder.is_dir():
        raise ModelError(f"no model folder {folder}; expected a folder with config.json, weights and tokenizer.json")
    config = _read_json(folder / "config.json")
    for file in _weight_files(folder):
        _check_safetensors(file)
    vocab = config.get("vocab_size", (config.get("text_config") or {}).get("vocab_size"))
    tokenizer_size = _tokenizer_size(folder, need_tokenizer)
    if vocab is not None and tokenizer_size is not None and vocab < tokenizer_size:
        raise ModelError(
            f"{folder}: the config says a vocabulary of {vocab} tokens but tokenizer.json has {tokenizer_size}; "
            "the tokenizer belongs to another model"
        )
    return ModelFolder(
        path=folder,
        architecture=(config.get("architectures") or ["unknown"])[0],
        vocab_size=vocab,
        tokenizer_size=tokenizer_size,
    )


def _read_json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise ModelError(
            f"no {file.name} in {file.parent}; a model folder needs config.json, weights and tokenizer.json"
        )
    try:
        content = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise ModelError(f"{file} is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{file} holds a {type(content).__name__}; expected a JSON object")
    return content


def _weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files of a folder; none where it only has the older pickled weights."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        names = sorted(set(_read_json(index).get("weight_map", {}).values()))
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            raise ModelError(f"{index} names {len(names)} weight files, of which {', '.join(missing)} are missing")
        return [folder / name for name in names]
    files = sorted(folder.glob("*.safetensors"))
    if not files and not list(folder.glob("pytorch_model*.bin")):
        raise ModelError(f"no weights in {folder}; expected model.safetensors (or shards with an index)")
    return files


def _check_safetensors(file: Path) -> None:
    """Read the header, which also says how long the file must be."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="np") as weights:
            weights.keys()
    except (SafetensorError, OSError) as error:
        size = file.stat().st_size if file.is_file() else 0
        raise ModelError(f"{file} ({size} bytes) is cut off or no safetensors file: {error}; copy it again") from error


def _tokenizer_size(folder: Path, needed: bool) -> int | None:
    file = folder / "tokenizer.json"
    if not file.is_file():
        if needed:
            raise ModelError(f"no tokenizer.json in {folder}; save the tokenizer beside the model")
        return None
    from tokenizers import Tokenizer as RustTokenizer

    try:
        vocabulary = RustTokenizer.from_file(str(file)).get_vocab(with_added_tokens=True)
    except Exception as error:  # the Rust side raises a bare Exception
        raise ModelError(f"{file} is not a readable tokenizer: {error}") from error
    return max(vocabulary.values(), default=-1) + 1
