"""Data sets are found in a local copy, the cache or on the web, complete and verified, or not at all."""

import hashlib
import io
import json
import re
import socket
import sys
import tarfile
import threading
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch
from torch.testing import assert_close

from experiments import data
from experiments.data import DataSetError, records, registry
from experiments.data.sources import File, WebArchive, WebFolder

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
    """The URL of a port without a server."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        self.server.requested.append(self.path)


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
    """Registers a tiny set under the name boston, by default with the right files."""

    def put(contents=TABLE, **changes):
        tiny = replace(records.DATA_SETS["boston"], rows=4, features=(2,), folder=FOLDER, files=files_of(contents))
        changes = {"source": WebFolder((nowhere(),))} | changes
        monkeypatch.setitem(records.DATA_SETS, "boston", replace(tiny, **changes))

    return put


@pytest.fixture
def server(tmp_path):
    """A folder on the web: (its path here, its URL, the requested paths)."""
    folder = tmp_path / "web"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=folder)) as httpd:
        httpd.requested = []
        threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield folder, f"http://127.0.0.1:{httpd.server_port}", httpd.requested
        httpd.shutdown()


# Local copies


def test_the_local_copy_is_used_in_place(local, cache, register):
    register()
    write(local, TABLE)
    assert data.locate("boston") == local
    assert not cache.exists()


def test_the_local_copy_takes_precedence_over_the_cache(local, cache, register):
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
def test_a_truncated_or_changed_local_copy_is_rejected(local, cache, register, content):
    register()
    write(local, TABLE | {"data.txt": content})
    found = hashlib.sha256(content).hexdigest()
    message = f"{local / 'data.txt'} must have the sha256 .*, but its {len(content)} bytes have {found}: it is damaged"
    with pytest.raises(DataSetError, match=message):
        data.locate("boston")
    assert not cache.exists()


def test_a_file_without_checksum_may_have_any_bytes(local, register):
    register(files=(File("test.mat", None),), source=None)
    write(local, {"test.mat": b"rebuilt"})
    assert data.locate("boston") == local


def test_a_file_without_checksum_must_exist(local, register):
    register(files=(File("test.mat", None),), source=None)
    with pytest.raises(DataSetError, match=r"has no test\.mat, .* it has no download address"):
        data.locate("boston")


def test_an_md5_replaces_an_unknown_sha256(local, register):
    content = TABLE["data.txt"]
    register(files=(File("data.txt", md5=hashlib.md5(content).hexdigest()),))
    write(local, {"data.txt": content})
    assert data.locate("boston") == local
    write(local, {"data.txt": content + b"1 2 3"})
    with pytest.raises(DataSetError, match=r"data\.txt must have the md5 [0-9a-f]{32}, but its"):
        data.locate("boston")


def test_a_rebuilt_file_is_accepted_from_a_local_copy_only(local, cache, register):
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


def test_the_local_copy_may_have_another_format(local, register, monkeypatch):
    register()
    record = records.DATA_SETS["boston"].with_format("uci/other", (File("all.csv"),))
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


# No files and no network


def test_without_pooch_the_error_suggests_an_install_or_a_manual_copy(register, monkeypatch, cache):
    register(source=WebFolder(("https://example.org/tiny",)))
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(DataSetError) as caught:
        data.locate("boston")
    message = str(caught.value)
    assert "DEGP_DATA is not set" in message and "pip install 'degp[data]'" in message
    assert "copy data.txt, index_features.txt, index_target.txt from https://example.org/tiny" in message
    assert f"to <folder>/{FOLDER} and set DEGP_DATA=<folder>" in message


def test_without_network_the_error_names_the_missing_files_and_the_source(local, register, cache):
    pytest.importorskip("pooch")
    register(source=WebFolder((nowhere(), nowhere())))
    write(local, {"data.txt": TABLE["data.txt"]})
    both = [f"{re.escape(url)}/data.txt failed" for url in records.DATA_SETS["boston"].source.urls]
    missing = f"the folder {re.escape(str(local))} of DEGP_DATA has no index_features.txt and no index_target.txt"
    with pytest.raises(DataSetError, match=f"{missing}.*{'.*'.join(both)}.*set DEGP_DATA=<folder>"):
        data.locate("boston")
    assert files_below(cache) == []


@pytest.mark.parametrize("name, hint", [("bostn", "did you mean 'boston'"), ("§", "degp.data.as_batch")])
def test_an_unknown_name_raises_an_error_that_lists_the_known_ones(name, hint):
    with pytest.raises(DataSetError, match=f"must be one of boston, concrete.*, but it is '{name}'; .*{hint}"):
        data.locate(name)


# Downloads


def test_downloads_are_cached(server, cache, register):
    pytest.importorskip("pooch")
    web, url, requested = server
    write(web / "tiny", TABLE)
    register(source=WebFolder((f"{url}/tiny/",)))
    folder = data.locate("boston")
    assert folder == cache / FOLDER and data.locate("boston") == folder
    assert {path.name: path.read_bytes() for path in files_below(cache)} == TABLE
    assert sorted(requested) == [f"/tiny/{name}" for name in sorted(TABLE)]


def test_a_mirror_is_used_if_another_fails_or_has_wrong_bytes(server, register):
    pytest.importorskip("pooch")
    web, url, _ = server
    write(web / "good", TABLE)
    write(web / "false", TABLE | {"data.txt": b"<html>moved</html>"})
    register(source=WebFolder((nowhere(), f"{url}/false", f"{url}/good")))
    assert_close(data.uci("boston").targets, torch.tensor(TARGETS))


@pytest.mark.parametrize("served", [{"data.txt": TABLE["data.txt"][:20]}, {"index_target.txt": b"2\n"}])
def test_a_download_with_a_wrong_checksum_leaves_no_file(server, cache, register, served):
    pytest.importorskip("pooch")
    web, url, _ = server
    write(web, TABLE | served)
    register(source=WebFolder((url,)))
    (name,) = served
    with pytest.raises(DataSetError, match=rf"{url}/{name} failed \(SHA256 hash of downloaded file .* does not match"):
        data.locate("boston")
    assert all(path.read_bytes() == TABLE[path.name] for path in files_below(cache))
    assert not (cache / FOLDER / name).exists()


def test_a_missing_page_leaves_no_file(server, cache, register):
    pytest.importorskip("pooch")
    _, url, _ = server
    register(source=WebFolder((f"{url}/gone",)))
    with pytest.raises(DataSetError, match="404"):
        data.locate("boston")
    assert files_below(cache) == []


def test_a_damaged_cache_is_repaired(server, cache, register):
    pytest.importorskip("pooch")
    web, url, requested = server
    write(web, TABLE)
    write(cache / FOLDER, TABLE | {"data.txt": b"0.5 18"})
    register(source=WebFolder((url,)))
    assert (data.locate("boston") / "data.txt").read_bytes() == TABLE["data.txt"]
    assert requested == ["/data.txt"]


def archived(contents):
    """A .tar.gz with the files, and others, in a folder `inside`."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in {"readme.html": b"hello", **contents}.items():
            info = tarfile.TarInfo(f"inside/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def test_files_are_extracted_from_an_archive(server, cache, register):
    pytest.importorskip("pooch")
    web, url, _ = server
    archive = archived(TABLE)
    write(web, {"tiny.tar.gz": archive})
    register(source=WebArchive((f"{url}/tiny.tar.gz",), hashlib.sha256(archive).hexdigest(), "inside"))
    folder = data.locate("boston")
    assert {path: path.read_bytes() for path in files_below(cache)} == {folder / name: TABLE[name] for name in TABLE}


def test_the_checksum_of_an_archive_covers_its_files(server, cache, register):
    pytest.importorskip("pooch")
    web, url, _ = server
    archive = archived(TABLE)
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
def test_an_archive_with_wrong_files_leaves_no_file(server, cache, register, contents, message):
    pytest.importorskip("pooch")
    web, url, _ = server
    archive = archived(contents)
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


def test_descriptions_can_be_written_as_json_and_have_the_path(local, cache, register):
    register()
    before = {row["name"]: row for row in data.describe_all()}
    assert tuple(before) == tuple(records.DATA_SETS) and before["boston"]["path"] is None
    write(cache / FOLDER, TABLE)
    after = {row["name"]: row for row in json.loads(json.dumps(data.describe_all()))}
    assert after["boston"] == before["boston"] | {"path": str(cache / FOLDER)}


def test_a_tilde_in_the_local_copy_is_expanded(monkeypatch, tmp_path):
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
        ({"data.txt": b"1 2 3\n4 5"}, r"same number of values.*data\.txt.*truncated"),
        ({"data.txt": b"1 2 3\n4 five 6"}, r"same number of values.*data\.txt.*'five'"),
        ({"data.txt": b"1 2 3\n4 5 nan"}, "must be finite, but .*has 1 that are not, the first in row 1, column 2"),
        ({"data.txt": b"1 2 3\n4 5 6"}, "must have 4 rows of 2 features, but .* has 2 rows of 2"),
        ({"data.txt": b""}, "is one of the two files truncated"),
        ({"data.txt": b"1 2\n3 4"}, r"integers from 0 to 1, but it lists \[0.0, 2.0\]"),
        ({"index_features.txt": b""}, r"index_features\.txt must list columns.*but it lists \[\]"),
        ({"index_features.txt": b"0\n1.5\n"}, r"index_features\.txt must list columns of data\.txt, integers"),
        ({"index_features.txt": b"0\n0\n"}, r"features \[0, 0\] and target \[1\]"),
        ({"index_target.txt": b"2\n"}, r"distinct features, but .* features \[0, 2\] and target \[2\]"),
        ({"index_target.txt": b"1\n2\n"}, "there must be one target column"),
        ({"index_target.txt": b"-1\n"}, r"index_target\.txt must list columns"),
    ],
)
def test_uci_rejects_invalid_tables(local, register, changes, message):
    register(TABLE | changes)
    write(local, TABLE | changes)
    with pytest.raises(DataSetError, match=message):
        data.uci("boston")


def test_uci_rejects_other_data_sets(monkeypatch):
    monkeypatch.setitem(records.DATA_SETS, "images", replace(records.DATA_SETS["boston"], name="images"))
    with pytest.raises(DataSetError, match=r"a UCI set must be one of boston.*but it is 'images'"):
        data.uci("images")
