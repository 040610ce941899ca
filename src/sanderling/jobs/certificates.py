"""Which certificate holds for an environment, and the refusal to train without one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sanderling.audit.certificate import Standing, check_certificate
from sanderling.config import Config
from sanderling.environment import Environment
from sanderling.errors import CertificateError

_FOLDER = Path("certificates")


def certificate_place(environment: Environment) -> Path:
    """Return where an audit leaves the certificate of an environment, and where a run looks for it."""
    return _FOLDER / f"{re.sub(r'[^A-Za-z0-9._-]+', '-', environment.name).strip('-.') or 'environment'}.json"


def standing_of(environment: Environment, file: str = "", isolation: str | None = None) -> Standing:
    """Return the first valid certificate of the places where one may be, or else what is wrong with the first that exists.

    Args:
        file: the only place; empty: certificates/ in the working directory, then the one that the environment ships.
        isolation: see `check_certificate`.
    """
    places = [Path(file)] if file else [certificate_place(environment), environment.certificate]
    found = [check_certificate(place, environment, isolation) for place in places if place is not None]
    existing = [standing for standing in found if standing.path is not None]
    return next((standing for standing in found if standing.valid), (existing or found)[0])


def require_certificate(config: Config, environment: Environment) -> Standing | None:
    """Return the certificate of a run; None where the configuration asks for none.

    Raises:
        CertificateError: there is no valid one.
    """
    if config.trust.certificate == "none":
        return None
    standing = standing_of(environment, config.trust.file)
    if not standing.valid:
        where = standing.path or config.trust.file or certificate_place(environment)
        raise CertificateError(
            f"environment {config.environment!r} has no valid certificate at {where}: {'; '.join(standing.problems)}. Make one "
            f"with `sanderling audit {config.environment}`, or train without by --trust.certificate=none"
        )
    return standing


def check_isolation(standing: Standing | None, isolation: str) -> None:
    """Raise `CertificateError` where the run's sandboxes contain something else than those of the audit did."""
    if standing is None:
        return
    stated = str(_made(standing).get("isolation"))
    if stated != isolation:
        raise CertificateError(
            f"the certificate {standing.path} was made with isolation {stated!r}, and this run's sandboxes have {isolation!r}; "
            "audit the environment with this backend, or train without a certificate by --trust.certificate=none"
        )


def certificate_facts(standing: Standing | None) -> dict[str, Any]:
    """Return what a run's environment.json says about its certificate."""
    if standing is None:
        return {"certificate": 'none: the environment was not required to pass an audit (trust.certificate = "none")'}
    made = _made(standing)
    return {"certificate": {"path": str(standing.path), "digest": standing.digest, "at": made.get("at"), "valid": True}}


def _made(standing: Standing) -> Mapping[str, Any]:
    made = standing.record.get("made")
    return made if isinstance(made, Mapping) else {}
