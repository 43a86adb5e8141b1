"""Which length buckets may be asked for, and of what."""

from typing import Any

import pytest

from autotune.errors import UsageError
from autotune.model import Source
from autotune.planning import length_buckets, make_plan

PLAN = make_plan(Source(ref="model.py"))


def test_ascending_lengths_are_taken_as_they_are() -> None:
    assert length_buckets([128, 512, 2048], PLAN) == (128, 512, 2048)
    assert length_buckets((1,), PLAN) == (1,)


@pytest.mark.parametrize(
    ("lengths", "message", "hint"),
    [
        ((512, 128), "length buckets 512,128 are not in ascending order", "give them as --buckets 128,512"),
        ((128, 512, 128), "length buckets 128,512,128 are not all different", "give them as --buckets 128,512"),
        ((0, 128), "0 is no length of a bucket", "whole numbers from 1 on"),
        ((-1,), "-1 is no length of a bucket", "whole numbers from 1 on"),
        ((True, 128), "True is no length of a bucket", "whole numbers from 1 on"),
        ((12.5,), "12.5 is no length of a bucket", "whole numbers from 1 on"),
        (("128",), "'128' is no length of a bucket", "whole numbers from 1 on"),
        ("128,512", "buckets is '128,512'", "buckets=[128, 512, 2048]"),
        (128, "buckets is 128", "buckets=[128, 512, 2048]"),
        ((), "buckets is ()", "buckets=[128, 512, 2048]"),
    ],
)
def test_what_makes_no_buckets_is_refused_with_what_to_give(lengths: Any, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as raised:
        length_buckets(lengths, PLAN)
    assert raised.value.message == message
    assert hint in raised.value.hint


def test_a_training_command_shows_no_lengths() -> None:
    plan = make_plan(Source(ref="c", command=("python", "train.py", "{batch}")))
    with pytest.raises(UsageError, match="what a training command trains on is not seen") as raised:
        length_buckets((128, 512), plan)
    assert "--max-length 128 in the command" in raised.value.hint


@pytest.mark.parametrize("options", [{"tune": True}, {"effective_batch": 96}])
def test_a_search_of_settings_has_no_buckets(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="length buckets are of the batch alone") as raised:
        length_buckets((128, 512), make_plan(Source(ref="model.py"), **options))
    assert raised.value.hint == "use: autotune max-batch MODEL --buckets 128,512"
