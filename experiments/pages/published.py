"""Values that stand beside ours: the paper's tables, and means of the runs that its authors logged."""

__all__ = ["ACCURACY", "ALPHAS", "LOGGED", "PRIORS"]

# Table 1 of the paper, and its table of CIFAR-100: accuracy in %.
ACCURACY = {
    ("cifar10", "resnet20"): {
        "DE": "93.43 ± 0.08",
        "rDE": "94.58 ± 0.05",
        "RMS": "93.63 ± 0.07",
        "DE-GP": "94.67 ± 0.04",
        "DE-GP, β = 0": "93.71 ± 0.06",
    },
    ("cifar10", "resnet56"): {
        "DE": "94.04",
        "rDE": "95.56",
        "RMS": "94.45",
        "DE-GP": "95.55 ± 0.04",
        "DE-GP, β = 0": "94.24 ± 0.07",
    },
    ("cifar10", "resnet110"): {"DE-GP": "95.54"},
    ("cifar10_sharing", "resnet20 trunk"): {"DE": "90.48", "rDE": "92.08", "DE-GP": "92.41"},  # the authors' log
    ("cifar100", "resnet20"): {"DE": "74.14", "rDE": "76.81", "RMS": "75.08", "DE-GP": "76.59"},
    ("cifar100", "resnet56"): {"DE": "76.46", "rDE": "79.21", "RMS": "76.77", "DE-GP": "79.51"},
}
# The authors' log: uncalibrated NLL.
LOGGED = {
    ("cifar10", "resnet20"): {
        "DE": "0.214",
        "rDE": "0.166",
        "RMS": "0.201",
        "DE-GP": "0.164",
        "DE-GP, β = 0": "0.196",
    },
    ("cifar10", "resnet56"): {
        "DE": "0.197",
        "rDE": "0.146",
        "RMS": "0.179",
        "DE-GP": "0.149",
        "DE-GP, β = 0": "0.195",
    },
    ("cifar10_sharing", "resnet20 trunk"): {"DE": "0.569", "rDE": "0.369", "DE-GP": "0.362"},
}
# The paper's ablations: accuracy in %, by α with ResNet-20, and by the prior's depth with ResNet-56.
ALPHAS = {0.005: "94.83 ± 0.10", 0.01: "94.67 ± 0.04", 0.05: "94.66 ± 0.07", 0.1: "94.67 ± 0.09"}
PRIORS = {"lite resnet20": "95.50", "lite resnet56": "95.28"}
