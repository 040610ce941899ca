from __future__ import annotations

from pathlib import Path

import pytest
from letter_runs import LETTERS

from sanderling.config import Config, load_config
from sanderling.testing.tiny_model import tiny_llama_folder


@pytest.fixture(scope="session")
def tiny_policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama_folder(tmp_path_factory.mktemp("policy") / "tiny")


@pytest.fixture
def letters(tiny_policy: Path):
    """Return a function that makes a configuration of the letter environment."""

    def make(**changes: object) -> Config:
        overrides = {key.replace("__", "."): value for key, value in changes.items()}
        return load_config([], {**LETTERS, "policy": str(tiny_policy), **overrides})

    return make
