"""Images are read from their original formats, complete and verified, or not at all."""

import gzip
import io
import os
import pickle
import re
import struct
import tracemalloc
import zipfile
import zlib
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch.testing import assert_close

from experiments import data
from experiments.data import DataSetError, records
from experiments.data.cifar import read_binary, read_npz, read_python
from experiments.data.corrupted import read_npy
from experiments.data.idx import read_idx
from experiments.data.plain_pickle import read_plain
from experiments.data.svhn import read_mat

REAL = Path(os.environ.get("DEGP_DATA") or "nowhere")
ROWS = 3
rng = np.random.default_rng(0)
GREY = rng.integers(0, 256, (ROWS, 28, 28), dtype=np.uint8)
COLOUR = rng.integers(0, 256, (ROWS, 3, 32, 32), dtype=np.uint8)
LABELS = np.array([7, 0, 9], np.uint8)


# Files in the original formats


def idx(array):
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def binary(images, *labels):
    return np.concatenate([*(column[:, None] for column in labels), images.reshape(len(images), -1)], 1).tobytes()


def python2(images, labels, key=b"labels"):
    """A pickle as written by Python 2, byte by byte like the originals."""
    count, raw = len(images), images.tobytes()
    numbers = b"".join(b"K" + bytes([label]) for label in labels)
    names = b"".join(b"U\x07cat.png" for _ in range(count))
    return (
        b"\x80\x02}q\x01(U\x0bbatch_labelq\x02U\x15training batch 1 of 5q\x03"
        + (b"U" + bytes([len(key)]) + key + b"q\x04]q\x05(" + numbers + b"e")
        + b"U\x04dataq\x06cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85U\x01b\x87Rq\x09"
        + (b"(K\x01K" + bytes([count]) + b"M\x00\x0c\x86cnumpy\ndtype\nq\x0aU\x02u1K\x00K\x01\x87Rq\x0b")
        + b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
        + (b"T" + struct.pack("<i", len(raw)) + raw + b"tbU\tfilenamesq\x0c]q\x0d(" + names + b"eu.")
    )


def python3(images, labels, protocol, key="labels"):
    table = images.reshape(len(images), -1)
    return pickle.dumps({"data": table, key: labels.tolist(), "filenames": ["cat.png"] * len(images)}, protocol)


def mat(images, labels, **options):
    savemat = pytest.importorskip("scipy.io").savemat
    buffer = io.BytesIO()
    digits = np.where(labels == 0, 10, labels)[:, None]
    savemat(buffer, {"X": images.transpose(2, 3, 1, 0), "y": digits}, **options)
    return buffer.getvalue()


def npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def npz(**arrays):
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


COARSE = LABELS + 10
FORMATS = {
    "idx": (lambda: idx(GREY), partial(read_idx, shape=GREY.shape)),
    "idx.gz": (lambda: gzip.compress(idx(GREY), mtime=0), partial(read_idx, shape=GREY.shape)),
    "cifar10 binary": (lambda: binary(COLOUR, LABELS), partial(read_binary, rows=ROWS, classes=(10,))),
    "cifar100 binary": (lambda: binary(COLOUR, COARSE, LABELS), partial(read_binary, rows=ROWS, classes=(20, 100))),
    "python 2": (lambda: python2(COLOUR, LABELS), partial(read_python, rows=ROWS, key="labels", classes=10)),
    **{
        f"python 3, protocol {protocol}": (
            partial(python3, COLOUR, LABELS, protocol),
            partial(read_python, rows=ROWS, key="labels", classes=10),
        )
        for protocol in (2, 3, 4, 5)
    },
    "mat": (lambda: mat(COLOUR, LABELS), partial(read_mat, rows=ROWS)),
    "mat, compressed": (lambda: mat(COLOUR, LABELS, do_compression=True), partial(read_mat, rows=ROWS)),
    "npy": (lambda: npy(COLOUR), partial(read_npy, shape=COLOUR.shape, kinds="u")),
    "npz": (
        lambda: npz(x=COLOUR.transpose(0, 2, 3, 1), fine=LABELS, coarse=COARSE),
        partial(read_npz, rows=ROWS, classes=100),
    ),
}
every_format = pytest.mark.parametrize("write, read", FORMATS.values(), ids=FORMATS)


