"""Reports in a real browser: drawn at every width, light and dark, without an error, without the network, without a trick."""

import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from autotune.report.page.build import build_view
from autotune.report.page.html import render_html
from autotune.report.page.view import View
from tests.process.browser import needs_chromium, photograph, visit
from tests.unit.report_pages import Page, hostile, tuned

pytestmark = needs_chromium

AUDIT = """
addEventListener("load", () => setTimeout(() => {
  const root = document.documentElement, body = getComputedStyle(document.body);
  parent.postMessage(JSON.stringify({
    width: innerWidth,
    needed: root.scrollWidth,
    background: body.backgroundColor,
    text: body.color,
    plots: [...document.querySelectorAll("[data-plot]")].map((place) => ({
      name: place.dataset.plot,
      width: place.querySelector("svg.main-svg")?.clientWidth ?? 0,
      room: place.clientWidth,
      marks: place.querySelectorAll("svg.main-svg path").length,
      ground: place.querySelector("svg.main-svg")?.style.background ?? "",
    })),
    burst: [...document.querySelectorAll(".tile")].filter((one) => one.scrollWidth > one.clientWidth).length,
    small: [...document.querySelectorAll("a, summary")].filter((one) => one.offsetParent
      && one.getBoundingClientRect().height < 24 && !one.matches(".skip")).length,
  }), "*");
}, 500));
"""
"""What only a browser knows, told to the frame around the page."""
FRAME = """<!doctype html><title>frame</title>
<script>addEventListener("message", (told) => { document.documentElement.dataset.audit = told.data; });</script>
<iframe style="border: 0" src="report.html" width="WIDTH" height="900"></iframe>"""
"""A window of Chromium's is never narrower than 500 pixels."""


def framed(text: str, folder: Path, width: int) -> Path:
    """The page in a frame of this width, with the audit in it, which the page's policy would not let run."""
    policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
    loose = re.sub(r'(Content-Security-Policy" content=")[^"]*', rf"\1{policy}", text)
    (folder / "report.html").write_text(loose.replace("</body>", f"<script>{AUDIT}</script></body>"))
    (folder / "frame.html").write_text(FRAME.replace("WIDTH", str(width)))
    return folder / "frame.html"


def audit(dom: str) -> dict[str, Any]:
    """What it found."""
    (found,) = re.findall(r'data-audit="([^"]*)"', dom)
    read: dict[str, Any] = json.loads(unescape(found))
    return read


def with_long_figures(view: View) -> View:
    """As long as they come: 20.68 GiB, 1,234,567 samples a second, five digits of a batch."""
    assert view.answer is not None
    long = replace(view.answer, peak_bytes=22_209_691_648, samples_per_second=1_234_567.0, batch_size=65_536)
    return replace(view, answer=long)


@pytest.mark.parametrize(("width", "dark"), [(390, True), (820, False), (1280, True)])
def test_every_plot_is_drawn_within_the_page(width: int, dark: bool, tmp_path: Path) -> None:
    page = framed(render_html(with_long_figures(build_view(*tuned()))), tmp_path, width)
    shown = visit(page, tmp_path, width=max(width + 20, 500), dark=dark)
    found = audit(shown.dom)
    assert shown.console == ()
    assert found["width"] == width
    assert found["needed"] <= width, "it has to be scrolled sideways"
    assert found["background"] == ("rgb(15, 19, 24)" if dark else "rgb(245, 246, 248)")
    assert [plot["name"] for plot in found["plots"]] == ["trade", "memory-0", "memory-1", "step", "times"]
    ground = "rgb(23, 28, 35)" if dark else "rgb(255, 255, 255)"
    for plot in found["plots"]:
        assert 0 < plot["width"] <= plot["room"] <= width
        assert plot["marks"] > 3
        assert plot["ground"] == ground, "the plots do not follow the page's colours"
    assert found["burst"] == 0, "a figure is wider than its tile"
    assert found["small"] == 0, "what is to be tapped is too small"


def test_a_report_with_hostile_names_fetches_nothing_runs_nothing_and_says_nothing(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(render_html(build_view(*hostile())))
    shown = visit(page, tmp_path)
    assert shown.console == ()
    assert shown.fetched == ()
    there = Page.read(shown.dom)
    assert there.title != "pwned" and there.title.startswith("</script>")
    assert shown.dom.count("main-svg") >= 5
    drawn = {given.get("href") or given.get("xlink:href") or "" for given in there.of("a")}
    assert {address for address in drawn if not address.startswith("#")} == set()
    assert there.of("img") == []


def test_what_would_be_wrong_is_seen(tmp_path: Path) -> None:
    """Else the test above could not fail."""
    page = tmp_path / "wrong.html"
    page.write_text("<script>console.error('planted')</script><img src='http://127.0.0.1:9/planted.png'>")
    shown = visit(page, tmp_path)
    assert any("planted" in said for said in shown.console)
    assert any("127.0.0.1:9/planted.png" in url for url in shown.fetched)


def test_it_can_be_photographed(tmp_path: Path) -> None:
    page, picture = tmp_path / "report.html", tmp_path / "picture.png"
    page.write_text(render_html(build_view(*tuned())))
    assert photograph(page, picture, width=820, height=1400, dark=False) == (820, 1400)
    assert picture.stat().st_size > 50_000  # of one colour it would have a few thousand
