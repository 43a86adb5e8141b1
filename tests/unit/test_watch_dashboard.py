"""The Grafana dashboard: whole, without overlaps, and of metrics that there are. A test with a real server asks its queries."""

import json
import re
from typing import Any

import pytest

from autotune.watch.dashboard import dashboard_text
from autotune.watch.metrics import METRICS

DASHBOARD = json.loads(dashboard_text())
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
QUERIES = [target["expr"] for panel in PANELS for target in panel.get("targets", ())]


def test_every_metric_with_a_figure_is_shown_and_no_other() -> None:
    used = {name for query in QUERIES for name in re.findall(r"\bautotune_\w+", query)}
    info = {"autotune_device_info", "autotune_watch_info"}
    assert used == {one.name for one in METRICS} - info
    assert len(QUERIES) == len(set(QUERIES))


def test_every_query_is_of_the_chosen_machines() -> None:
    for query in QUERIES:
        names = re.findall(r"\bautotune_\w+", query)
        assert query.count('{instance=~"$instance"}') == len(names), query


def test_lines_of_several_machines_are_told_apart() -> None:
    drawn = [panel for panel in PANELS if panel["type"] in ("timeseries", "state-timeline")]
    assert all(one["legendFormat"].startswith("{{instance}}") for panel in drawn for one in panel["targets"])


def test_panels_have_titles_units_and_ids_and_do_not_overlap() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        assert panel["title"]
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not taken & cells and max(x for x, _ in cells) < 24
        taken |= cells
        if panel["type"] != "row":
            assert panel["fieldConfig"]["defaults"]["unit"]
            assert [target["refId"] for target in panel["targets"]] == list("ABCD"[: len(panel["targets"])])


@pytest.mark.parametrize("key", ["uid", "title", "schemaVersion", "templating", "time"])
def test_it_can_be_imported(key: str) -> None:
    assert DASHBOARD[key]
    assert "id" not in DASHBOARD, "Grafana gives it one"
    names = [variable["name"] for variable in DASHBOARD["templating"]["list"]]
    assert names == ["datasource", "instance"]
    assert {json.dumps(panel["datasource"]) for panel in PANELS if panel["type"] != "row"} == {
        json.dumps({"type": "prometheus", "uid": "${datasource}"})
    }


def test_bytes_are_shown_as_bytes_and_seconds_as_seconds() -> None:
    for panel in PANELS:
        for target in panel.get("targets", ()):
            unit = panel["fieldConfig"]["defaults"]["unit"]
            if re.fullmatch(r"\w+_bytes\{[^}]*\}", target["expr"]):
                assert unit == "bytes", panel["title"]
            if re.fullmatch(r"\w+_seconds\{[^}]*\}", target["expr"]):
                assert unit == "s", panel["title"]
