"""One function per verb. Jobs connect parts and folders; the work is done in the layers below."""

from sanderling.jobs.evaluation import Decoding, evaluate_policy
from sanderling.jobs.task_checks import check_tasks
from sanderling.jobs.training import TrainResult, train

__all__ = ["Decoding", "TrainResult", "check_tasks", "evaluate_policy", "train"]
