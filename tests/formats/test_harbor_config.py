"""task.toml: known keys are checked, old spellings accepted, unknown keys kept."""

from __future__ import annotations

import tomllib

import pytest

from sanderling.errors import TaskError
from sanderling.tasks.formats.harbor_config import config_text, parse_config

FULL = """
schema_version = "1.3"
source = "somewhere"
artifacts = ["/app/out", { source = "/app/b", exclude = ["*.pyc"] }]
future_key = { a = [1, 2] }

[task]
name = "org/name"
authors = [{ name = "A" }]

[metadata]
difficulty = "easy"

[agent]
timeout_sec = 60.0

[verifier]
environment_mode = "separate"
network_mode = "no-network"
also_future = 3
[verifier.env]
KEY = "${KEY:-none}"
[[verifier.collect]]
command = "git diff"

[environment]
memory_mb = 2048
network_mode = "allowlist"
allowed_hosts = ["example.org"]
cpus = 1.5
[environment.healthcheck]
command = "true"

[[steps]]
name = "one"
min_reward = { reward = 0.5 }
"""


def test_every_key_survives_reading_and_writing():
    config = parse_config(FULL, "task.toml")
    assert config.verifier.mode == "separate"
    assert config.environment.network == "allowlist"
    assert [item.source for item in config.artifact_list()] == ["/app/out", "/app/b"]
    assert tomllib.loads(config_text(config)) == tomllib.loads(FULL)


def test_an_empty_file_has_the_defaults():
    config = parse_config("", "task.toml")
    assert config.schema_version == "1.4"
    assert (config.verifier.mode, config.environment.network) == ("shared", "public")


@pytest.mark.parametrize(
    ("text", "section", "key", "value"),
    [
        ('version = "1.1"', None, "schema_version", "1.1"),
        ('[environment]\nmemory = "2G"', "environment", "memory_mb", 2048),
        ('[environment]\nstorage = "512M"', "environment", "storage_mb", 512),
        ('[environment]\nmemory = "2G"\nmemory_mb = 7', "environment", "memory_mb", 7),
        ("[environment]\nallow_internet = false", "environment", "network_mode", "no-network"),
        ("[environment]\nallow_internet = true", "environment", "network_mode", "public"),
        (
            '[environment]\nallow_internet = true\nnetwork_mode = "no-network"',
            "environment",
            "network_mode",
            "no-network",
        ),
        ('[environment]\nos = "Linux"', "environment", "os", "linux"),
    ],
)
def test_old_spellings_become_todays(text, section, key, value):
    config = parse_config(text, "task.toml")
    table = config if section is None else getattr(config, section)
    assert getattr(table, key) == value
    written = tomllib.loads(config_text(config))
    assert (written if section is None else written[section])[key] == value
    assert not {"version", "memory", "storage", "allow_internet"} & {*written, *written.get("environment", {})}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("schema_version = '9.9'", "schema_version = '9.9'"),
        ("[verifier]\ntimeout_sec = 'soon'", "verifier.timeout_sec = 'soon'"),
        ("[environment]\nmemory = 'lots'", "expected a number with K, M or G"),
        ("[environment]\nallowed_hosts = ['a.b']", "needs network_mode = 'allowlist'"),
        ("[task]\nname = 'nameless'", "<organisation>/<name>"),
        ("[verifier]\nenvironment_mode = 'shared'\n[verifier.environment]\ncpus = 1", "contradicts"),
        ("[environment]\ncpus = -1", "positive"),
        ("[[steps]]\nagent = {}", "steps.0.name"),
        ("= 3", "is not TOML"),
    ],
)
def test_what_is_wrong_is_said_with_its_value(text, message):
    with pytest.raises(TaskError, match=r"^here/task\.toml") as caught:
        parse_config(text, "here/task.toml")
    assert message in str(caught.value)
