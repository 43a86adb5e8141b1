"""What may be combined for a workload on a device: counted, refused by name, and told where it falls away."""

from dataclasses import replace

import pytest

from autotune.errors import UsageError
from autotune.knobs import KNOBS, RULES, Cost, Left, Space, choices, cost_of, knob_of, make_space
from autotune.knobs.rules import Situation
from autotune.model import (
    Attention,
    Checkpointing,
    Choice,
    Compile,
    MemoryFormat,
    OptimizerKind,
    Parallel,
    Precision,
    Settings,
    Traits,
)
from tests.unit.planted_traits import GPT, PLAIN, RESNET, RICH

BASE = Settings()


def space(
    traits: Traits,
    device: str = "cuda",
    *,
    base: Settings = BASE,
    fix: tuple[str, ...] = (),
    allow: tuple[str, ...] = (),
    forbid: tuple[str, ...] = (),
    ranks: int = 1,
) -> Space:
    made = choices(fix, allow, forbid, base, ranks)
    return make_space(base, made, replace(traits, ranks=ranks), device)[0]


SHARING = ("parallel", "bucket_mb", "bucket_view", "static_graph", "reshard", "offload")
"""Knobs of trainings of several ranks."""


def test_everything_open_on_a_cuda_device() -> None:
    made = space(RICH)
    assert {name: made.values(name) for name in made.knobs} == {
        "precision": ("default", "bf16", "fp16", "tf32"),
        "checkpointing": ("off", "own", "alternate"),
        "compile": ("off", "default", "reduce-overhead"),
        "activation_budget": (1.0, 0.5),
        "optimizer": ("default", "fused"),
        "memory_format": ("default", "channels_last"),
        "attention": ("default", "cudnn", "flash"),
        "cudnn_benchmark": (False, True),
        "allocator": ("", "expandable_segments:True"),
    }
    assert made.loading_knobs == ("loader_workers", "pin_memory")
    assert made.values("loader_workers") == (None, 2, 4, 8)
    assert made.values("set_to_none") == (True,)


def test_all_combinations_are_counted_and_the_users_own_comes_first() -> None:
    made = space(RICH)
    compiled = 2 * (3 + 1)  # two modes: each checkpointing, and the smaller budget without any
    formats = 2 * 1 + 2 * 3  # precisions that flash and cudnn attention do not work in, and those they do
    others = 2 * 2 * 2 * 2
    every = list(made.all())
    assert made.size == len(every) == (3 + compiled) * formats * others == 1408
    assert len(set(every)) == len(every)
    assert every[0] == BASE
    assert not any(made.refuses(settings) for settings in every)
    assert {settings.loader_workers for settings in every} == {None}
    eager = [cost_of(settings) is Cost.EAGER for settings in every]
    assert eager == sorted(eager, reverse=True)


def test_what_is_not_in_the_space_is_refused() -> None:
    made = space(GPT)
    inside = set(made.all())
    outside = [
        settings
        for knob in KNOBS
        for value in knob.values
        for settings in [knob.put(replace(BASE, precision=Precision.BF16), value)]
        if settings not in inside and not knob.loading
    ]
    apart = 4 + 1 + 1 + 1 + 1 + 1  # what only several ranks have
    assert len(outside) == 1 + 2 + 1 + 1 + 1 + 2 + 1 + 2 + 1 + 1 + apart  # in the order of the registry, allocator none
    assert all(made.refuses(settings) for settings in outside)


def test_neighbours_differ_in_one_knob_and_what_compiles_comes_last() -> None:
    made = space(RICH)
    assert [settings.changes(BASE) for settings in made.neighbours(BASE)] == [
        {"precision": "bf16"},
        {"precision": "fp16"},
        {"precision": "tf32"},
        {"checkpointing": "own"},
        {"checkpointing": "alternate"},
        {"optimizer": "fused"},
        {"memory_format": "channels_last"},
        {"cudnn_benchmark": True},
        {"allocator": "expandable_segments:True"},
        {"compile": "default"},
        {"compile": "reduce-overhead"},
    ]


