"""The `task.toml` of a Harbor task folder, schema versions 1.1 to 1.4.

Known keys are checked, deprecated spellings are turned into today's, and unknown keys are kept: a folder that is read and
written again loses nothing.
"""

from __future__ import annotations

import math
import re
import tomllib
from typing import Any, Literal

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from sanderling.errors import TaskError

SCHEMA_VERSION = "1.4"
READABLE_VERSIONS = ("1.0", "1.1", "1.2", "1.3", "1.4")
_PACKAGE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMG])B?", re.IGNORECASE)
_MB = {"K": 1 / 1024, "M": 1.0, "G": 1024.0}

NetworkMode = Literal["public", "no-network", "allowlist"]
User = str | int | None


class _Table(BaseModel):
    """A table of the file. Keys that are not known are kept and written back."""

    model_config = ConfigDict(extra="allow", frozen=True)


class PhaseTable(_Table):
    """Network rules that a phase may set for itself; None: those of its environment."""

    network_mode: NetworkMode | None = None
    allowed_hosts: list[str] | None = None

    @model_validator(mode="after")
    def _hosts_need_a_list(self) -> PhaseTable:
        if self.allowed_hosts and self.network_mode != "allowlist":
            raise ValueError(f"allowed_hosts = {self.allowed_hosts} needs network_mode = 'allowlist'")
        return self


class Author(_Table):
    name: str
    email: str | None = None


class Package(_Table):
    """The table [task]: the package's name in a registry."""

    name: str
    version: str | None = None
    description: str = ""
    authors: list[Author] = Field(default_factory=list)
    keywords: list[str] = Field(default_factory=list)

    @field_validator("name")
    @classmethod
    def _has_an_organisation(cls, value: str) -> str:
        if not _PACKAGE_NAME.fullmatch(value) or ".." in value:
            raise ValueError("expected <organisation>/<name> of letters, digits, '.', '_' and '-'")
        return value


class Healthcheck(_Table):
    command: str
    interval_sec: float = 5.0
    timeout_sec: float = 30.0
    start_period_sec: float = 0.0
    start_interval_sec: float = 5.0
    retries: int = 3


class McpServer(_Table):
    name: str
    transport: Literal["stdio", "sse", "streamable-http"] = "sse"
    url: str | None = None
    command: str | None = None
    args: list[str] = Field(default_factory=list)
    headers: dict[str, str] = Field(default_factory=dict)

    @field_validator("transport", mode="before")
    @classmethod
    def _former_name(cls, value: Any) -> Any:
        return "streamable-http" if value == "http" else value


class Artifact(_Table):
    """A path of the agent's container that the verifier gets."""

    source: str
    destination: str | None = None
    exclude: list[str] = Field(default_factory=list)
    service: str | None = None


class Environment(PhaseTable):
    """The table [environment]: what the container is made of and what it may use."""

    build_timeout_sec: float = 600.0
    docker_image: str | None = None
    os: Literal["linux", "windows"] = "linux"
    cpus: float | None = None
    memory_mb: int | None = None
    storage_mb: int | None = None
    gpus: int | None = None
    gpu_types: list[str] | None = None
    tpu: dict[str, Any] | None = None
    mcp_servers: list[McpServer] = Field(default_factory=list)
    env: dict[str, str] = Field(default_factory=dict)
    skills_dir: str | None = None
    healthcheck: Healthcheck | None = None
    workdir: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _former_spellings(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        data = dict(data)
        for former, key in (("memory", "memory_mb"), ("storage", "storage_mb")):
            if former in data:
                value = data.pop(former)
                data.setdefault(key, _megabytes(value))
        if (allowed := data.pop("allow_internet", None)) is not None and not data.get("allowed_hosts"):
            data.setdefault("network_mode", "public" if allowed else "no-network")
        if isinstance(data.get("os"), str):
            data["os"] = data["os"].lower()
        return data

    @field_validator("cpus")
    @classmethod
    def _finite(cls, value: float | None) -> float | None:
        if value is not None and not (math.isfinite(value) and value > 0):
            raise ValueError("expected a positive number")
        return value

    @property
    def network(self) -> NetworkMode:
        return self.network_mode or "public"


class Agent(PhaseTable):
    timeout_sec: float | None = None
    user: User = None


class Collect(_Table):
    """A command that runs after the agent, to turn its state into files."""

    command: str
    service: str = "main"
    timeout_sec: float = 60.0
    user: User = None


class Verifier(PhaseTable):
    timeout_sec: float = 600.0
    env: dict[str, str] = Field(default_factory=dict)
    user: User = None
    environment_mode: Literal["shared", "separate"] | None = None
    environment: Environment | None = None
    collect: list[Collect] = Field(default_factory=list)

    @model_validator(mode="after")
    def _shared_has_no_environment(self) -> Verifier:
        if self.environment_mode == "shared" and self.environment is not None:
            raise ValueError("environment_mode = 'shared' contradicts the table [verifier.environment]")
        return self

    @property
    def mode(self) -> Literal["shared", "separate"]:
        return self.environment_mode or ("shared" if self.environment is None else "separate")


class Solution(_Table):
    env: dict[str, str] = Field(default_factory=dict)


class Step(_Table):
    name: str
    agent: Agent = Agent()
    verifier: Verifier = Verifier()
    min_reward: float | dict[str, float] | None = None
    healthcheck: Healthcheck | None = None
    artifacts: list[str | Artifact] = Field(default_factory=list)


class HarborConfig(_Table):
    """A whole `task.toml`."""

    schema_version: str = SCHEMA_VERSION
    source: str | None = None
    multi_step_reward_strategy: Literal["mean", "final"] | None = None
    artifacts: list[str | Artifact] = Field(default_factory=list)
    task: Package | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    agent: Agent = Agent()
    verifier: Verifier = Verifier()
    environment: Environment = Environment()
    solution: Solution = Solution()
    steps: list[Step] = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _former_version_key(cls, data: Any) -> Any:
        if isinstance(data, dict) and "version" in data:
            data = dict(data)
            data.setdefault("schema_version", data.pop("version"))
        return data

    @field_validator("schema_version", mode="before")
    @classmethod
    def _readable(cls, value: Any) -> Any:
        if str(value) not in READABLE_VERSIONS:
            raise ValueError(f"this reader knows {', '.join(READABLE_VERSIONS)}")
        return str(value)

    def artifact_list(self) -> list[Artifact]:
        """Return the artifacts, those that are given as a path alone too."""
        return [Artifact(source=item) if isinstance(item, str) else item for item in self.artifacts]


def _megabytes(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        raise ValueError(f"size {value!r}: expected a number with K, M or G, such as '2G'")
    return int(float(match[1]) * _MB[match[2].upper()])


def parse_config(text: str, where: str) -> HarborConfig:
    """Return the configuration in the text of a `task.toml`.

    Args:
        text: the file's content.
        where: the file's name, for messages.

    Raises:
        TaskError: no TOML, a value of the wrong type or out of range, or an unknown schema version; all of them in one message.
    """
    try:
        return HarborConfig.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise TaskError(f"{where} is not TOML: {error}") from error
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, detail['loc'])) or 'the file'} = {str(detail['input'])[:60]!r}: "
            + detail["msg"].removeprefix("Value error, ")
            for detail in error.errors()
        ]
        raise TaskError(f"{where}: " + "; ".join(problems)) from None


def config_text(config: HarborConfig) -> str:
    """Return the text of a `task.toml`: what was set, unknown keys too, under today's names."""
    data = config.model_dump(mode="json", exclude_none=True, exclude_unset=True)
    return tomli_w.dumps({"schema_version": config.schema_version, **data})
