"""Data sets come whole and checked from a local copy, the cache or the web, or not at all; and what is done to them."""

import hashlib
import io
import json
import math
import re
import socket
import sys
import tarfile
import threading
from collections import Counter
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from degp import data
from degp.data import DataSetError, Standardiser, hold_out_rows, kfold, records, registry, subset
from degp.data.sources import File, WebArchive, WebFolder
from degp.typing import Batch

# Blanks, tabs and a blank line at the end, as in the originals; column 1 is the target.
TABLE = {
    "data.txt": b" 0.5  18.00\t2.31 \n-1e-2 0.00\t7\n3 1.25\t-0.5\n4 2 6\n\n",
    "index_features.txt": b"0\n2\n",
    "index_target.txt": b"1\n",
}
INPUTS = [[0.5, 2.31], [-0.01, 7], [3, -0.5], [4, 6]]
TARGETS = [[18], [0], [1.25], [2]]
FOLDER = "uci/tiny/data"


def files_of(contents):
    return tuple(File(name, hashlib.sha256(content).hexdigest()) for name, content in contents.items())


def write(folder, contents):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return folder


def files_below(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def nowhere():
    """The URL of a port that nobody listens to."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        self.server.asked.append(self.path)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache, no local copy, and no proxy between here and 127.0.0.1."""
    monkeypatch.delenv("DEGP_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "*")
    return tmp_path / "cache" / "degp"


@pytest.fixture
def local(tmp_path, monkeypatch):
    """The folder of the set in a local copy, without its files yet."""
    monkeypatch.setenv("DEGP_DATA", str(tmp_path / "copy"))
    return tmp_path / "copy" / FOLDER


@pytest.fixture
def register(monkeypatch):
    """Gives the name boston to a tiny set; the files are the right ones unless told."""

    def put(contents=TABLE, **changes):
        tiny = replace(records.DATA_SETS["boston"], rows=4, features=(2,), folder=FOLDER, files=files_of(contents))
        changes = {"source": WebFolder((nowhere(),))} | changes
        monkeypatch.setitem(records.DATA_SETS, "boston", replace(tiny, **changes))

    return put


@pytest.fixture
def server(tmp_path):
    """A folder on the web: (the folder here, its URL, the paths that were asked for)."""
    folder = tmp_path / "web"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=folder)) as httpd:
        httpd.asked = []
        threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield folder, f"http://127.0.0.1:{httpd.server_port}", httpd.asked
        httpd.shutdown()


# Local copies


def test_the_local_copy_is_used_where_it_lies(local, cache, register):
    register()
    write(local, TABLE)
    assert data.locate("boston") == local
    assert not cache.exists()


def test_the_local_copy_comes_before_the_cache(local, cache, register):
    register()
    write(local, TABLE)
    write(cache / FOLDER, TABLE)
    assert data.locate("boston") == local


def test_the_cache_needs_neither_network_nor_pooch(cache, register, monkeypatch):
    register()
    monkeypatch.setitem(sys.modules, "pooch", None)
    folder = write(cache / FOLDER, TABLE)
    assert data.locate("boston") == folder


@pytest.mark.parametrize("content", [b"", TABLE["data.txt"][:20], TABLE["data.txt"].replace(b"7", b"8")])
def test_a_local_copy_that_is_cut_short_or_changed_is_refused(local, cache, register, content):
    register()
    write(local, TABLE | {"data.txt": content})
    found = hashlib.sha256(content).hexdigest()
    message = f"{local / 'data.txt'} must have the sha256 .*, but its {len(content)} bytes have {found}: it is damaged"
    with pytest.raises(DataSetError, match=message):
        data.locate("boston")
    assert not cache.exists()


def test_a_file_without_checksum_is_for_the_reader_to_check(local, register):
    register(files=(File("test.mat", None),), source=None)
    write(local, {"test.mat": b"rebuilt"})
    assert data.locate("boston") == local


def test_a_file_without_checksum_must_still_be_there(local, register):
    register(files=(File("test.mat", None),), source=None)
    with pytest.raises(DataSetError, match=r"has no test\.mat, .* there is no address to download it from"):
        data.locate("boston")


def test_an_md5_stands_in_for_an_unknown_sha256(local, register):
    content = TABLE["data.txt"]
    register(files=(File("data.txt", md5=hashlib.md5(content).hexdigest()),))
    write(local, {"data.txt": content})
    assert data.locate("boston") == local
    write(local, {"data.txt": content + b"1 2 3"})
    with pytest.raises(DataSetError, match=r"data\.txt must have the md5 [0-9a-f]{32}, but its"):
        data.locate("boston")


