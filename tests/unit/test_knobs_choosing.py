"""--fix, --allow and --forbid: what they leave open, and what they cannot mean."""

import pytest

from autotune.errors import UsageError
from autotune.knobs import KNOBS, choices
from autotune.knobs.choosing import wanted
from autotune.knobs.registry import knob_of
from autotune.model import Choice, Compile, Precision, Settings

BASE = Settings()
OF_ONE_RANK = {knob.name: ("auto",) for knob in KNOBS if not knob.ranks}


def chosen(
    *, fix: str = "", allow: str = "", forbid: str = "", settings: Settings = BASE, ranks: int = 1
) -> dict[str, tuple[str, ...]]:
    """Options separated by blanks."""
    made = choices(fix.split(), allow.split(), forbid.split(), settings, ranks)
    return {choice.knob: choice.values for choice in made}


def test_without_options_every_knob_is_varied_as_makes_sense() -> None:
    assert chosen(ranks=2) == {knob.name: ("auto",) for knob in KNOBS}
    assert chosen() == OF_ONE_RANK


def test_knobs_of_several_ranks_are_open_to_one_where_they_are_named() -> None:
    assert chosen(allow="all parallel") == OF_ONE_RANK | {"parallel": ("auto",)}
    assert chosen(fix="parallel=ddp", allow="none") == {"parallel": ("ddp",)}


def test_allow_none_varies_nothing() -> None:
    assert chosen(allow="none") == {}


def test_allow_names_the_only_knobs_that_are_varied() -> None:
    assert chosen(allow="precision memory-format") == {"precision": ("auto",), "memory_format": ("auto",)}


def test_allowed_values_stand_after_the_users_own() -> None:
    assert chosen(allow="precision=bf16,tf32") == {"precision": ("default", "bf16", "tf32")}
    assert chosen(allow="precision=bf16 precision=fp16,bf16") == {"precision": ("default", "bf16", "fp16")}
    own = Settings(precision=Precision.FP16)
    assert chosen(allow="precision=bf16", settings=own) == {"precision": ("fp16", "bf16")}


def test_only_the_users_own_value_allowed_is_nothing_to_vary() -> None:
    assert chosen(allow="precision=default") == {}


def test_all_the_others_stay_open_beside_values_that_were_named() -> None:
    made = chosen(allow="all compile=max-autotune")
    assert made == OF_ONE_RANK | {"compile": ("off", "max-autotune")}
    assert chosen(allow="all compile compile=max-autotune")["compile"] == ("auto", "max-autotune")


def test_an_allocator_configuration_keeps_its_commas() -> None:
    made = chosen(allow="allocator=expandable_segments:True,max_split_size_mb:128 allocator=backend:native")
    assert made == {
        "allocator": ("default", "expandable_segments:True,max_split_size_mb:128", "backend:native"),
    }


def test_a_fixed_value_stands_alone() -> None:
    assert chosen(fix="precision=bf16", allow="none") == {"precision": ("bf16",)}
    assert chosen(fix="precision=bf16") == OF_ONE_RANK | {"precision": ("bf16",)}


def test_a_knob_fixed_at_the_users_own_value_is_not_varied() -> None:
    everything = set(OF_ONE_RANK)
    for option in ("precision", "precision=default"):
        assert set(chosen(fix=option)) == everything - {"precision"}
    assert set(chosen(forbid="precision compile")) == everything - {"precision", "compile"}
    assert set(chosen(fix="precision", forbid="precision")) == everything - {"precision"}


def test_forbidden_values_are_taken_out() -> None:
    assert chosen(forbid="precision=fp16,tf32 compile=reduce-overhead", allow="precision compile") == {
        "precision": ("auto", "!fp16", "!tf32"),
        "compile": ("auto", "!reduce-overhead"),
    }
    assert chosen(allow="precision=bf16", forbid="precision=fp16") == {"precision": ("default", "bf16")}


def test_the_same_options_in_another_order_mean_the_same() -> None:
    one = choices(["optimizer=fused"], ["all", "compile=default"], ["precision=fp16", "attention"], BASE)
    other = choices(["optimizer=fused"], ["compile=default", "all"], ["attention", "precision=fp16"], BASE)
    assert one == other
    assert [choice.knob for choice in one] == [name for name in OF_ONE_RANK if name != "attention"]


def test_a_choice_says_which_values_are_wanted() -> None:
    precision = knob_of("precision")
    assert wanted(precision, Choice(knob="precision", values=("auto",)), BASE) == ("default", "bf16", "fp16", "tf32")
    forbidding = Choice(knob="precision", values=("auto", "fp32", "!fp16"))
    own = Settings(precision=Precision.TF32)
    assert wanted(precision, forbidding, own) == ("tf32", "default", "bf16", "fp32")
    assert wanted(precision, Choice(knob="precision", values=("bf16",)), BASE) == ("bf16",)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fix": "precison"}, "there is no knob 'precison'"),
        ({"allow": "precision=bf61"}, "precision has no value 'bf61'"),
        ({"allow": "precision="}, "precision has no value ''"),
        ({"allow": "precision=bf16,"}, "precision has no value ''"),
        ({"forbid": "=bf16"}, "--forbid '=bf16' names no knob"),
        ({"fix": "none"}, "--fix none means nothing"),
        ({"forbid": "all"}, "--forbid all means nothing"),
        ({"fix": "accumulate=4"}, "accumulate is not searched"),
        ({"allow": "none precision"}, "--allow none stands beside --allow precision"),
        ({"fix": "precision=bf16 precision=fp16"}, "precision cannot be fixed at bf16 and fp16 at once"),
        ({"fix": "precision precision=fp16"}, "precision cannot be kept at default and fixed at fp16 at once"),
        ({"fix": "precision=fp16", "forbid": "precision"}, "precision cannot be kept at default and fixed at fp16"),
        ({"fix": "precision", "allow": "precision"}, "precision is to be varied by --allow and kept by --fix"),
        (
            {"fix": "precision=bf16", "allow": "precision=fp16"},
            "precision is to be varied by --allow and kept by --fix",
        ),
        ({"forbid": "precision", "allow": "precision"}, "precision is to be varied by --allow and kept by --forbid"),
        ({"fix": "precision=bf16", "forbid": "precision=bf16"}, "--fix and --forbid both name precision=bf16"),
        ({"allow": "precision=bf16", "forbid": "precision=bf16"}, "--allow and --forbid both name precision=bf16"),
        ({"forbid": "precision=default"}, "precision=default is what your own settings have"),
    ],
)
def test_options_that_cannot_be_meant(options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        chosen(**options)  # type: ignore[arg-type]
    assert refused.value.hint


def test_a_contradiction_with_the_users_own_settings_is_told() -> None:
    own = Settings(compile=Compile.DEFAULT)
    with pytest.raises(UsageError, match="--forbid compile=default is what your own settings have"):
        chosen(forbid="compile=default", settings=own)
    assert chosen(forbid="compile=off", settings=own)["compile"] == ("auto", "!off")
    assert chosen(forbid="compile=default", fix="compile=off", settings=own)["compile"] == ("off",)
