"""The page of a report: safe whatever names are in it, offline, small, and sane for keyboards and screen readers."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest

from autotune.model import SearchState
from autotune.report.page import html
from autotune.report.page.build import build_view
from autotune.report.page.figures import figures
from autotune.report.page.html import render_html
from autotune.report.page.view import View
from tests.cli.results import PROBES, RECORD, failing
from tests.unit.report_pages import HOSTILE, RECORDING, Page, hostile, many, phases, tuned, without_answer

STYLE = (Path(html.__file__).parent / "templates" / "report.css").read_text()


def views() -> dict[str, View]:
    """One of each kind of report."""
    return {
        "tuned": build_view(*tuned()),
        "hostile": build_view(*hostile()),
        "batch": build_view(RECORD, (RECORDING, *(phases(p) if p.fits else p for p in PROBES))),
        "nothing fits": without_answer((failing(1),)),
        "interrupted": without_answer(PROBES[:2], SearchState.INTERRUPTED),
        "empty": without_answer((), SearchState.RUNNING),
        "lost": build_view(RECORD, PROBES[:3]),
    }


KINDS = list(views())


@cache
def page(kind: str) -> Page:
    return Page.read(text(kind))


@cache
def text(kind: str) -> str:
    return render_html(views()[kind])


def specs(kind: str) -> dict[str, Any]:
    (data,) = [s for s, given in zip(page(kind).scripts, page(kind).of("script"), strict=True) if given.get("id")]
    read: dict[str, Any] = json.loads(data)
    return read


def test_hostile_text_makes_no_element_no_attribute_and_no_script() -> None:
    there, plain = page("hostile"), page("tuned")
    assert {tag for tag, _ in there.tags} <= {tag for tag, _ in plain.tags} | {"pre", "p"}
    assert not [name for _, given in there.tags for name in given if name.startswith("on")]
    assert there.scripts[1:] == plain.scripts[1:]
    assert len(there.scripts) == 3
    assert there.title.startswith(HOSTILE.partition("\u2028")[0])  # shown as it is, in full
    assert "{{ 7 * 7 }}" in there.text and "49%{x}" not in there.text


def test_hostile_text_cannot_end_the_data_of_the_plots() -> None:
    (raw,) = re.findall(r'<script type="application/json" id="plots">(.*?)</script>', text("hostile"), re.DOTALL)
    assert not set("<>&'") & set(raw)
    json.loads(raw)


def test_labels_of_plots_are_text_to_plotly_and_no_markup_of_its_own() -> None:
    labels = [label for spec in specs("hostile").values() for label in strings(spec)]
    assert any("precision=bf16" in label for label in labels)
    assert {tag for label in labels for tag in re.findall(r"<[^>]*>", label)} <= {"<br>", "<extra>", "</extra>"}


def test_not_even_words_of_settings_are_trusted_in_labels() -> None:
    """They cannot hold such text as long as the model checks them; plots do not rely on that."""
    view = build_view(*tuned())
    view = replace(
        view,
        trades=tuple(replace(one, settings=HOSTILE) for one in view.trades),
        times=tuple(replace(one, settings=HOSTILE) for one in view.times),
        memory=tuple(replace(one, settings=HOSTILE) for one in view.memory),
    )
    labels = [label for figure in figures(view) for label in strings(figure.spec)]
    assert any("&lt;/script" in label for label in labels)
    assert {tag for label in labels for tag in re.findall(r"<[^>]*>", label)} <= {"<br>", "<extra>", "</extra>"}
    assert Page.read(render_html(view)).of("img") == []


def strings(value: object) -> list[str]:
    if isinstance(value, dict):
        return [found for one in value.values() for found in strings(one)]
    if isinstance(value, list):
        return [found for one in value for found in strings(one)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_fetched_from_anywhere(kind: str) -> None:
    there = page(kind)
    for tag, given in there.tags:
        for name in ("src", "href", "action", "data", "srcset", "poster", "xlink:href"):
            address = given.get(name)
            assert address is None or address.startswith("#") or address == "data:,", (tag, given)
    assert "@import" not in STYLE and "url(" not in STYLE
    (policy,) = [m["content"] or "" for m in there.of("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    assert not re.search(r"https?:|\*|unsafe-eval|script-src[^;]*unsafe-inline", policy)


@pytest.mark.parametrize("kind", KINDS)
def test_the_policy_allows_exactly_the_scripts_that_are_there(kind: str) -> None:
    there = page(kind)
    run = [s for s, given in zip(there.scripts, there.of("script"), strict=True) if not given.get("id")]
    (policy,) = [m["content"] or "" for m in there.of("meta") if m.get("http-equiv")]
    allowed = re.findall(r"'sha256-([^']+)'", policy)
    assert allowed == [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in run]


@pytest.mark.parametrize("kind", KINDS)
def test_landmarks_headings_and_tables_are_in_order(kind: str) -> None:
    there = page(kind)
    for landmark in ("header", "nav", "main", "footer"):
        assert len(there.of(landmark)) == 1
    assert there.of("html")[0]["lang"] == "en"
    levels = [level for level, _ in there.headings]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert all(words.strip() for _, words in there.headings)
    assert all(table["caption"] == 1 and table["th"] == table["scoped"] > 0 for table in there.tables)
    assert len(there.ids) == len(set(there.ids))
    links = [(given["href"] or "")[1:] for given in there.of("a")]
    assert set(links) <= set(there.ids)
    labelled = [given["aria-labelledby"] for given in there.of("section")]
    assert set(labelled) <= set(there.ids)


@pytest.mark.parametrize("kind", KINDS)
def test_every_plot_has_words_and_a_table_and_what_scrolls_takes_the_keyboard(kind: str) -> None:
    there = page(kind)
    plots = [given for given in there.of("div") if "data-plot" in given]
    assert [given["data-plot"] for given in plots] == [figure.name for figure in figures(views()[kind])]
    assert all(given["role"] == "img" and len(given["aria-label"] or "") > 30 for given in plots)
    assert len(there.of("figure")) == len(plots)
    assert len(there.tables) >= len(plots)
    scrolled = [given for given in there.of("div") if "scroll" in (given.get("class") or "").split()]
    assert all(given["tabindex"] == "0" and given["role"] == "region" and given["aria-label"] for given in scrolled)


@pytest.mark.parametrize("kind", ["tuned", "batch", "interrupted"])
def test_plotly_takes_every_figure_once_its_colours_are_filled_in(kind: str) -> None:
    for spec in specs(kind).values():
        go.Figure(coloured(spec))


def coloured(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: coloured(one) for name, one in value.items()}
    if isinstance(value, list):
        return [coloured(one) for one in value]
    if isinstance(value, str) and value.startswith("@"):
        assert f"--{value[1:]}:" in STYLE, f"the style sheet has no {value}"
        return "#123456"
    return value


def test_a_report_without_plots_carries_no_script() -> None:
    assert page("empty").scripts == []
    assert len(text("empty")) < 20_000


def test_thousands_of_probes_make_no_huge_file() -> None:
    assert len(render_html(build_view(*many(5000))).encode()) < 8 << 20


def schemes() -> dict[str, dict[str, str]]:
    """Colours by name, light and dark."""
    light, dark = STYLE.split("@media (prefers-color-scheme: dark)", 1)
    found = [dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", part.split("* {")[0])) for part in (light, dark)]
    return {"light": found[0], "dark": found[0] | found[1]}


def contrast(a: str, b: str) -> float:
    """By WCAG 2: 1 to 21."""

    def luminance(colour: str) -> float:
        channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_on_everything_it_stands_on(scheme: str) -> None:
    """WCAG 2 AA: 4.5 for text; 3 for what is drawn and means something."""
    colours = schemes()[scheme]
    for words in ("text", "muted", "accent", "good", "bad", "doubt"):
        for ground in ("page", "surface", "accent-soft", "raised"):
            if ground == "accent-soft" and words == "muted":
                continue  # a tile in that colour has its notes in the colour of text
            assert contrast(colours[words], colours[ground]) >= 4.5, (words, ground)
    for mark in (
        "accent",
        "good",
        "bad",
        "yours",
        "other",
        "weights",
        "activations",
        "process",
        "gradients",
        "optimizer",
    ):
        assert contrast(colours[mark], colours["surface"]) >= 3, mark
    for band in ("band-a", "band-b"):
        assert contrast(colours["muted"], colours[band]) >= 4.5, band
    assert contrast(colours["ink"], colours["activations"]) >= 4.5


def test_motion_is_only_for_those_who_want_it() -> None:
    quiet = re.sub(r"@media \(prefers-reduced-motion: no-preference\) \{.*?\n\}", "", STYLE, flags=re.DOTALL)
    assert not re.search(r"transition|animation|scroll-behavior", quiet)
    assert ":focus-visible" in STYLE