def test_a_rebuilt_file_is_taken_from_a_local_copy_and_never_from_the_cache(local, cache, register):
    register(files=(File("test.mat", md5="0" * 32, rebuilt=True),))
    write(local, {"test.mat": b"rebuilt"})
    assert data.locate("boston") == local
    (local / "test.mat").unlink()
    write(cache / FOLDER, {"test.mat": b"rebuilt"})
    with pytest.raises(DataSetError, match="is not complete and intact"):
        data.locate("boston")


def test_a_split_is_found_where_its_files_are(local, cache, register):
    files = (File("train.txt", split="train"), File("test.txt", split="test"), File("names.txt"))
    register(files=files, source=None, splits={"train": 3, "test": 1})
    write(local, {"test.txt": b"", "names.txt": b""})
    write(cache / FOLDER, {"train.txt": b"", "names.txt": b""})
    assert (data.locate("boston", "test"), data.locate("boston", "train")) == (local, cache / FOLDER)
    assert registry.locate_files("boston", "test") == (local / "test.txt", local / "names.txt")
    with pytest.raises(DataSetError, match=r"has no train\.txt,"):
        data.locate("boston")


def test_the_local_copy_may_have_another_form(local, register, monkeypatch):
    register()
    record = records.DATA_SETS["boston"].with_form("uci/other", (File("all.csv"),))
    monkeypatch.setitem(records.DATA_SETS, "boston", record)
    other = write(local.parents[1] / "other", {"all.csv": b"1,2"})
    assert data.locate("boston") == other
    write(local, TABLE)
    assert data.locate("boston") == local


def test_a_file_without_checksum_is_never_downloaded():
    with pytest.raises(
        ValueError, match=r"must have a checksum, but data\.txt of 'boston' have none; give their sha256"
    ):
        replace(records.DATA_SETS["boston"], files=(File("data.txt", None),))


# Nothing there, and no network


def test_without_pooch_the_message_says_how_to_get_it_and_how_to_do_without(register, monkeypatch, cache):
    register(source=WebFolder(("https://example.org/tiny",)))
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(DataSetError) as caught:
        data.locate("boston")
    message = str(caught.value)
    assert "DEGP_DATA is not set" in message and "pip install 'degp[data]'" in message
    assert "copy data.txt, index_features.txt, index_target.txt from https://example.org/tiny" in message
    assert f"to <folder>/{FOLDER} and set DEGP_DATA=<folder>" in message


def test_without_network_the_message_names_the_missing_files_and_the_source(local, register, cache):
    pytest.importorskip("pooch")
    register(source=WebFolder((nowhere(), nowhere())))
    write(local, {"data.txt": TABLE["data.txt"]})
    both = [f"{re.escape(url)}/data.txt failed" for url in records.DATA_SETS["boston"].source.urls]
    missing = f"the folder {re.escape(str(local))} of DEGP_DATA has no index_features.txt and no index_target.txt"
    with pytest.raises(DataSetError, match=f"{missing}.*{'.*'.join(both)}.*set DEGP_DATA=<folder>"):
        data.locate("boston")
    assert files_below(cache) == []


@pytest.mark.parametrize("name, hint", [("bostn", "did you mean 'boston'"), ("§", "see as_batch")])
def test_unknown_names_are_answered_with_the_known_ones(name, hint):
    with pytest.raises(DataSetError, match=f"must be one of boston, concrete.*, but it is '{name}'; .*{hint}"):
        data.locate(name)


# Downloads


def test_downloads_land_in_the_cache_once(server, cache, register):
    pytest.importorskip("pooch")
    web, url, asked = server
    write(web / "tiny", TABLE)
    register(source=WebFolder((f"{url}/tiny/",)))
    folder = data.locate("boston")
    assert folder == cache / FOLDER and data.locate("boston") == folder
    assert {path.name: path.read_bytes() for path in files_below(cache)} == TABLE
    assert sorted(asked) == [f"/tiny/{name}" for name in sorted(TABLE)]


def test_a_mirror_stands_in_for_a_dead_or_a_false_address(server, register):
    pytest.importorskip("pooch")
    web, url, _ = server
    write(web / "good", TABLE)
    write(web / "false", TABLE | {"data.txt": b"<html>moved</html>"})
    register(source=WebFolder((nowhere(), f"{url}/false", f"{url}/good")))
    assert_close(data.uci("boston").targets, torch.tensor(TARGETS))


