"""Batch: graded groups and their credit become training rows and padded micro-batches. Numpy only."""

from sanderling.batch.config import BatchConfig
from sanderling.batch.micro import MicroBatch, micro_batches
from sanderling.batch.rows import assign_credit, training_rows
from sanderling.batch.weights import token_weights

__all__ = ["BatchConfig", "MicroBatch", "assign_credit", "micro_batches", "token_weights", "training_rows"]