def test_neighbours_of_a_compiled_candidate_include_the_budget_and_the_way_back() -> None:
    made = space(GPT, allow=("compile", "activation_budget", "precision=bf16"))
    at = Settings(compile=Compile.DEFAULT, precision=Precision.BF16)
    assert [settings.changes(at) for settings in made.neighbours(at)] == [
        {"compile": "off"},
        {"precision": "default"},
        {"compile": "reduce-overhead"},
        {"activation_budget": 0.5},
    ]


def test_neighbourhood_is_mutual() -> None:
    made = space(RESNET, forbid=("attention", "allocator", "cudnn_benchmark"))
    for settings in made.all():
        for other in made.neighbours(settings):
            assert settings in made.neighbours(other)


def test_a_cpu_says_which_knobs_do_not_apply() -> None:
    made, left = make_space(BASE, choices((), (), (), BASE), PLAIN, "cpu")
    assert {name: made.values(name) for name in made.knobs} == {
        "precision": ("default", "bf16"),
        "optimizer": ("default", "fused", "foreach"),
    }
    assert made.loading_knobs == ()
    assert made.size == 6
    assert left == made.left
    assert left == (
        Left(knob="precision", value="fp16", why="few CPUs calculate in fp16, and bf16 needs no gradient scaler"),
        Left(knob="precision", value="tf32", why="tf32 is of NVIDIA devices"),
        Left(
            knob="checkpointing",
            value="",
            why="the model has neither repeated blocks nor a switch of its own for it",
        ),
        Left(knob="compile", value="", why="torch.compile needs a C++ compiler, and g++ is not on PATH"),
        Left(knob="activation_budget", value="", why="torch.compile needs a C++ compiler, and g++ is not on PATH"),
        Left(knob="memory_format", value="", why="the model has no two-dimensional convolutions"),
        Left(knob="attention", value="", why="the model does not call scaled_dot_product_attention"),
        Left(knob="cudnn_benchmark", value="", why="cuDNN is of CUDA devices"),
        Left(knob="loader_workers", value="", why="the workload has no data set"),
        Left(knob="pin_memory", value="", why="the workload has no data set"),
        Left(knob="allocator", value="", why="the caching allocator is of CUDA devices"),
    )


def test_a_convolutional_network_on_a_cpu_with_a_compiler() -> None:
    traits = replace(RESNET, tf32_trouble="tf32 is of NVIDIA devices", data_set=True, cpu_cores=2)
    made = space(traits, "cpu")
    assert {name: made.values(name) for name in (*made.knobs, *made.loading_knobs)} == {
        "precision": ("default", "bf16"),
        "checkpointing": ("off", "blocks", "alternate"),
        "optimizer": ("default", "fused", "foreach"),
        "memory_format": ("default", "channels_last"),
        "loader_workers": (None, 2),
    }
    assert made.size == 2 * 3 * 3 * 2
    assert space(traits, "cpu", allow=("all", "compile=default")).values("compile") == ("off", "default"), "if named"
    assert [(left.knob, left.value) for left in made.left] == [
        ("precision", "fp16"),
        ("precision", "tf32"),
        ("checkpointing", "own"),
        ("compile", "default"),
        ("compile", "reduce-overhead"),
        ("activation_budget", ""),
        ("attention", ""),
        ("cudnn_benchmark", ""),
        ("loader_workers", "4"),
        ("loader_workers", "8"),
        ("pin_memory", ""),
        ("allocator", ""),
    ]


def test_of_switch_and_blocks_the_surer_one_is_tried() -> None:
    own = replace(GPT, own_checkpointing="timm")
    assert space(own).values("checkpointing") == ("off", "own", "alternate")
    normed = replace(own, batch_norm_in_blocks=True)
    assert space(normed).values("checkpointing") == ("off", "blocks", "alternate")
    assert space(GPT).values("checkpointing") == ("off", "blocks", "alternate")
    assert space(replace(own, blocks="")).values("checkpointing") == ("off", "own")
    assert (
        Left(knob="checkpointing", value="blocks", why="the model's own switch (timm) does the same") in space(own).left
    )