def values(result):
    """(images, labels) as arrays, of a batch or of an array that is one of them."""
    if isinstance(result, np.ndarray):
        return np.array(result), LABELS
    assert (result.inputs.dtype, result.targets.dtype) == (torch.uint8, torch.int64)
    return result.inputs.numpy(), result.targets.numpy()


def assert_batch(batch, images, labels):
    assert_close(batch.inputs, torch.from_numpy(images), rtol=0, atol=0)
    assert_close(batch.targets, torch.from_numpy(labels.astype(np.int64)), rtol=0, atol=0)
    assert batch.population == len(images) and batch.inputs.is_contiguous()


def is_original(result):
    images, labels = values(result)
    truth = GREY if images.ndim == 3 else COLOUR
    return images.shape == truth.shape and np.array_equal(images, truth) and np.array_equal(labels, LABELS)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A path for temporary files."""
    return tmp_path_factory.mktemp("images") / "file"


@every_format
def test_files_round_trip(write, read, path):
    path.write_bytes(write())
    assert is_original(read(path))


@every_format
@given(fraction=st.floats(0, 1, exclude_max=True))
def test_a_truncated_file_is_rejected(write, read, path, fraction):
    content = write()
    path.write_bytes(content[: int(fraction * len(content))])
    with pytest.raises(DataSetError, match=re.escape(str(path))):
        read(path)


@every_format
@given(place=st.integers(0, 2**16), flip=st.integers(1, 255), near_start=st.booleans())
def test_a_changed_byte_gives_an_error_or_valid_images_and_labels(write, read, path, place, flip, near_start):
    content = bytearray(write())
    content[place % min(len(content), 256 if near_start else len(content))] ^= flip
    path.write_bytes(content)
    try:
        images, labels = values(read(path))
    except DataSetError:
        return
    assert images.shape in (GREY.shape, COLOUR.shape) and images.dtype == np.uint8
    assert labels.shape == (ROWS,) and ((labels >= 0) & (labels < 100)).all()


@pytest.mark.parametrize("name, header", [("idx", 16), ("npy", 128)])
@given(place=st.integers(0, 127), flip=st.integers(1, 255))
@example(place=8, flip=16)  # an .npy header declared shorter than it is, by its trailing spaces
def test_a_changed_header_gives_an_error_or_the_same_images(name, header, path, place, flip):
    write, read = FORMATS[name]
    content = bytearray(write())
    content[place % header] ^= flip
    path.write_bytes(content)
    try:
        result = read(path)
    except DataSetError:
        return
    assert is_original(result)


@every_format
def test_other_files_are_rejected(write, read, path):
    for content in (b"", b"<html>404</html>", bytes(4096), gzip.compress(b"text"), pickle.dumps([1, 2])):
        path.write_bytes(content)
        with pytest.raises(DataSetError, match=re.escape(str(path))):
            read(path)


# Declared sizes are checked before memory is allocated


def huge_npy(shape):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": shape})
    return b"\x93NUMPY\x01\x00" + header.getvalue()[8:]


def huge_npz():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("x.npy", huge_npy((10**12, 32, 32, 3)))
    return buffer.getvalue()


def huge_mat():
    content, shape = mat(COLOUR, LABELS), struct.pack("<4i", 32, 32, 3, ROWS)
    assert content.count(shape) == 1
    return content.replace(shape, struct.pack("<4i", 32, 32, 3, 2**31 - 1))


HUGE = {
    "idx": lambda: struct.pack(">HBB3I", 0, 8, 3, 2**32 - 1, 28, 28) + bytes(100),
    "idx.gz": lambda: gzip.compress(struct.pack(">HBB3I", 0, 8, 3, 2**32 - 1, 28, 28) + bytes(100)),
    "python 2": lambda: python2(COLOUR, LABELS).replace(b"M\x00\x0c\x86", b"J\x00\x00\x00\x7f\x86"),
    "mat": huge_mat,
    "npy": lambda: huge_npy((10**12, 3, 32, 32)),
    "npz": huge_npz,
}


@pytest.mark.parametrize("name", HUGE)
def test_a_header_with_a_huge_size_allocates_no_memory(name, path):
    path.write_bytes(HUGE[name]())
    tracemalloc.start()
    with pytest.raises(DataSetError, match=re.escape(str(path))):
        FORMATS[name][1](path)
    assert tracemalloc.get_traced_memory()[1] < 2**23
    tracemalloc.stop()


def bomb_npz():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", npy(COLOUR.transpose(0, 2, 3, 1)) + bytes(2**26))
    return buffer.getvalue()


def bomb_mat():
    """Many arrays, each no larger than the expected ones."""
    array = zlib.compress(struct.pack("<II", 14, 2**15) + mat(COLOUR, LABELS)[136:][: 2**13].ljust(2**15, b"\0"))
    return mat(COLOUR, LABELS)[:128] + (struct.pack("<II", 15, len(array)) + array) * 6


@pytest.mark.parametrize(
    "name, write, message",
    [
        ("idx.gz", lambda: gzip.compress(idx(GREY) + bytes(2**26), 1), "after its header, but it has more"),
        ("npz", bomb_npz, "must hold 9216 bytes after its header, but it has more"),
        ("mat, compressed", bomb_mat, "larger than the arrays of this set"),
    ],
)
def test_decompression_stops_at_the_expected_size(name, write, message, path):
    path.write_bytes(write())
    tracemalloc.start()
    with pytest.raises(DataSetError, match=message):
        FORMATS[name][1](path)
    assert tracemalloc.get_traced_memory()[1] < 2**23
    tracemalloc.stop()


def test_a_huge_sparse_file_is_not_read(path):
    with path.open("wb") as file:
        file.truncate(3073 * 10**8)
    with pytest.raises(DataSetError, match=f"must have {3073 * ROWS} bytes, 3073 for each of {ROWS} images"):
        read_binary(path, ROWS, classes=(10,))
    with pytest.raises(DataSetError, match=r"must have at most \d+ bytes, but it has 307300000000"):
        read_python(path, ROWS, key="labels", classes=10)
    path.unlink()


# Messages


@pytest.mark.parametrize(
    "content, read, message",
    [
        (
            idx(GREY)[:9] + b"\x09" + idx(GREY)[10:],
            "idx",
            "array of shape (3, 28, 28), but its shape is (3, 589852, 28)",
        ),
        (b"\x00\x00\x0d\x03" + idx(GREY)[4:], "idx", "must begin with 00000803, but"),
        (idx(GREY)[:-1], "idx", "must hold 2352 bytes after its header, but it has 2351; copy it again"),
        (idx(GREY) + b"0", "idx", "must hold 2352 bytes after its header, but it has more; copy it again"),
        (binary(COLOUR, LABELS + 1), "cifar10 binary", "from 0 to 9, but"),
        (binary(COLOUR, LABELS + 11, LABELS), "cifar100 binary", "1 others, the first is 20 in row 2, counted from 0"),
        (python2(COLOUR, LABELS, b"fine_labels"), "python 2", "a list 'labels', but it holds ['batch_label', 'data'"),
        (python2(COLOUR[:2], LABELS), "python 2", "array of shape (3, 3072), but its shape is (2, 3072)"),
        (python2(COLOUR, LABELS[:2]), "python 2", "must have 3 labels, all integers"),
        (npy(COLOUR.astype(np.float32)), "npy", "must hold integers, images in uint8, but it holds float32"),
        (npy(np.array([{}])), "npy", "Python objects"),
        (npz(x=COLOUR, fine=LABELS), "npz", "array of shape (3, 32, 32, 3), but its shape is (3, 3, 32, 32)"),
        (npz(x=COLOUR.astype(np.int64)), "npz", "its array x.npy is of int64, and should be of uint8"),
    ],
)
def test_errors_name_the_expected_and_the_actual_contents(content, read, message, path):
    path.write_bytes(content)
    with pytest.raises(DataSetError, match=re.escape(message)):
        FORMATS[read][1](path)


def test_svhn_labels_must_be_digits(path):
    path.write_bytes(mat(COLOUR, np.array([1, 11, 3], np.uint8)))
    with pytest.raises(DataSetError, match=r"from 1 to 10, but .* has 1 others, the first is 11 in row 1"):
        read_mat(path, ROWS)
    path.write_bytes(mat(COLOUR, LABELS.astype(np.float64)))
    with pytest.raises(DataSetError, match="are of type 9, and should be bytes, 2"):
        read_mat(path, ROWS)


@pytest.mark.parametrize("rows", [1, 4, 5, 8, 100])
@pytest.mark.parametrize("compressed", [False, True])
def test_mat_files_written_by_scipy_are_read_for_any_number_of_rows(rows, compressed, path):
    images, labels = rng.integers(0, 256, (rows, 3, 32, 32), dtype=np.uint8), np.arange(rows, dtype=np.uint8) % 10
    path.write_bytes(mat(images, labels, do_compression=compressed))
    assert_batch(read_mat(path, rows), images, labels)


def test_other_arrays_are_ignored_and_missing_ones_named(path):
    savemat = pytest.importorskip("scipy.io").savemat
    arrays = {"note": "by hand", "X": COLOUR.transpose(2, 3, 1, 0)}
    savemat(path, arrays, appendmat=False)
    with pytest.raises(DataSetError, match="it has no array y"):
        read_mat(path, ROWS)
    savemat(path, arrays | {"y": LABELS[:, None] + 1}, appendmat=False)
    assert_batch(read_mat(path, ROWS), COLOUR, (LABELS + 1) % 10)


# Pickles


class Evil:
    """Writes a file when it is unpickled."""

    def __init__(self, target):
        self.target = str(target)

    def __reduce__(self):
        return os.mkdir, (self.target,)


def test_the_hand_written_pickle_is_valid():
    loaded = pickle.loads(python2(COLOUR, LABELS), encoding="latin1")
    assert np.array_equal(loaded["data"], COLOUR.reshape(ROWS, -1)) and loaded["labels"] == LABELS.tolist()


@pytest.mark.parametrize("protocol", range(6))
def test_no_code_in_a_pickle_is_executed(protocol, path, tmp_path):
    path.write_bytes(pickle.dumps({"data": Evil(tmp_path / "evil")}, protocol))
    with pytest.raises(DataSetError, match="only plain values and arrays of bytes are read from a pickle"):
        read_plain(path, 10**6)
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize(
    "program",
    [
        b"cbuiltins\neval\n(U\x011tR.",
        b"(U\x02lsios\nsystem\n.",
        b"cnumpy\nndarray\n(K\x01tR.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
        b"}(K\x01K\x02u.",
        b"}(]K\x02u.",
        b"}(U\x01aK\x02K\x03u.",
        b"}K\x01a.",
        b"K\x01K\x02.",
        b"e.",
        b"\x85.",
        b"h\x07.",
        b"}N b.",
        b"}}b.",
        b"cnumpy\ndtype\n(U\x02O8tR.",
        b"cnumpy\ndtype\nNR.",
        b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x03\x00\x00\x00hextR.",
        b"K\x01",
        b"\xff.",
        b"cposix\nsystem",
        b"B\xff\xff\xff\x7f.",
    ],
)
def test_other_pickle_programs_are_rejected(program, path):
    path.write_bytes(program)
    with pytest.raises(DataSetError, match=re.escape(str(path))):
        read_plain(path, 10**6)


@given(program=st.lists(st.sampled_from([bytes([code]) for code in b"}](t)ueasR b\x85\x86\x87\x94NK\x01q\x00h\x00."])))
def test_invalid_programs_raise_no_other_error(program, path):
    path.write_bytes(b"\x80\x02" + b"".join(program) + b".")
    try:
        read_plain(path, 10**6)
    except DataSetError:
        pass


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("order", ["C", "F"])
def test_plain_values_equal_those_of_pickle(protocol, order, path):
    array = np.asarray(np.arange(600, dtype=np.uint8).reshape(20, 30), order=order)
    truth = {"data": array, b"raw": b"\xff\x00", "list": list(range(3000)), "deep": [{"é": (None, True, -1)}, [], ()]}
    path.write_bytes(pickle.dumps(truth, protocol))
    found = read_plain(path, 10**6)
    assert np.array_equal(found.pop("data"), truth.pop("data")) and found == truth


# Sets by name


@pytest.fixture
def local(tmp_path, monkeypatch):
    """An empty local copy, and no cache; `local(name, {file: bytes})` puts files where the set has them."""
    monkeypatch.setenv("DEGP_DATA", str(tmp_path / "copy"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def put(folder, contents):
        for name, content in contents.items():
            (tmp_path / "copy" / folder).mkdir(parents=True, exist_ok=True)
            (tmp_path / "copy" / folder / name).write_bytes(content)

    return put


@pytest.fixture
def shrink(monkeypatch):
    """Gives a set the given numbers of images, without checksums and download address."""

    def put(name, **splits):
        record = records.DATA_SETS[name]
        loose = [
            replace(
                variant,
                files=tuple(replace(file, sha256=None, md5=None) for file in variant.files),
                source=None,
                splits=splits,
                other_formats=(),
            )
            for variant in record.formats
        ]
        monkeypatch.setitem(records.DATA_SETS, name, replace(loose[0], other_formats=tuple(loose[1:])))

    return put


@pytest.mark.parametrize("name", ["fashion-mnist", "mnist", "kmnist"])
@pytest.mark.parametrize("ending, pack", [(".gz", gzip.compress), ("", bytes)])
def test_grey_images_have_one_channel(name, ending, pack, local, shrink):
    shrink(name, train=1, test=ROWS)
    files = {"t10k-images-idx3-ubyte": GREY, "t10k-labels-idx1-ubyte": LABELS}
    local(name, {f"{file}{ending}": pack(idx(array)) for file, array in files.items()})
    assert_batch(getattr(data, name.replace("-", "_"))("test"), GREY[:, None], LABELS)


def test_a_split_needs_only_its_own_files(local, shrink):
    shrink("mnist", train=1, test=ROWS)
    local("mnist", {"t10k-images-idx3-ubyte.gz": idx(GREY), "t10k-labels-idx1-ubyte.gz": idx(LABELS)})
    assert len(data.mnist("test")) == ROWS
    missing = r"has no train-images-idx3-ubyte\.gz and no train-labels-idx1-ubyte\.gz"
    for request in (partial(data.mnist, "train"), partial(data.locate, "mnist")):
        with pytest.raises(DataSetError, match=missing):
            request()
    (row,) = (row for row in data.describe_all() if row["name"] == "mnist")
    assert row["here"] == ["test"] and row["path"] == str(data.locate("mnist", "test"))


def test_an_unknown_split_raises_an_error_that_lists_the_known_ones():
    with pytest.raises(DataSetError, match="a split of 'cifar10' must be one of train, test, but it is 'validation'"):
        data.cifar10("validation")
    with pytest.raises(DataSetError, match="a split of 'boston' must be one of none, but it is 'test'"):
        data.locate("boston", "test")


@pytest.mark.parametrize("form", ["bin", "py"])
def test_cifar10_is_in_the_order_of_its_files(form, local, shrink):
    images, labels = rng.integers(0, 256, (10, 3, 32, 32), dtype=np.uint8), np.arange(10, dtype=np.uint8)
    shrink("cifar10", train=10, test=ROWS)
    write, ending = (binary, ".bin") if form == "bin" else (python2, "")
    parts = {
        f"data_batch_{i + 1}{ending}": write(images[2 * i : 2 * i + 2], labels[2 * i : 2 * i + 2]) for i in range(5)
    }
    local(f"cifar10/cifar-10-batches-{form}", parts | {f"test_batch{ending}": write(COLOUR, LABELS)})
    assert_batch(data.cifar10("train"), images, labels)
    assert_batch(data.cifar10("test"), COLOUR, LABELS)


def test_cifar100_has_the_fine_labels(local, shrink):
    shrink("cifar100", train=ROWS, test=ROWS)
    fine = LABELS + 90
    local("cifar100/cifar-100-python", {"test": python2(COLOUR, fine, b"fine_labels")})
    local("cifar100/cifar-100-binary", {"train.bin": binary(COLOUR, COARSE, fine)})
    assert_batch(data.cifar100("test"), COLOUR, fine)
    assert_batch(data.cifar100("train"), COLOUR, fine)


def test_cifar100_part_is_read_from_npz(local, shrink):
    shrink("cifar100-part", train=1, test=ROWS)
    local("cifar100", {"test_prefix.npz": npz(x=COLOUR.transpose(0, 2, 3, 1), fine=LABELS + 90)})
    assert_batch(data.cifar100_part("test"), COLOUR, LABELS + 90)


def test_svhn_may_be_rebuilt(local, monkeypatch):
    original = records.DATA_SETS["svhn"]
    monkeypatch.setitem(records.DATA_SETS, "svhn", replace(original, splits={"train": 1, "test": ROWS}))
    local("svhn", {"test_32x32.mat": mat(COLOUR, LABELS, do_compression=True)})
    assert_batch(data.svhn("test"), COLOUR, LABELS)


@pytest.mark.parametrize("name, dtype", [("cifar10", np.uint8), ("cifar100", np.int64)])
def test_severities_are_consecutive(name, dtype, local, shrink):
    shrink(f"{name}-c", fog=10)
    images, labels = rng.integers(0, 256, (10, 32, 32, 3), dtype=np.uint8), np.tile(LABELS[:2], 5).astype(dtype)
    local(f"{name}-c/{name.upper().replace('CIFAR', 'CIFAR-')}-C", {"fog.npy": npy(images), "labels.npy": npy(labels)})
    for severity in range(1, 6):
        rows = slice(2 * severity - 2, 2 * severity)
        batch = getattr(data, f"{name}_c")("fog", severity)
        assert_batch(batch, images[rows].transpose(0, 3, 1, 2), labels[rows])


@pytest.mark.parametrize("severity", [0, 6])
def test_there_are_five_severities_and_nineteen_corruptions(severity):
    with pytest.raises(DataSetError, match=f"must be one of 1, 2, 3, 4, 5, but it is {severity}"):
        data.cifar10_c("fog", severity)
    with pytest.raises(DataSetError, match=r"must be one of gaussian_noise, .*, but it is 'mist'"):
        data.cifar10_c("mist", 1)
    assert len(data.data_set("cifar100-c").splits) == 19


def test_every_split_of_every_image_set_has_files():
    for record in records.IMAGES:
        assert record.rows == sum(record.splits.values()) and record.classes
        for variant in record.formats:
            assert variant.splits == record.splits and {file.split for file in variant.files} - {None} == set(
                record.splits
            )
            assert all(re.fullmatch("[0-9a-f]{32}", file.md5) for file in variant.files if file.md5)


# The original files, if DEGP_DATA has them


@pytest.mark.parametrize(
    "read, split, counts",
    [
        (data.fashion_mnist, "train", [6000] * 10),
        (data.fashion_mnist, "test", [1000] * 10),
        (data.mnist, "test", [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]),
        (data.kmnist, "test", [1000] * 10),
        (data.cifar10, "train", [5000] * 10),
        (data.cifar10, "test", [1000] * 10),
        (data.svhn, "test", [1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595]),
    ],
)
def test_the_original_sets_have_the_published_class_counts(read, split, counts):
    here = {row["name"]: row["here"] for row in data.describe_all()}
    if split not in here[read.__name__.replace("_", "-")]:
        pytest.skip("set DEGP_DATA to a copy of this set")
    batch = read(split)
    assert batch.targets.bincount().tolist() == counts
    assert batch.inputs.shape[1:] in ((1, 28, 28), (3, 32, 32))


def test_the_original_class_names_of_cifar100_are_read():
    if not (REAL / "cifar100" / "meta").is_file():
        pytest.skip("set DEGP_DATA to a copy of cifar100")
    names = read_plain(REAL / "cifar100" / "meta", 10**4)
    assert (len(names["fine_label_names"]), len(names["coarse_label_names"])) == (100, 20)
    assert names["fine_label_names"][:2] == ["apple", "aquarium_fish"]
