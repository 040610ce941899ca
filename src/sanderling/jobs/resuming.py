"""The accounts with which a run goes on, and the log of episodes behind them."""

from __future__ import annotations

from collections.abc import Sequence

from sanderling.rollout.config import RolloutConfig
from sanderling.rollout.ledger import Ledger
from sanderling.rollout.recall import Recall
from sanderling.store.episode_log import EpisodeLog, Standing, find
from sanderling.store.run_folder import RunFolder
from sanderling.types import StepReport


def open_ledger(folder: RunFolder, rollout: RolloutConfig, step: int, version: int, fingerprint: str) -> Ledger:
    """Return the accounts of a run after `step` and begin this process's log; an event says what was found of earlier ones.

    Args:
        folder: of the run, truncated to `step`.
        rollout: settings of the run.
        step: optimiser steps done.
        version: policy version of the weights that the engine holds.
        fingerprint: of these weights, as the engine reports it.

    Raises:
        RunFolderError: the log can't be read or written.
    """
    found = find(folder.episodes, step, rollout.max_staleness)
    same = [standing for standing in found.standings if standing.weights.get(version) == fingerprint]
    if same:
        standing = same[-1]
    else:
        totals = totals_of(folder.reader().reports())
        accounts = {name: totals.get(name, 0) for name in Ledger().snapshot()}
        standing = Standing(step=step, weights={version: fingerprint}, accounts=accounts, reported=accounts, ahead={})
    log = EpisodeLog(folder.episodes, process=found.processes + 1, behind=rollout.max_staleness)
    older = {v: name for v, name in standing.weights.items() if v <= version}
    # Forks begin in sandboxes of their parent, which are gone: such an episode is run again with its forks.
    kept = {} if rollout.forks.continuations else found.ended
    ended = {name: list(records) for name, records in kept.items()}
    earlier = Recall(ended=ended, weights=older, retries=rollout.retries)
    ledger = Ledger(log=log, earlier=earlier)
    ledger.restore(standing)
    log.begin(ledger.standing(step))
    if found.processes:
        folder.append_event(
            "episodes_found", ended=len(found.ended), lost=len(found.lost), damaged=found.damaged, process=log.process
        )
    return ledger


def prune_log(folder: RunFolder, ledger: Ledger) -> None:
    """Remove the files of the log that no kept checkpoint needs."""
    kept = [int(entry.name) for entry in folder.checkpoints.iterdir() if entry.name.isdigit()]
    if ledger.log is not None and kept:
        ledger.log.prune(min(kept))


def close_log(ledger: Ledger) -> None:
    """Close the log's file."""
    if ledger.log is not None:
        ledger.log.close()


def totals_of(reports: Sequence[StepReport]) -> dict[str, int]:
    """Return the counts of all steps together; `running` is a level: the last one."""
    totals: dict[str, int] = {}
    for report in reports:
        for name, value in report.counts.items():
            totals[name] = value if name == "running" else totals.get(name, 0) + value
    return totals