def test_what_is_not_tried_by_itself_is_tried_by_name() -> None:
    own = replace(GPT, own_checkpointing="timm")
    named = ("checkpointing=blocks", "precision=fp32", "compile=max-autotune", "optimizer=foreach,for-loop")
    made = space(own, allow=named)
    assert {name: made.values(name) for name in made.knobs} == {
        "precision": ("default", "fp32"),
        "checkpointing": ("off", "blocks"),
        "compile": ("off", "max-autotune"),
        "optimizer": ("default", "foreach", "for-loop"),
    }
    assert made.left == ()
    assert space(own, allow=("all", "compile", "compile=max-autotune")).values("compile") == (
        "off",
        "default",
        "reduce-overhead",
        "max-autotune",
    )
    assert space(own, allow=("checkpointing", "checkpointing=blocks")).values("checkpointing") == (
        "off",
        "own",
        "blocks",
        "alternate",
    )
    assert space(replace(PLAIN, blocks="Block"), "cpu", allow=("precision=fp16",)).values("precision") == (
        "default",
        "fp16",
    )


def test_bf16_that_the_cpu_calculates_slowly_is_tried_by_name_alone() -> None:
    slow = replace(PLAIN, slow_bf16="this CPU calculates bf16 slowly")
    made = space(slow, "cpu", allow=("precision",))
    assert made.values("precision") == ("default",)
    told = "this CPU calculates bf16 slowly; to try it, name it: --allow precision=bf16"
    assert {left.value: left.why for left in made.left}["bf16"] == told
    assert made.refuses(Settings(precision=Precision.BF16)) == told
    named = space(slow, "cpu", allow=("precision=bf16",))
    assert named.values("precision") == ("default", "bf16")
    assert named.left == ()
    assert space(slow, "cpu", fix=("precision=bf16",)).start == Settings(precision=Precision.BF16)
    own = space(slow, "cpu", base=Settings(precision=Precision.BF16))
    assert own.values("precision")[0] == "bf16", "the user's own is never refused"


def test_what_was_named_and_cannot_be_had_is_told() -> None:
    made = space(PLAIN, "cpu", allow=("precision=tf32,bf16", "compile=default"))
    assert made.knobs == ("precision",)
    assert made.values("precision") == ("default", "bf16")
    assert made.left == (
        Left(knob="precision", value="tf32", why="tf32 is of NVIDIA devices"),
        Left(knob="compile", value="", why="torch.compile needs a C++ compiler, and g++ is not on PATH"),
    )


def test_nothing_is_varied_without_choices() -> None:
    made, left = make_space(BASE, (), RICH, "cuda")
    assert (made.knobs, made.loading_knobs, made.neighbours(BASE), left) == ((), (), (), ())
    assert list(made.all()) == [BASE]
    assert made.refuses(replace(BASE, precision=Precision.BF16)) == "precision may only be default here"


def test_a_value_that_no_combination_may_have_falls_away() -> None:
    made = space(GPT, allow=("activation_budget", "attention"))
    assert made.knobs == ()
    assert made.left == (
        Left(knob="activation_budget", value="", why="activation_budget works through torch.compile, which is off"),
        Left(knob="attention", value="", why="flash and cudnn attention calculate in bf16 and fp16 only"),
    )
    assert space(GPT, allow=("activation_budget", "compile")).knobs == ("compile", "activation_budget")
    bf16 = Settings(precision=Precision.BF16)
    assert space(GPT, base=bf16, allow=("attention",)).values("attention") == ("default", "cudnn", "flash")


