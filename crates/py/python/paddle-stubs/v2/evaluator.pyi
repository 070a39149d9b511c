from paddlecloud.legacy.evaluators import auc, chunk, classification_error, column_sum, precision_recall, sum

__all__ = ["auc", "chunk", "classification_error", "column_sum", "precision_recall", "sum"]
