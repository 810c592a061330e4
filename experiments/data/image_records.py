"""The image sets: original files with their checksums.

A sha256 was computed from the original file; an md5 is published by the authors or the host.
"""

from dataclasses import replace
from typing import Any

from experiments.data.dataset import DataSet
from experiments.data.sources import File, WebArchive, WebFolder

__all__ = ["CORRUPTIONS", "IMAGES"]


def _idx(name: str, description: str, *, checksums: tuple[dict[str, Any], ...], **about: Any) -> DataSet:
    """28 × 28 grey images in the four files of MNIST; `checksums` in the order of `names`."""
    names = tuple(f"{prefix}-{kind}-ubyte" for prefix in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))
    splits = ("train", "train", "test", "test")
    compressed = zip(names, splits, checksums, strict=True)
    record = DataSet(
        name,
        description,
        rows=70_000,
        features=(1, 28, 28),
        folder=name,
        files=tuple(File(f"{file}.gz", split=split, **checksum) for file, split, checksum in compressed),
        classes=10,
        splits={"train": 60_000, "test": 10_000},
        **about,
    )
    return record.with_format(name, tuple(File(file, split=split) for file, split in zip(names, splits, strict=True)))


MNIST_LIKE = (
    _idx(
        "fashion-mnist",
        "ten classes of clothing, from grey images",
        checksums=(
            {"sha256": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"},
            {"sha256": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"},
            {"sha256": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"},
            {"sha256": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"},
        ),
        source=WebFolder(("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",)),
        homepage="https://github.com/zalandoresearch/fashion-mnist",
        licence="MIT",
    ),
    _idx(
        "mnist",
        "handwritten digits, from grey images",
        checksums=(
            {"md5": "f68b3c2dcbeaaa9fbdd348bbdeb94873"},
            {"md5": "d53e105ee54ea40749a09fcbcd1e9432"},
            {"sha256": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"},
            {"sha256": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"},
        ),
        source=WebFolder(("https://ossci-datasets.s3.amazonaws.com/mnist", "http://yann.lecun.com/exdb/mnist")),
        homepage="http://yann.lecun.com/exdb/mnist",
        licence="none stated",
    ),
    _idx(
        "kmnist",
        "ten cursive Japanese characters, from grey images",
        checksums=(
            {"md5": "bdb82020997e1d708af4cf47b453dcf7"},
            {"md5": "e144d726b3acfaa3e44228e80efcd344"},
            {"sha256": "edd7a857845ad6bb1d0ba43fe7e794d164fe2dce499a1694695a792adfac43c5"},
            {"sha256": "20bb9a0ef54c7db3efc55a92eef5582c109615df22683c380526788f98e42a1c"},
        ),
        source=WebFolder(("http://codh.rois.ac.jp/kmnist/dataset/kmnist",)),
        homepage="http://codh.rois.ac.jp/kmnist",
        licence="CC BY-SA 4.0",
    ),
)

TORONTO = "https://www.cs.toronto.edu/~kriz"
CIFAR_SPLITS = {"train": 50_000, "test": 10_000}

CIFAR10 = DataSet(
    "cifar10",
    "ten classes of animals and vehicles, from colour images",
    rows=60_000,
    features=(3, 32, 32),
    folder="cifar10/cifar-10-batches-bin",
    files=(
        File("data_batch_1.bin", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5", split="train"),
        File("data_batch_2.bin", "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed", split="train"),
        File("data_batch_3.bin", "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67", split="train"),
        File("data_batch_4.bin", "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48", split="train"),
        File("data_batch_5.bin", "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add", split="train"),
        File("test_batch.bin", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b", split="test"),
    ),
    source=WebArchive(
        (f"{TORONTO}/cifar-10-binary.tar.gz",), None, "cifar-10-batches-bin", md5="c32a1d4ab5d03f1284b67883e8d87530"
    ),
    homepage=f"{TORONTO}/cifar.html",
    licence="none stated",
    classes=10,
    splits=CIFAR_SPLITS,
).with_format(
    "cifar10/cifar-10-batches-py",
    (*(File(f"data_batch_{i}", split="train") for i in range(1, 6)), File("test_batch", split="test")),
)

CIFAR100 = DataSet(
    "cifar100",
    "a hundred classes of objects, from colour images",
    rows=60_000,
    features=(3, 32, 32),
    folder="cifar100/cifar-100-python",
    files=(
        File("train", md5="16019d7e3df5f24257cddd939b257f8d", split="train", rebuilt=True),
        File("test", md5="f0ef6b0ae62326f3e7ffdfab6717acfc", split="test", rebuilt=True),
    ),
    source=WebArchive(
        (f"{TORONTO}/cifar-100-python.tar.gz",), None, "cifar-100-python", md5="eb9058c3a382ffc7106e4002c42a8d85"
    ),
    homepage=f"{TORONTO}/cifar.html",
    licence="none stated",
    classes=100,
    splits=CIFAR_SPLITS,
).with_format("cifar100/cifar-100-binary", (File("train.bin", split="train"), File("test.bin", split="test")))

CIFAR100_PART = replace(
    CIFAR100,
    name="cifar100-part",
    description="the first images of CIFAR-100, for quick tests only",
    rows=1_402,
    folder="cifar100",
    files=(
        File("train_prefix.npz", "8becc313ce7a149f854f0f6f02565f253fbc0aed030e3665bcffa809cf53fd8a", split="train"),
        File("test_prefix.npz", "6f92bcf15f62d45b8bb9e1a4fa69bde80772094221761292f9804409b5978d52", split="test"),
    ),
    source=None,
    splits={"train": 486, "test": 916},
    other_formats=(),
)

SVHN = DataSet(
    "svhn",
    "digits of house numbers, from colour images",
    rows=99_289,
    features=(3, 32, 32),
    folder="svhn",
    files=(
        File("train_32x32.mat", md5="e26dedcc434d2e4c54c9b2d4a06d8373", split="train", rebuilt=True),
        File("test_32x32.mat", md5="eb5a983be6a315427106f1b164d9cef3", split="test", rebuilt=True),
    ),
    source=WebFolder(("http://ufldl.stanford.edu/housenumbers",)),
    homepage="http://ufldl.stanford.edu/housenumbers",
    licence="non-commercial use only",
    classes=10,
    splits={"train": 73_257, "test": 26_032},
)

CORRUPTIONS = (
    *("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise"),
    *("gaussian_blur", "glass_blur", "defocus_blur", "motion_blur", "zoom_blur"),
    *("fog", "frost", "snow", "spatter"),
    *("contrast", "brightness", "saturate", "jpeg_compression", "pixelate", "elastic_transform"),
)


def _corrupted(clean: DataSet, *, inside: str, record: str, md5: str) -> DataSet:
    """The test images of `clean` under each corruption, sorted by severity; one file per corruption."""
    return replace(
        clean,
        name=f"{clean.name}-c",
        description=f"the test images of {clean.name}, under {len(CORRUPTIONS)} corruptions at five severities",
        rows=50_000 * len(CORRUPTIONS),
        folder=f"{clean.name}-c/{inside}",
        files=(*(File(f"{corruption}.npy", split=corruption) for corruption in CORRUPTIONS), File("labels.npy")),
        source=WebArchive((f"https://zenodo.org/records/{record}/files/{inside}.tar",), None, inside, md5=md5),
        homepage=f"https://zenodo.org/records/{record}",
        licence="CC BY 4.0",
        splits=dict.fromkeys(CORRUPTIONS, 50_000),
        other_formats=(),
    )


CIFAR10_C = _corrupted(CIFAR10, inside="CIFAR-10-C", record="2535967", md5="56bf5dcef84df0e2308c6dcbcbbd8499")
CIFAR100_C = _corrupted(CIFAR100, inside="CIFAR-100-C", record="3555552", md5="11f0ed0f1191edbf9fa23466ae6021d3")

IMAGES = (*MNIST_LIKE, CIFAR10, CIFAR100, CIFAR100_PART, SVHN, CIFAR10_C, CIFAR100_C)