def test_the_users_own_values_stand_first_and_are_never_refused() -> None:
    own = Settings(precision=Precision.FP32, compile=Compile.MAX_AUTOTUNE, loader_workers=3, allocator="backend:native")
    made = space(GPT, base=own)
    assert made.values("precision") == ("fp32", "default", "bf16", "fp16", "tf32")
    assert made.values("compile") == ("max-autotune", "off", "default", "reduce-overhead")
    assert made.values("allocator") == ("backend:native", "", "expandable_segments:True")
    assert made.values("loader_workers") == (3, None)  # without a data set nothing else, and the default always
    assert next(made.all()) == own
    odd = Settings(precision=Precision.TF32, compile=Compile.REDUCE_OVERHEAD, cudnn_benchmark=True)
    assert space(PLAIN, "cpu", base=odd).refuses(odd) == ""


def test_a_fixed_value_is_in_every_candidate_but_the_baseline() -> None:
    made = space(RICH, fix=("precision=bf16",), allow=("optimizer", "memory_format"))
    start = Settings(precision=Precision.BF16)
    assert made.start == start
    assert made.knobs == ("optimizer", "memory_format")
    assert list(made.all()) == [
        BASE,
        start,
        replace(start, memory_format=MemoryFormat.CHANNELS_LAST),
        replace(start, optimizer=OptimizerKind.FUSED),
        replace(start, optimizer=OptimizerKind.FUSED, memory_format=MemoryFormat.CHANNELS_LAST),
    ]
    assert made.refuses(BASE) == ""
    assert made.refuses(replace(BASE, optimizer=OptimizerKind.FUSED)) == "precision may only be bf16 here"
    assert made.neighbours(BASE) == (
        start,
        replace(start, optimizer=OptimizerKind.FUSED),
        replace(start, memory_format=MemoryFormat.CHANNELS_LAST),
    )
    assert made.neighbours(start) == made.neighbours(BASE)[1:]


def test_candidates_begin_from_the_users_own_settings_where_nothing_else_is_fixed() -> None:
    own = Settings(precision=Precision.BF16, accumulate=4)
    made = space(GPT, base=own, fix=("precision", "optimizer=default"))
    assert made.start == own
    assert {settings.accumulate for settings in made.all()} == {4}
    assert {settings.precision for settings in made.all()} == {Precision.BF16}


def test_a_start_that_the_rules_refuse_still_leads_to_what_they_allow() -> None:
    made = space(GPT, fix=("attention=flash",), allow=("precision=bf16",))
    start = Settings(attention=Attention.FLASH)
    assert made.start == start
    assert made.refuses(start) == "flash and cudnn attention calculate in bf16 and fp16 only"
    assert made.neighbours(BASE) == (replace(start, precision=Precision.BF16),)
    assert list(made.all()) == [BASE, replace(start, precision=Precision.BF16)]


