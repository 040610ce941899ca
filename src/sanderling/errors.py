"""Every error that Sanderling raises on purpose.

    SanderlingError
    +-- ConfigError            a setting, a file or a name that the user gave is wrong      (nothing was started)
    |   +-- PluginError        a name doesn't lead to an object of the right kind
    |   +-- CertificateError   the environment has no valid certificate of an audit
    +-- TaskError              a task is malformed or was not admitted
    +-- SandboxError
    |   +-- SandboxUnavailable this machine can't run the backend: says what is missing and how to get it
    |   +-- SandboxLost        our side failed: creation, launcher, host resources            (ungraded, retried)
    |   +-- SandboxBroken      the agent destroyed its own world                              (its own doing: reward 0)
    |   +-- UnsafePath         a path that leaves the workspace or isn't a plain file
    +-- EngineError            the sampler failed or answered nonsense                        (ungraded, retried)
    |   +-- WeightPushError    weights were pushed and the engine's fingerprint didn't follow
    |   +-- ModelError         a model folder can't be loaded
    +-- VerifierError          grading itself failed                                          (ungraded, retried)
    |   +-- UntouchedPaid      the task's own tests pay for doing nothing
    +-- ReplayError            a recorded episode can't be walked again to the same states
    +-- MeasurementError       not one episode could be graded, so there is no number to report
    +-- InvariantViolation     one of the ten invariants broke: names the trajectory and stops the step
    +-- RunStopped             the run stopped itself: too many proven hacks, or no task left; its state is saved
    +-- LearnerError           an update of the weights can't be made; they are those before it
    +-- CheckpointError        a checkpoint is missing, incomplete or of another run
    +-- RunFolderError         the run folder can't be written or read

A message says what happened with the value, what was expected, and what to do. All of them can be pickled: arguments are
plain strings.
"""

from __future__ import annotations


class SanderlingError(Exception):
    """Base of all errors raised on purpose."""


class ConfigError(SanderlingError, ValueError):
    """A setting, file or name given by the user is wrong; nothing was started."""


class PluginError(ConfigError):
    """A name doesn't lead to an object of the right kind."""


class CertificateError(ConfigError):
    """The environment has no valid certificate of an audit; nothing was started."""


class TaskError(SanderlingError, ValueError):
    """A task is malformed or was not admitted."""


class SandboxError(SanderlingError):
    """Base of everything that can go wrong around a sandbox."""


class SandboxUnavailable(SandboxError):
    """This machine can't run the backend; the message says what is missing and how to get it."""


class SandboxLost(SandboxError):
    """Our side of the sandbox failed: creation, launcher or host resources."""


class SandboxBroken(SandboxError):
    """The agent made its own sandbox unusable."""


class UnsafePath(SandboxError, ValueError):
    """A path leaves the workspace, passes through a link, or isn't a plain file."""


class EngineError(SanderlingError):
    """The sampler failed or answered nonsense."""


class WeightPushError(EngineError):
    """Weights were pushed and the engine's fingerprint didn't follow."""


class ModelError(EngineError, ValueError):
    """A model folder can't be loaded."""


class VerifierError(SanderlingError):
    """Grading itself failed; says nothing about the work."""


class UntouchedPaid(VerifierError):
    """The task's own tests pay for the untouched task, so that doing nothing can't be told from work."""


class ReplayError(SanderlingError):
    """A recorded episode can't be walked again: its states differ from the recorded ones, or can't be compared."""


class MeasurementError(SanderlingError):
    """Not one episode could be graded, so there is no number to report or to learn from."""


class InvariantViolation(SanderlingError, AssertionError):
    """One of the ten invariants broke; the message names the trajectory."""


class RunStopped(SanderlingError):
    """The run stopped itself: too many episodes are proven hacks, or all tasks are quarantined. It goes on when told to."""


class LearnerError(SanderlingError):
    """An update of the weights can't be made; they are those before it."""


class CheckpointError(SanderlingError):
    """A checkpoint is missing, incomplete, or belongs to another run."""


class RunFolderError(SanderlingError, OSError):
    """The run folder can't be written or read."""