@pytest.mark.parametrize("served", [{"data.txt": TABLE["data.txt"][:20]}, {"index_target.txt": b"2\n"}])
def test_a_download_with_another_checksum_leaves_no_such_file(server, cache, register, served):
    pytest.importorskip("pooch")
    web, url, _ = server
    write(web, TABLE | served)
    register(source=WebFolder((url,)))
    (name,) = served
    with pytest.raises(DataSetError, match=rf"{url}/{name} failed \(SHA256 hash of downloaded file .* does not match"):
        data.locate("boston")
    assert all(path.read_bytes() == TABLE[path.name] for path in files_below(cache))
    assert not (cache / FOLDER / name).exists()


def test_a_page_that_is_gone_leaves_nothing(server, cache, register):
    pytest.importorskip("pooch")
    _, url, _ = server
    register(source=WebFolder((f"{url}/gone",)))
    with pytest.raises(DataSetError, match="404"):
        data.locate("boston")
    assert files_below(cache) == []


def test_a_damaged_cache_is_put_right(server, cache, register):
    pytest.importorskip("pooch")
    web, url, asked = server
    write(web, TABLE)
    write(cache / FOLDER, TABLE | {"data.txt": b"0.5 18"})
    register(source=WebFolder((url,)))
    assert (data.locate("boston") / "data.txt").read_bytes() == TABLE["data.txt"]
    assert asked == ["/data.txt"]


