"""The page in Chromium: on a telephone and on a wide screen, in light and in dark."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest
from matplotlib.image import imread

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium on this machine: the page was not opened in a browser"
)

MEASURE = """
const frame = document.querySelector("iframe");
frame.onload = () => {
  const page = frame.contentDocument, width = page.documentElement.clientWidth, cut = [];
  page.querySelectorAll("details").forEach(e => e.open = true);
  for (const e of page.querySelectorAll("body *")) {
    const box = e.getBoundingClientRect();
    if (box.width && !e.closest(".values") && (box.right > width + 1 || box.left < -1))
      cut.push(e.tagName + " " + e.textContent.slice(0, 40));
    if (e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX !== "visible")
      cut.push("scrolls: " + e.tagName);
  }
  for (const svg of page.querySelectorAll("figure svg")) {
    const outer = svg.getBoundingClientRect();
    for (const text of svg.querySelectorAll("text:not(.values text)")) {
      const box = text.getBoundingClientRect();
      if (box.left < outer.left - 4 || box.right > outer.right + 4) cut.push("text: " + text.textContent);
    }
  }
  const place = page.querySelector(".values .place .shown");
  document.title = "done";
  document.body.append(JSON.stringify({
    width, cut, scroll: page.documentElement.scrollWidth,
    text: getComputedStyle(page.body).color, page: getComputedStyle(page.body).backgroundColor,
    figures: [...page.querySelectorAll("figure svg")].map(e => e.getBoundingClientRect().width),
    label: getComputedStyle(page.querySelector("figure svg text")).fill,
    hidden: getComputedStyle(place).visibility,
  }));
};
"""


def browse(folder, address, *action, dark=False, width=1400):
    options = (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
        "--disable-component-update --disable-sync --hide-scrollbars --allow-file-access-from-files "
        f"--virtual-time-budget=5000 --window-size={width},1400 --enable-logging=stderr "
        f"--blink-settings=preferredColorScheme={0 if dark else 1} --user-data-dir={folder / 'profile'}"
    ).split()
    command = [str(CHROMIUM), *options, *action, address]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=180, check=True)
    assert "CONSOLE" not in shown.stderr, shown.stderr
    return shown.stdout


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1400])
def test_nothing_is_cut(page, tmp_path, width, dark):
    wrapper = tmp_path / "wrapper.html"
    wrapper.write_text(
        f'<!doctype html><iframe src="{page.as_uri()}" style="width: {width}px; height: 900px; border: 0">'
        f"</iframe><script>{MEASURE}</script>"
    )
    dom = browse(tmp_path, wrapper.as_uri(), "--dump-dom", dark=dark, width=1500)
    found = json.loads(re.search(r"\{.*\}(?=</body>)", dom)[0].replace("&amp;", "&"))
    assert found["cut"] == []
    assert found["width"] == found["scroll"] == width
    assert all(200 < figure <= min(width, 520) for figure in found["figures"])
    assert found["hidden"] == "hidden"  # values show under the pointer alone
    luminance = [sum(map(int, re.findall(r"\d+", found[key])[:3])) / 765 for key in ("text", "page")]
    assert (luminance[0] > 0.8 > 0.2 > luminance[1]) if dark else (luminance[0] < 0.2 < 0.8 < luminance[1])
    assert found["label"] == found["text"]


def test_a_browser_shows_the_page(page, tmp_path):
    picture = tmp_path / "page.png"
    browse(tmp_path, page.as_uri(), f"--screenshot={picture}")
    pixels = imread(picture)[..., :3]
    # The curves' colours are on the screen: blue of the first recipe, vermilion of the second.
    for colour in ((0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)):
        distance = abs(pixels * 255 - colour).max(axis=-1)
        assert (distance < 12).sum() > 200
    # What the browser made of it: every section, and a figure of real size for each drawing.
    dom = browse(tmp_path, page.as_uri(), "--dump-dom")
    assert dom.count("<figure") == dom.count("</svg>") == len(list(page.parent.glob("*.png")))
    for title in ("Results", "Curves", "Diagnostics", "Configuration", "Environment"):
        assert f"<h2>{title}</h2>" in dom
