"""Types of what autotune offers can be read by programs: editors, documentation, command lines made of functions."""

import inspect
import types
import typing

import pytest

import autotune
from autotune import api, model, signatures


def offered() -> dict[str, object]:
    """Every function and class that users meet, and the methods of the classes, by their names."""
    found: dict[str, object] = {f"autotune.{name}": getattr(autotune, name) for name in autotune.__all__}
    found |= {f"api.{name}": getattr(api, name) for name in api.__all__}
    functions = {name: one for name, one in vars(api).items() if isinstance(one, types.FunctionType)}
    found |= {f"api.{name}": one for name, one in functions.items() if not name.startswith("_")}
    found |= {f"signatures.{name}": getattr(signatures, name) for name in signatures.__all__}
    found |= {f"model.{name}": getattr(model, name) for name in model.__all__}
    for owner, kind in [(name, one) for name, one in found.items() if inspect.isclass(one)]:
        methods = {name: one for name, one in vars(kind).items() if inspect.isfunction(one)}
        found |= {f"{owner}.{name}": one for name, one in methods.items()}
    return {name: one for name, one in found.items() if inspect.isclass(one) or inspect.isfunction(one)}


def test_the_types_of_everything_that_is_offered_can_be_read() -> None:
    unreadable = {}
    found = offered()
    for name, one in found.items():
        try:
            typing.get_type_hints(one)
        except NameError as error:
            unreadable[name] = str(error)
    assert not unreadable, "in api, write types as those of autotune.signatures: types.Plan"
    assert {"api.diagnose", "autotune.load", "model.Plan", "autotune.Tuned.prepare"} <= set(found)


def test_every_public_function_of_the_interface_is_offered_by_name() -> None:
    functions = {name for name, one in vars(api).items() if isinstance(one, types.FunctionType)}
    public = {name for name in functions if not name.startswith("_")}
    assert public | {"LogObserver", "MaxBatch"} == set(api.__all__)
    assert {"diagnose", "search_kinds"} <= public


def test_they_are_the_types_themselves() -> None:
    hints = typing.get_type_hints(api.search)
    assert hints["plan"] is model.Plan and hints["return"] is model.SearchResult
    assert typing.get_type_hints(autotune.find_max_batch)["return"] is autotune.MaxBatch


def test_a_type_that_no_signature_has_is_not_there() -> None:
    with pytest.raises(AttributeError, match="Question"):
        signatures.Question  # type: ignore[attr-defined]  # noqa: B018 - asking for it is the test
