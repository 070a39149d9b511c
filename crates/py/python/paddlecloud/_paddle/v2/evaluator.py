"""Metrics of a network."""

from paddlecloud.legacy.evaluators import auc, chunk, classification_error, column_sum, precision_recall, sum
from paddlecloud.legacy.unsupported import EVALUATORS, refuse

__all__ = ["auc", "chunk", "classification_error", "column_sum", "precision_recall", "sum"]

__getattr__ = refuse("paddle.v2.evaluator", EVALUATORS)
