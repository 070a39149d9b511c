"""The data sets of the documents, and `common` to prepare one's own."""

from paddle.v2.dataset import common, imikolov, uci_housing

__all__ = ["common", "imikolov", "uci_housing"]
