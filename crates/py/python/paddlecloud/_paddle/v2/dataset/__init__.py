"""The data sets of the documents, and `common` to prepare one's own."""

from paddle.v2.dataset import cifar, common, conll05, imdb, imikolov, mnist, movielens, uci_housing, wmt14
from paddlecloud.legacy.unsupported import DATASETS, refuse

__all__ = ["cifar", "common", "conll05", "imdb", "imikolov", "mnist", "movielens", "uci_housing", "wmt14"]

__getattr__ = refuse("paddle.v2.dataset", DATASETS)