def packed(contents):
    """A .tar.gz with the files in a folder `inside`, among others."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in {"readme.html": b"hello", **contents}.items():
            info = tarfile.TarInfo(f"inside/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def test_an_archive_gives_its_files(server, cache, register):
    pytest.importorskip("pooch")
    web, url, _ = server
    archive = packed(TABLE)
    write(web, {"tiny.tar.gz": archive})
    register(source=WebArchive((f"{url}/tiny.tar.gz",), hashlib.sha256(archive).hexdigest(), "inside"))
    folder = data.locate("boston")
    assert {path: path.read_bytes() for path in files_below(cache)} == {folder / name: TABLE[name] for name in TABLE}


def test_the_checksum_of_an_archive_vouches_for_its_files(server, cache, register):
    pytest.importorskip("pooch")
    web, url, _ = server
    archive = packed(TABLE)
    write(web, {"tiny.tar.gz": archive})
    source = WebArchive((f"{url}/tiny.tar.gz",), None, "inside", md5=hashlib.md5(archive).hexdigest())
    register(files=tuple(File(name) for name in TABLE), source=source)
    assert {path.name: path.read_bytes() for path in files_below(data.locate("boston"))} == TABLE
    register(files=tuple(File(f"more-{name}") for name in TABLE), source=replace(source, md5="0" * 32))
    with pytest.raises(DataSetError, match=r"MD5 hash of downloaded file .* does not match"):
        data.locate("boston")


@pytest.mark.parametrize(
    "contents, message",
    [
        (TABLE | {"data.txt": b"1 2 3"}, "must have the sha256"),
        ({"index_target.txt": b"1\n"}, "must have a file inside/data.txt, but it has inside/readme.html, inside/index"),
    ],
)
def test_an_archive_with_other_files_leaves_none_of_them(server, cache, register, contents, message):
    pytest.importorskip("pooch")
    web, url, _ = server
    archive = packed(contents)
    write(web, {"tiny.tar.gz": archive})
    register(source=WebArchive((f"{url}/tiny.tar.gz",), hashlib.sha256(archive).hexdigest(), "inside"))
    with pytest.raises(DataSetError, match=message):
        data.locate("boston")
    assert files_below(cache) == []


# Records


def test_records_are_complete():
    for name, record in records.DATA_SETS.items():
        assert name == record.name
        assert all(re.fullmatch("[0-9a-f]{64}", file.sha256) for file in record.files if file.sha256)
        assert record.licence and record.description and record.homepage.startswith("http")


def test_descriptions_are_json_and_say_where_the_files_are(local, cache, register):
    register()
    before = {row["name"]: row for row in data.describe_all()}
    assert tuple(before) == tuple(records.DATA_SETS) and before["boston"]["path"] is None
    write(cache / FOLDER, TABLE)
    after = {row["name"]: row for row in json.loads(json.dumps(data.describe_all()))}
    assert after["boston"] == before["boston"] | {"path": str(cache / FOLDER)}


def test_a_tilde_in_the_local_copy_is_home(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DEGP_DATA", "~/sets")
    assert registry.local_copy() == tmp_path / "sets"


# The UCI tables


def test_uci_reads_features_and_target(local, register):
    register()
    write(local, TABLE)
    batch = data.uci("boston")
    assert_close(batch.inputs, torch.tensor(INPUTS))
    assert_close(batch.targets, torch.tensor(TARGETS))
    assert batch.population == 4


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"data.txt": b"1 2 3\n4 5"}, r"same number of numbers.*data\.txt.*cut short"),
        ({"data.txt": b"1 2 3\n4 five 6"}, r"same number of numbers.*data\.txt.*'five'"),
        ({"data.txt": b"1 2 3\n4 5 nan"}, "must be finite, but .*has 1 that are not, the first in row 1, column 2"),
        ({"data.txt": b"1 2 3\n4 5 6"}, "must have 4 rows of 2 features, but .* has 2 rows of 2"),
        ({"data.txt": b""}, "is one of the two files cut short"),
        ({"data.txt": b"1 2\n3 4"}, r"whole numbers from 0 to 1, but it lists \[0.0, 2.0\]"),
        ({"index_features.txt": b""}, r"index_features\.txt must list columns.*but it lists \[\]"),
        ({"index_features.txt": b"0\n1.5\n"}, r"index_features\.txt must list columns of data\.txt, whole numbers"),
        ({"index_features.txt": b"0\n0\n"}, r"features \[0, 0\] and target \[1\]"),
        ({"index_target.txt": b"2\n"}, r"must differ, but .* features \[0, 2\] and target \[2\]"),
        ({"index_target.txt": b"1\n2\n"}, "there must be one target column"),
        ({"index_target.txt": b"-1\n"}, r"index_target\.txt must list columns"),
    ],
)
def test_uci_refuses_tables_that_are_not_what_they_should_be(local, register, changes, message):
    register(TABLE | changes)
    write(local, TABLE | changes)
    with pytest.raises(DataSetError, match=message):
        data.uci("boston")


def test_uci_refuses_other_kinds_of_data(monkeypatch):
    monkeypatch.setitem(records.DATA_SETS, "images", replace(records.DATA_SETS["boston"], name="images"))
    with pytest.raises(DataSetError, match=r"a UCI set must be one of boston.*but it is 'images'"):
        data.uci("images")


# Folds


@given(
    kinds=st.lists(st.integers(0, 12), min_size=2, max_size=40),
    fraction=st.floats(0.01, 0.99),
    seed=st.integers(0, 50),
)
def test_rows_held_out_are_all_the_others_and_twins_stay_together(kinds, fraction, seed):
    table = torch.tensor(kinds, dtype=torch.float32)[:, None] * torch.tensor([1.0, -0.3]) + 0.1
    data = Batch(table, torch.arange(len(kinds)))
    train, held_out = hold_out_rows(data, fraction, generator=torch.Generator().manual_seed(seed))
    N, counts = len(kinds), Counter(kinds)
    assert min(len(train), len(held_out)) > 0
    assert sorted([*train.targets.tolist(), *held_out.targets.tolist()]) == list(range(N))
    assert torch.equal(table[train.targets], train.inputs) and torch.equal(table[held_out.targets], held_out.inputs)
    asked = min(max(round(fraction * N), 1), N - 1)
    if len(counts) > N / 2:
        ours, theirs = ({kinds[row] for row in part.targets.tolist()} for part in (train, held_out))
        assert not ours & theirs
        assert abs(len(held_out) - asked) <= max(counts.values())
    else:
        assert len(held_out) == asked


def test_rows_are_held_out_by_chance():
    data = Batch(torch.randn(200, 3), torch.arange(200))
    parts = [hold_out_rows(data, 0.2, generator=torch.Generator().manual_seed(seed))[1].targets for seed in (0, 0, 1)]
    assert torch.equal(parts[0], parts[1]) and not torch.equal(parts[0].sort().values, parts[2].sort().values)
    often = torch.zeros(200)
    for seed in range(300):
        often[hold_out_rows(data, 0.2, generator=torch.Generator().manual_seed(seed))[1].targets] += 1
    assert often.mean() == 60 and 20 < often.min() and often.max() < 100  # binomial, six standard deviations


@given(num_rows=st.integers(2, 60), folds=st.integers(2, 7), seed=st.integers(0, 2**32))
def test_folds_test_every_row_once_and_train_on_the_others(num_rows, folds, seed):
    folds = min(folds, num_rows)
    splits = kfold(num_rows, folds, seed=seed)
    tested = torch.cat([test for _, test in splits])
    assert tested.sort().values.tolist() == list(range(num_rows))
    for train, test in splits:
        assert torch.cat([train, test]).sort().values.tolist() == list(range(num_rows))
        assert len(test) in (num_rows // folds, math.ceil(num_rows / folds))


def test_folds_are_contiguous_in_one_permutation_that_the_seed_decides():
    order = torch.cat([test for _, test in kfold(23, seed=3)])
    for i, (train, _) in enumerate(kfold(23, seed=3)):
        start, stop = [0, 5, 10, 15, 19][i], [5, 10, 15, 19, 23][i]
        assert_close(train, torch.cat([order[:start], order[stop:]]))
    assert not torch.equal(order, torch.cat([test for _, test in kfold(23, seed=4)]))


def test_folds_leave_the_global_generator_alone():
    before = torch.get_rng_state()
    kfold(10, seed=0)
    assert_close(torch.get_rng_state(), before)


@pytest.mark.parametrize("num_rows, folds", [(4, 5), (10, 1), (0, 2)])
def test_folds_need_rows(num_rows, folds):
    with pytest.raises(ValueError, match=f"{num_rows} rows are to make {folds} folds"):
        kfold(num_rows, folds, seed=0)


def test_a_subset_stands_for_itself():
    whole = Batch(torch.arange(10.0)[:, None], torch.arange(10.0)[:, None])
    part = subset(whole, torch.tensor([7, 2, 4]))
    assert part.inputs.flatten().tolist() == [7, 2, 4]
    assert part.population == 3


# Standardisation


def test_standardised_rows_have_mean_0_and_std_1(generator):
    x = torch.randn(50, 3, generator=generator, dtype=torch.float64) * torch.tensor([1e-3, 1, 1e6]) + 5
    z = Standardiser.fit(x).apply(x)
    assert_close(z.mean(0), torch.zeros(3, dtype=z.dtype))
    assert_close(z.std(0, correction=0), torch.ones(3, dtype=z.dtype))


def test_constant_features_become_0_and_come_back():
    x = torch.full((1000, 1), 0.1)  # a sum of 0.1s rounds, so that its std comes out as 1e-17 and not as 0
    scale = Standardiser.fit(x)
    assert scale.std == (1,)
    assert_close(scale.apply(x), torch.zeros_like(x))
    assert_close(scale.undo(scale.apply(x)), x)


def test_other_rows_are_measured_by_the_fitted_ones():
    scale = Standardiser.fit(torch.tensor([[0.0], [2.0]]))
    assert scale == Standardiser((1.0,), (1.0,))
    assert_close(scale.apply(torch.tensor([[11.0]])), torch.tensor([[10.0]]))


@pytest.mark.parametrize("shape", [(7, 2), (3, 7, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_undo_undoes(shape, dtype, generator):
    scale = Standardiser((10.0, -3.0), (0.1, 20.0))
    x = torch.randn(*shape, generator=generator, dtype=dtype)
    assert_close(scale.undo(scale.apply(x)), x, rtol=1e-5, atol=1e-5)
    assert_close(scale.apply(scale.undo(x)), x, rtol=1e-4, atol=1e-4)
    assert_close(scale.undo_std(x), scale.undo(x) - scale.undo(torch.zeros_like(x)), rtol=1e-5, atol=1e-5)


def test_standardisers_survive_json(generator):
    scale = Standardiser.fit(torch.randn(9, 4, generator=generator))
    assert Standardiser.from_json(json.loads(json.dumps(scale.to_json()))) == scale


def test_standardisers_refuse_what_they_cannot_scale():
    with pytest.raises(ValueError, match="1 of 2 rows have NaN"):
        Standardiser.fit(torch.tensor([[1.0], [math.nan]]))
    with pytest.raises(ValueError, match=r"the 1 features that were fitted, but the shape is \(2, 3\)"):
        Standardiser((0.0,), (1.0,)).apply(torch.ones(2, 3))
    with pytest.raises(ValueError, match="one positive std for each feature"):
        Standardiser((0.0,), (0.0,))