@pytest.mark.parametrize(
    ("fix", "allow", "message"),
    [
        (("precision=tf32",), (), "precision=tf32 was demanded, and tf32 is of NVIDIA devices"),
        (("compile=reduce-overhead",), (), "compile=reduce-overhead was demanded, and torch.compile needs a C"),
        (("activation_budget=0.5",), ("none",), "activation_budget=0.5 was demanded, and torch.compile needs a C"),
        (("init_scale=256",), ("none",), "init_scale=256 was demanded, and init_scale is of the gradient scaler"),
    ],
)
def test_what_is_fixed_and_cannot_be_had_is_an_error(
    fix: tuple[str, ...], allow: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        space(PLAIN, "cpu", fix=fix, allow=allow)
    assert refused.value.hint == f"leave out --fix {fix[0]}"


def test_two_fixed_values_that_do_not_go_together_are_an_error() -> None:
    demanded = ("checkpointing=blocks", "activation_budget=0.5", "compile=default")
    with pytest.raises(UsageError, match="checkpointing=blocks was demanded, and activation_budget and checkpointing"):
        space(GPT, fix=demanded)


RULE_CASES = [
    ("budget without compile", Settings(activation_budget=0.5), GPT, "cuda"),
    (
        "budget and checkpointing",
        Settings(activation_budget=0.5, compile=Compile.DEFAULT, checkpointing=Checkpointing.ALTERNATE),
        GPT,
        "cuda",
    ),
    (
        "compiled batch norm in checkpoints",
        Settings(compile=Compile.DEFAULT, checkpointing=Checkpointing.BLOCKS),
        RESNET,
        "cpu",
    ),
    ("attention in full precision", Settings(attention=Attention.FLASH, precision=Precision.TF32), GPT, "cuda"),
    ("attention in full precision", Settings(attention=Attention.CUDNN), GPT, "cuda"),
    ("scale without fp16", Settings(init_scale=256, precision=Precision.BF16), GPT, "cuda"),
    ("graphs and accumulation", Settings(compile=Compile.REDUCE_OVERHEAD, accumulate=2), GPT, "cuda"),
    ("graphs and accumulation", Settings(compile=Compile.MAX_AUTOTUNE, accumulate=8), GPT, "cuda"),
    ("graphs and kept gradients", Settings(compile=Compile.REDUCE_OVERHEAD, set_to_none=False), GPT, "cuda"),
    ("buckets without DDP", Settings(bucket_view=True), GPT, "cuda"),
    ("buckets without DDP", Settings(parallel=Parallel.FSDP, bucket_mb=100), GPT, "cuda"),
    ("buckets without DDP", Settings(parallel=Parallel.TENSOR, static_graph=True), GPT, "cpu"),
    ("shards without FSDP", Settings(parallel=Parallel.DDP, reshard=False), GPT, "cuda"),
    ("shards without FSDP", Settings(parallel=Parallel.ZERO, offload=True), GPT, "cuda"),
    (
        "shards and channels_last",
        Settings(parallel=Parallel.FSDP, memory_format=MemoryFormat.CHANNELS_LAST),
        RESNET,
        "cuda",
    ),
    ("shards and graphs", Settings(parallel=Parallel.FSDP, compile=Compile.REDUCE_OVERHEAD), GPT, "cuda"),
]
"""Settings that break one rule and no other."""

HARMLESS = [
    (Settings(activation_budget=0.5, compile=Compile.DEFAULT), GPT, "cuda"),
    (Settings(compile=Compile.DEFAULT, checkpointing=Checkpointing.BLOCKS), GPT, "cuda"),
    (Settings(compile=Compile.DEFAULT, checkpointing=Checkpointing.OWN), RESNET, "cuda"),
    (Settings(checkpointing=Checkpointing.BLOCKS), RESNET, "cuda"),
    (Settings(attention=Attention.FLASH, precision=Precision.BF16), GPT, "cuda"),
    (Settings(attention=Attention.FLASH), replace(GPT, lower_parameters=True), "cuda"),
    (Settings(attention=Attention.FLASH), GPT, "cpu"),
    (Settings(attention=Attention.EFFICIENT), GPT, "cuda"),
    (Settings(init_scale=256, precision=Precision.FP16), GPT, "cuda"),
    (Settings(compile=Compile.DEFAULT, accumulate=2, set_to_none=False), GPT, "cuda"),
    (Settings(compile=Compile.MAX_AUTOTUNE, accumulate=2), GPT, "cpu"),
    (Settings(compile=Compile.REDUCE_OVERHEAD, allocator="expandable_segments:True"), GPT, "cuda"),
    (Settings(parallel=Parallel.ZERO, bucket_view=True, bucket_mb=100, static_graph=True), GPT, "cuda"),
    (Settings(parallel=Parallel.FSDP, reshard=False, offload=True, compile=Compile.DEFAULT), GPT, "cuda"),
    (Settings(parallel=Parallel.DDP, compile=Compile.REDUCE_OVERHEAD), GPT, "cuda"),
    (Settings(), replace(GPT, ranks=2), "cuda"),
]


def _broken(settings: Settings, traits: Traits, device: str) -> list[str]:
    at = Situation(settings=settings, base=BASE, traits=traits, device=device)
    return [rule.name for rule in RULES if rule.broken_by(at)]


@pytest.mark.parametrize(("name", "settings", "traits", "device"), RULE_CASES)
def test_a_rule_is_broken(name: str, settings: Settings, traits: Traits, device: str) -> None:
    assert _broken(settings, traits, device) == [name]


@pytest.mark.parametrize(("settings", "traits", "device"), HARMLESS)
def test_no_rule_is_broken(settings: Settings, traits: Traits, device: str) -> None:
    assert _broken(settings, traits, device) == []


def test_ranks_that_are_joined_stay_so_and_those_that_nobody_joined_are_left_alone() -> None:
    several = replace(GPT, ranks=2)
    joined = space(several, base=Settings(parallel=Parallel.DDP), ranks=2)
    assert joined.values("parallel") == ("ddp", "fsdp", "zero")
    assert joined.refuses(Settings()) == "parallel may only be ddp or fsdp or zero here"
    named = space(several, base=Settings(parallel=Parallel.DDP), allow=("parallel=default,fsdp",), ranks=2)
    assert named.values("parallel") == ("ddp", "fsdp")
    assert "each train a model of their own" in named.refuses(Settings())
    assert not space(several, ranks=2).refuses(Settings())


def test_several_ranks_open_the_knobs_of_sharing_and_their_combinations() -> None:
    made = space(GPT, base=Settings(parallel=Parallel.DDP), allow=SHARING, ranks=2)
    assert {name: made.values(name) for name in made.knobs} == {
        "parallel": ("ddp", "fsdp", "zero"),
        "bucket_view": (False, True),
        "reshard": (True, False),
    }
    assert made.size == 2 * 3  # each of the three with its own switch on and off
    assert space(GPT, allow=("parallel",)).knobs == ()


def test_one_rank_opens_none_of_them_and_says_nothing_of_it_unless_asked() -> None:
    assert not set(SHARING) & set(space(RICH).knobs)
    assert not {left.knob for left in space(GPT).left} & set(SHARING)
    (left,) = [left for left in space(GPT, allow=("parallel",)).left]
    assert left == Left(knob="parallel", value="", why="one rank trains alone; ask for more with --ranks")
    with pytest.raises(UsageError, match="parallel=fsdp was demanded, and one rank trains alone"):
        space(GPT, fix=("parallel=fsdp",))


def test_every_rule_has_a_case() -> None:
    assert {name for name, *_ in RULE_CASES} | {"ranks apart"} == {rule.name for rule in RULES}


def test_the_space_gives_the_reason_of_the_rule() -> None:
    made = space(GPT)
    assert (
        made.refuses(Settings(activation_budget=0.5)) == "activation_budget works through torch.compile, which is off"
    )


def test_a_rule_that_the_users_own_settings_break_holds_for_nobody() -> None:
    own = Settings(attention=Attention.FLASH)  # the model turns to bf16 by itself
    made = space(GPT, base=own, allow=("optimizer",))
    assert made.refuses(replace(own, optimizer=OptimizerKind.FUSED)) == ""
    assert made.size == 2


def test_more_accumulation_can_make_settings_impossible_even_the_users_own() -> None:
    own = Settings(compile=Compile.REDUCE_OVERHEAD)
    made = space(GPT, base=own)
    why = "CUDA graphs overwrite the gradients that micro-batches are to be added to"
    assert made.refuses(replace(own, accumulate=4)) == why
    assert made.refuses(replace(own, accumulate=4, precision=Precision.BF16)) == why
    assert made.refuses(replace(own, accumulate=4, compile=Compile.DEFAULT)) == ""


def test_values_of_no_knob_are_a_usage_error() -> None:
    with pytest.raises(UsageError, match="there is no knob 'speed'"):
        space(GPT).values("speed")
    with pytest.raises(UsageError, match="precision has no value 'fp8'"):
        make_space(BASE, (Choice(knob="precision", values=("default", "fp8")),), GPT, "cuda")


def test_a_knob_is_found_under_its_name_with_dashes() -> None:
    assert space(RESNET).values("memory-format") == space(RESNET).values(knob_of("memory_format").name)
