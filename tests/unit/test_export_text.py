"""Quoting: what a parser reads is what was written."""

import math
import os
import shlex
import subprocess

import pytest

from autotune.export import Recommendation, Target, export
from autotune.export.text import yaml_text
from autotune.model import Settings


def test_yaml_nests_and_quotes_what_older_parsers_would_take_for_something_else() -> None:
    assert yaml_text({"a": {"b": "no", "c": None}, "d": True, "e": {}}) == ('a:\n  b: "no"\n  c: null\nd: true\ne: {}')


@pytest.mark.parametrize(
    ("value", "text"), [(65536.0, "65536.0"), (1e-05, "1.0e-05"), (1e20, "1e+20"), (math.ldexp(1, -30), None)]
)
def test_yaml_floats_have_a_point_which_older_parsers_need(value: float, text: str | None) -> None:
    written = yaml_text({"x": value}).removeprefix("x: ")
    assert "." in written
    assert float(written) == value
    assert text is None or float(text) == value


@pytest.mark.parametrize("value", ["a b", "$(touch x)", "it's", "", "a\nb", "`id`", "a:b,c"])
def test_values_reach_a_shell_unchanged(value: str) -> None:
    it = Recommendation(settings=Settings(), micro_batch=2, environment={"NAME": value})
    text = export(it, Target.ENV).text
    assert shlex.split(text)[:2] == ["export", f"NAME={value}"]


@pytest.mark.parametrize("value", ["expandable_segments:True", "a b; exit 3", "$(exit 3)", "it's"])
def test_a_shell_evaluates_the_lines(value: str) -> None:
    it = Recommendation(settings=Settings(accumulate=3), micro_batch=24, environment={"PYTORCH_ALLOC_CONF": value})
    script = export(it, Target.ENV).text
    subprocess.run(["sh", "-n", "-c", script], check=True)
    show = 'env printf "%s|" "$AUTOTUNE_BATCH_SIZE" "$AUTOTUNE_ACCUMULATE" "$PYTORCH_ALLOC_CONF"'
    path = os.environ.get("PATH", os.defpath)
    shown = subprocess.run(
        ["sh", "-c", f'eval "$1"\n{show}', "sh", script], env={"PATH": path}, capture_output=True, text=True, check=True
    )
    assert shown.stdout == f"24|3|{value}|"
