"""What the site needs beside Markdown: formulas as MathML, and the files outside `docs/` that pages link to.

Formulas are converted when the site is built, and browsers draw them: no script, no fonts from elsewhere. One
that is not understood is an error.
"""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import TYPE_CHECKING

from math_core import LatexToMathML
from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page
    from mkdocs.structure.toc import AnchorLink

ROOT = Path(__file__).parents[1]
OUTSIDE = re.compile(r"\]\(\.\./([^)#]+)\)")
FORMULA = re.compile(r"\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
MARKED = re.compile(r'(?<=class="arithmatex">).+?(?=</(?:span|div)>)', re.DOTALL)
CONVERTER = LatexToMathML()


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the files of the repository that pages link to, under their own paths."""
    for page in list(files.documentation_pages()):
        for path in OUTSIDE.findall(page.content_string):
            if (ROOT / path).is_file() and files.get_file_from_path(path) is None:
                files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    """Links out of `docs/` lead to those copies; a folder has none, and its name stays as text."""

    def link(match: re.Match[str]) -> str:
        text, path = match[1], match[2]
        return text if (ROOT / path).is_dir() else f"[{text}]({path})"

    return re.sub(r"(?<!!)\[([^\[\]]+)" + OUTSIDE.pattern, link, markdown)


def on_page_content(content: str, *, page: Page, **_: object) -> str:
    """Draws the formulas of the page and of its table of contents."""

    def titles(items: list[AnchorLink]) -> None:
        for item in items:
            item.title = FORMULA.sub(mathml, item.title)
            titles(item.children)

    titles(page.toc.items)
    return MARKED.sub(lambda match: FORMULA.sub(mathml, match[0]), content)


def mathml(match: re.Match[str]) -> str:
    """The MathML of a formula in LaTeX, as HTML has it."""
    inline, display = match.groups()
    return CONVERTER.convert_with_local_state(html.unescape(inline or display), displaystyle=inline is None)
