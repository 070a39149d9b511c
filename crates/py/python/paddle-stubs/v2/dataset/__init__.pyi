from paddle.v2.dataset import cifar as cifar
from paddle.v2.dataset import common as common
from paddle.v2.dataset import conll05 as conll05
from paddle.v2.dataset import imdb as imdb
from paddle.v2.dataset import imikolov as imikolov
from paddle.v2.dataset import mnist as mnist
from paddle.v2.dataset import movielens as movielens
from paddle.v2.dataset import uci_housing as uci_housing
from paddle.v2.dataset import wmt14 as wmt14

__all__ = ["cifar", "common", "conll05", "imdb", "imikolov", "mnist", "movielens", "uci_housing", "wmt14"]
