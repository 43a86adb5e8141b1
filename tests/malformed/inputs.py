"""What the malformed inputs are drawn from, and what is asked of each."""

import copy
import os
from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from autotune.errors import AutotuneError

TIMES = int(os.environ.get("MALFORMED_TIMES", "1"))
T = TypeVar("T")
Test = TypeVar("Test", bound=Callable[..., Any])


def inputs(number: int) -> Callable[[Test], Test]:
    """Give a test so many inputs: always the same ones, unless more are asked for by ``MALFORMED_TIMES``."""
    decorator: Callable[[Test], Test] = settings(
        max_examples=number * TIMES,
        derandomize=TIMES == 1,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
    )
    return decorator


def clear(read: Callable[..., T], *args: Any, **kwargs: Any) -> T | None:
    """A value, or None for an error that a person can do something about. Whatever else is raised fails the test."""
    try:
        return read(*args, **kwargs)
    except AutotuneError as error:
        assert error.message.strip(), "an error says what happened"
        assert error.hint.strip(), f"no hint: {error.message}"
        assert len(error.message) < 30_000, "an error fits on a screen"
        return None


ODD_TEXT = st.sampled_from(
    [
        "",
        " ",
        "\0",
        "\ud800",
        "\x1b[31mred",
        "\u202etxt",
        "../../etc/passwd",
        "__import__('os').system('false')",
        "NaN",
        "-1",
        "1e999",
        "9" * 400,
        "x" * 5000,
        "%s%n{0}{batch}",
        "'; DROP TABLE autotune_probes; --",
        "<script>alert(1)</script>",
    ]
)
TEXTS = st.one_of(ODD_TEXT, st.text(max_size=20))
NUMBERS = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([2**31, 2**53, 2**63, -(2**63) - 1, 10**30, 10**400]),
    st.floats(),
    st.just(1e-320),
)
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=6,
)
"""What JSON can say, and numbers beyond that."""


@st.composite
def damaged(draw: st.DrawFn, sound: Any) -> Any:
    """A sound document of JSON in which one to three places are something else, missing or too much."""
    document = copy.deepcopy(sound)
    for _ in range(draw(st.integers(1, 3))):
        holder, key = draw(st.sampled_from(places(document)))
        if isinstance(holder, dict) and draw(st.booleans()) and draw(st.booleans()):
            holder.pop(key)
            holder[draw(TEXTS)] = draw(SCALARS)
        else:
            holder[key] = draw(VALUES)
    return document


def places(document: Any) -> list[tuple[Any, Any]]:
    """Every (dict or list, key) within; a document that has become something else has one around it."""
    found: list[tuple[Any, Any]] = []
    waiting = [document]
    while waiting:
        holder = waiting.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        for key in keys:
            found.append((holder, key))
            if isinstance(holder[key], dict | list):
                waiting.append(holder[key])
    return found or [({"": None}, "")]
