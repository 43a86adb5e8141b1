"""What a person types or a script passes: references, options, sizes, knobs, commands, whole command lines, addresses."""

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.cli.app import run
from autotune.errors import UsageError
from autotune.model import Source
from autotune.planning import make_plan
from autotune.storage.address import parse_address
from autotune.workload.command import parse_command
from autotune.workload.source import parse_source
from tests.malformed.inputs import SCALARS, TEXTS, clear, inputs

PIECES = st.sampled_from(
    ["model", ".py", ":", "/", "..", "~", "\\", "C:", "é", "\0", "\n", "-", "x" * 300, ".ipynb", "a.b"]
)
REFERENCES = st.one_of(TEXTS, st.lists(PIECES, max_size=5).map("".join))
OPTIONS = [
    "device",
    "precision",
    "parallel",
    "allocator",
    "accumulate",
    "memory_limit",
    "multiple_of",
    "start_batch",
    "max_batch",
    "timeout_s",
    "time_budget_s",
    "seed",
    "objective",
    "effective_batch",
    "world",
    "ranks",
    "trials",
    "eval_batch",
]
KNOBS = st.lists(
    st.one_of(TEXTS, st.builds("{}={}".format, st.sampled_from(["precision", "compile", "none", "all", "x"]), TEXTS)),
    max_size=3,
)


@inputs(120)
@given(ref=REFERENCES)
def test_any_text_is_a_reference_or_refused(ref: str, tmp_path: Path) -> None:
    before = set(sys.modules)
    source = clear(parse_source, ref, (), tmp_path)
    assert source is None or source.ref == ref
    assert not {name for name in set(sys.modules) - before if name.partition(".")[0] not in ("encodings", "stringprep")}


@inputs(150)
@given(
    options=st.dictionaries(st.sampled_from(OPTIONS), SCALARS, max_size=3),
    fix=KNOBS,
    allow=KNOBS,
    forbid=KNOBS,
    tune=st.booleans(),
)
def test_any_options_make_a_plan_or_are_refused(
    options: dict[str, Any], fix: list[str], allow: list[str], forbid: list[str], tune: bool
) -> None:
    plan = clear(make_plan, Source(ref="model.py"), fix=fix, allow=allow, forbid=forbid, tune=tune, **options)
    if plan is not None:
        assert 0 < plan.timeout_s < float("inf")
        numbers = (plan.multiple_of, plan.settings.accumulate, plan.max_batch or 1, plan.memory_limit_bytes or 1)
        assert all(0 < number < 2**63 for number in numbers), "the ledger has room for it"


def test_a_time_that_no_float_can_hold_is_refused() -> None:
    with pytest.raises(UsageError, match="timeout_s is 1000"):
        make_plan(Source(ref="model.py"), timeout_s=10**400)


@inputs(60)
@given(
    words=st.lists(st.one_of(TEXTS, st.sampled_from(["python", "{batch}", "{batsh}", "{"])), min_size=1, max_size=4),
    templates=st.lists(st.one_of(TEXTS, st.builds("{}={}".format, TEXTS, TEXTS)), max_size=2),
)
def test_any_words_are_a_training_command_or_refused(words: list[str], templates: list[str], tmp_path: Path) -> None:
    clear(parse_command, words, templates, tmp_path)


@inputs(120)
@given(
    text=st.one_of(
        TEXTS,
        st.builds(
            "{}://{}:{}@{}/{}?{}".format,
            st.sampled_from(["sqlite", "postgresql", "postgres", "mysql", "file", "http", "", "sqlite+x"]),
            TEXTS,
            TEXTS,
            st.one_of(TEXTS, st.just("h:99999999"), st.just("[::1")),
            TEXTS,
            TEXTS,
        ),
    )
)
def test_any_text_is_the_address_of_a_ledger_or_refused(text: str) -> None:
    address = clear(parse_address, text)
    if address is not None:
        assert address.url.drivername in ("sqlite", "postgresql+psycopg")
        assert address.label


ARGUMENTS = st.one_of(
    st.sampled_from(
        ["search", "max-batch", "runs", "show", "ls", "export", "--to", "hf", "--json", "--", "-v", "explain"]
    ),
    st.sampled_from(
        ["--max-batch", "--seed", "--memory-limit", "--allow", "--storage", "--limit", "--output", "--world"]
    ),
    TEXTS.filter(lambda text: "\0" not in text and "\ud800" not in text),  # no command line can hold them
)


@inputs(50)
@given(words=st.lists(ARGUMENTS, max_size=5))
def test_any_command_line_ends_with_a_documented_code(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)  # no file is there, so that nothing is searched
    monkeypatch.setenv("AUTOTUNE_STORAGE", str(tmp_path / "ledger.sqlite3"))
    code = run(["missing.py" if word == "init" else word for word in words])
    said = capsys.readouterr()
    assert code in (0, 2, 3, 4, 5), said.err
    assert "Traceback" not in said.err
    assert "\x1b" not in said.err
