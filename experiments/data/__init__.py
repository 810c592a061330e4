"""Data sets of the experiments by name: sources, readers, corruptions and bandit environments."""

from experiments.data.cifar import cifar10, cifar100, cifar100_part
from experiments.data.class_tables import covertype, mushroom
from experiments.data.corrupted import cifar10_c, cifar100_c
from experiments.data.dataset import DataSet
from experiments.data.idx import fashion_mnist, kmnist, mnist
from experiments.data.registry import data_set, describe_all, locate
from experiments.data.regression_tables import UCI_NAMES, uci
from experiments.data.sources import DataSetError
from experiments.data.svhn import svhn

__all__ = [
    "UCI_NAMES",
    "DataSet",
    "DataSetError",
    "cifar10",
    "cifar10_c",
    "cifar100",
    "cifar100_c",
    "cifar100_part",
    "covertype",
    "data_set",
    "describe_all",
    "fashion_mnist",
    "kmnist",
    "locate",
    "mnist",
    "mushroom",
    "svhn",
    "uci",
]
