"""The site of `make docs`: built without a warning, drawn without a network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


class Loaded(HTMLParser):
    """The addresses of what a browser fetches to draw a page."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(page.read_text())

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag == "link" and given.get("rel") not in ("canonical", "next", "prev"):
            self.addresses.append(given["href"])
        elif tag in ("script", "img", "iframe") and "src" in given:
            self.addresses.append(given["src"])


def test_pages_load_nothing_from_elsewhere(site):
    pages = [
        page for page in site.rglob("*.html") if page.name != "404.html"
    ]  # its addresses are the server's
    assert len(pages) > 8
    for page in pages:
        addresses = Loaded(page).addresses
        assert addresses
        for address in addresses:
            assert (page.parent / address.split("?")[0]).is_file(), f"{page.name} loads {address}"


def test_every_formula_is_drawn(site):
    source = (ROOT / "docs/mathematics.md").read_text()
    displayed = source.count("$$") // 2
    inline = re.sub(r"\$\$.*?\$\$", "", source, flags=re.DOTALL).count("$") // 2
    page = (site / "mathematics.html").read_text()
    article = page[page.index("<article") : page.index("</article>")]
    assert article.count('display="block"') == displayed > 0
    assert article.count("<math") == displayed + inline
    for name in ("index", "mathematics"):  # no LaTeX is left, in the table of contents neither
        text = re.sub(r"<(code|script)\b.*?</\1>", "", (site / f"{name}.html").read_text(), flags=re.DOTALL)
        assert not re.search(r"\\[(\[a-z]", text)


def test_the_reference_has_every_public_name(site):
    import entropy_sgd
    from entropy_sgd import landscape

    page = (site / "reference.html").read_text()
    names = [f"entropy_sgd.{name}" for name in entropy_sgd.__all__ if name not in ("landscape", "scoping")]
    names += [f"entropy_sgd.landscape.{name}" for name in landscape.__all__ if name != "slices"]  # a module
    assert [name for name in names if f'id="{name}"' not in page] == []


def test_links_out_of_the_documentation_lead_to_copies(site):
    page = (site / "gallery.html").read_text()
    examples = set(re.findall(r'href="(examples/\w+\.py)"', page))
    assert "examples/lightning_fit.py" in examples
    for example in examples:
        assert (site / example).read_bytes() == (ROOT / example).read_bytes()
