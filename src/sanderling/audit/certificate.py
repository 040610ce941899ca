"""The certificate of an audit: what was examined, its digests, what came of every check, and how to see it again."""

from __future__ import annotations

import hashlib
import json
import platform
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sanderling import __version__
from sanderling.audit.admission import Admission, Scope, Verdict
from sanderling.audit.findings import CheckResult
from sanderling.audit.fingerprints import Fingerprint, fingerprint
from sanderling.audit.summary import flake
from sanderling.environment import Environment
from sanderling.errors import CertificateError
from sanderling.sandbox.protocol import Capabilities
from sanderling.types import JsonValue

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """How an environment is named on the command line, for the commands that repeat a number."""

    name: str
    settings: Mapping[str, JsonValue]
    backend: str = "bubblewrap"

    def command(self, *options: str) -> str:
        """Return a command that audits it again."""
        given = [f"--environment_settings.{key}={value}" for key, value in self.settings.items()]
        backend = [] if self.backend == "bubblewrap" else [f"--backend={self.backend}"]
        return shlex.join(["sanderling", "audit", self.name, *options, *backend, *given])


def certificate(
    environment: Environment, admission: Admission, scope: Scope, named: Named, capabilities: Capabilities
) -> dict[str, JsonValue]:
    """Return the certificate as it is written; its `digest` is over everything else in it."""
    runs, flips, bound = flake(admission.results)
    record: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "verdict": admission.verdict.value,
        "reasons": admission.reasons(),
        "environment": {"name": environment.name, "version": environment.version, "named": named.name},
        "hashes": fingerprint(environment).as_json(),
        "made": {
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "sanderling": __version__,
            "python": platform.python_version(),
            "backend": capabilities.name,
            "isolation": capabilities.isolation,
            "seed": scope.seed,
            "depth": asdict(scope.depth),
            "seconds": round(admission.seconds, 1),
            "replay": named.command(f"--tasks={len(admission.tasks)}", f"--seed={scope.seed}"),
        },
        "tasks": {
            "examined": [verdict.task for verdict in admission.tasks],
            "quarantined": {verdict.task: list(verdict.defects) for verdict in admission.tasks if verdict.defects},
        },
        "rates": admission.judged.as_json(),
        "flake": {"runs": runs, "flips": flips, "bound": round(bound, 6)},
        "checks": [{**result.as_json(), "replay": _replay(named, scope, result)} for result in admission.results],
    }
    return {**record, "digest": _digest(record)}


def _replay(named: Named, scope: Scope, result: CheckResult) -> str:
    task = [f"--task={result.task}"] if result.task else []
    return named.command(f"--only={result.check}", *task, f"--seed={scope.seed}")


def write_certificate(path: Path, record: Mapping[str, JsonValue]) -> None:
    """Write a certificate to a file, whole or not at all.

    Raises:
        CertificateError: it can't be written.
    """
    draft = path.with_name(f".{path.name}.draft")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", "utf-8")
        draft.replace(path)
    except OSError as error:
        raise CertificateError(f"the certificate {path} can't be written: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Whether a certificate holds for an environment."""

    path: Path | None  # None: there is none
    digest: str
    problems: tuple[str, ...]  # empty: it is valid
    record: Mapping[str, JsonValue]

    @property
    def valid(self) -> bool:
        return not self.problems

    def as_json(self) -> dict[str, JsonValue]:
        path = None if self.path is None else str(self.path)
        return {"path": path, "hash": self.digest, "valid": self.valid, "problems": list(self.problems)}


def check_certificate(path: Path | None, environment: Environment, isolation: str | None = None) -> Standing:
    """Return whether the certificate at `path` is whole, says ADMITTED, and is for this environment as it is now.

    Args:
        path: of the file; None or missing: there is none.
        environment: with the verifier that will pay.
        isolation: of the sandboxes that will be used; None: not compared.

    Raises:
        TaskError: a task can't be read.
    """
    if path is None or not path.is_file():
        return Standing(path=None, digest="", problems=("there is no certificate",), record={})
    try:
        record = json.loads(path.read_text("utf-8"))
        stated = record.pop("digest")
        hashes, made, verdict = record["hashes"], record["made"], record["verdict"]
        version, stated_isolation = record["schema_version"], made["isolation"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return Standing(path=path, digest="", problems=(f"it can't be read: {error!r}",), record={})
    problems = []
    if version != SCHEMA_VERSION:
        problems.append(f"its form has version {version}; this release reads {SCHEMA_VERSION}")
    if _digest(record) != stated:
        problems.append("its content isn't what its digest was made of: it was changed after it was written")
    if verdict != Verdict.ADMITTED:
        problems.append(f"its verdict is {verdict}")
    problems += _differences(hashes, fingerprint(environment))
    if isolation is not None and isolation != stated_isolation:
        problems.append(f"it was made with isolation {stated_isolation!r}, the run has {isolation!r}")
    return Standing(path=path, digest=str(stated), problems=tuple(problems), record={**record, "digest": stated})


def _differences(stated: Mapping[str, JsonValue], now: Fingerprint) -> list[str]:
    names = {"tasks": "the tasks are others than those that were examined", "grader": "the grader was changed since"}
    return [text for name, text in names.items() if stated.get(name) != now.as_json()[name]]


def _digest(record: Mapping[str, JsonValue]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
