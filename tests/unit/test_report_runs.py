from dataclasses import replace

import pytest

from autotune.model import SearchState
from autotune.report.columns import shortened
from autotune.report.runs import runs_table
from tests.cli.results import SUMMARY


def test_searches_are_listed_one_a_line() -> None:
    unfinished = replace(SUMMARY, id="ff00", state=SearchState.INTERRUPTED, max_batch=None, finished=None, probes=0)
    assert runs_table((SUMMARY, unfinished)) == (
        "id            created                  state        max batch  probes  model     device       budget\n"
        "ab12cd34ef56  2026-03-04 12:00:00 UTC  answered            27       7  model.py  NVIDIA H200  40 GiB\n"
        "ff00          2026-03-04 12:00:00 UTC  interrupted          -       0  model.py  NVIDIA H200  40 GiB"
    )


def test_a_prediction_says_that_it_is_one() -> None:
    assert runs_table((replace(SUMMARY, predicted=True),)).splitlines()[1] == (
        "ab12cd34ef56  2026-03-04 12:00:00 UTC  answered, predicted         27       7  model.py  NVIDIA H200  40 GiB"
    )


def test_length_buckets_have_a_column_where_there_are_any() -> None:
    assert runs_table((replace(SUMMARY, length_bucket=2048), SUMMARY)) == (
        "id            created                  state     max batch  probes  model     length bucket  device       budget\n"
        "ab12cd34ef56  2026-03-04 12:00:00 UTC  answered         27       7  model.py           2048  NVIDIA H200  40 GiB\n"
        "ab12cd34ef56  2026-03-04 12:00:00 UTC  answered         27       7  model.py              -  NVIDIA H200  40 GiB"
    )


def test_only_what_is_too_long_for_the_terminal_is_shortened() -> None:
    long = replace(SUMMARY, workload_ref="/home/me/experiments/2026/march/language/train.py:task")
    whole = runs_table((SUMMARY, long)).splitlines()
    width = len(whole[2])
    assert runs_table((SUMMARY, long), width).splitlines() == whole
    narrower = runs_table((SUMMARY, long), width - 20).splitlines()
    assert [len(line) for line in narrower] == [width - 20] * 3
    assert "  /home/me/experime…ge/train.py:task  " in narrower[2] and "  model.py  " in narrower[1]
    assert "  /home/me…py:task  " in runs_table((SUMMARY, long), 10).splitlines()[2]


@pytest.mark.parametrize(
    ("most", "text"), [(9, "train.py"), (8, "train.py"), (7, "tra….py"), (6, "tra…py"), (2, "t…"), (1, "…"), (0, "…")]
)
def test_a_text_is_shortened_in_its_middle(most: int, text: str) -> None:
    assert shortened("train.py", most) == text
