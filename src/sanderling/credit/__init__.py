"""Credit: how one success or failure is shared among the turns that led to it. One small file per estimator."""

from sanderling.credit.bilevel_gae import BilevelGae
from sanderling.credit.catalogue import ESTIMATORS, load_estimator
from sanderling.credit.controls import OtherTasks, Reinforce, TurnIndex
from sanderling.credit.decayed import Decayed
from sanderling.credit.gigpo import Gigpo
from sanderling.credit.group_value import GroupValueGae
from sanderling.credit.grpo import Grpo
from sanderling.credit.hgpo import Hgpo
from sanderling.credit.opo import Opo
from sanderling.credit.protocol import AcrossGroups, Credit, CreditEstimator, LearnsValues, check_needs, needs_of
from sanderling.credit.reinforce_pp import ReinforcePlusPlus
from sanderling.credit.rloo import Rloo
from sanderling.credit.token_gae import TokenGae
from sanderling.credit.tree import TreeGrpo, TreeValue
from sanderling.credit.turn_gae import TurnGae
from sanderling.credit.turn_rewards import AccumulatedTurns, MergedRewards, MtGrpo, TurnReturn
from sanderling.credit.turn_scores import BoundedScores, TurnCredit

__all__ = [
    "ESTIMATORS",
    "AccumulatedTurns",
    "AcrossGroups",
    "BilevelGae",
    "BoundedScores",
    "Credit",
    "CreditEstimator",
    "Decayed",
    "Gigpo",
    "GroupValueGae",
    "Grpo",
    "Hgpo",
    "LearnsValues",
    "MergedRewards",
    "MtGrpo",
    "Opo",
    "OtherTasks",
    "Reinforce",
    "ReinforcePlusPlus",
    "Rloo",
    "TokenGae",
    "TreeGrpo",
    "TreeValue",
    "TurnCredit",
    "TurnGae",
    "TurnIndex",
    "TurnReturn",
    "check_needs",
    "load_estimator",
    "needs_of",
]
