"""Links of the first page, as a package index shows it."""

from pathlib import Path

import hatch_build

TEXT = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_relative_links_lead_into_the_repository_at_the_tag():
    text = '[FAQ](docs/faq.md), ![plot](a/b.png), <img src="c.svg" alt="">, [paper](https://arxiv.org), [below](#end)'
    assert hatch_build.absolute(text, "https://host/owner/degp/", "v1.2") == (
        "[FAQ](https://host/owner/degp/blob/v1.2/docs/faq.md), ![plot](https://host/owner/degp/raw/v1.2/a/b.png), "
        '<img src="https://host/owner/degp/raw/v1.2/c.svg" alt="">, [paper](https://arxiv.org), [below](#end)'
    )


def test_no_link_of_the_first_page_stays_relative():
    assert "docs/images/demo.png" in hatch_build.relative_links(TEXT)
    assert not hatch_build.relative_links(hatch_build.absolute(TEXT, "https://host/owner/degp", "v1.2"))
