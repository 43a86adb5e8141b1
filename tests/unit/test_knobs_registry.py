"""The registry of knobs: it covers the settings, reads what it writes, and knows what applies where."""

from dataclasses import fields

import pytest

from autotune.errors import UsageError
from autotune.export import Target
from autotune.knobs import KNOBS, RULES, TARGETS, Cost, Knob, Place, knob_of
from autotune.model import Settings, Traits
from tests.unit.planted_traits import PLAIN, RICH

NO_KNOBS = {"accumulate"}
"""Fields that the search of settings does not vary, on purpose."""


def test_every_field_of_the_settings_has_a_knob_or_is_left_out_on_purpose() -> None:
    names = [field.name for field in fields(Settings)]
    assert [knob.name for knob in KNOBS] == [name for name in names if name not in NO_KNOBS]


@pytest.mark.parametrize("knob", KNOBS, ids=lambda knob: knob.name)
def test_the_default_of_a_knob_is_that_of_the_settings(knob: Knob) -> None:
    assert knob.default == getattr(Settings(), knob.name)
    assert type(knob.default) is type(getattr(Settings(), knob.name))


@pytest.mark.parametrize("knob", KNOBS, ids=lambda knob: knob.name)
def test_every_value_is_a_legal_setting_and_reads_as_it_was_written(knob: Knob) -> None:
    texts = [knob.text(value) for value in knob.values]
    assert len(set(texts)) == len(texts)
    for value, text in zip(knob.values, texts, strict=True):
        assert knob.of(knob.put(Settings(), value)) == value
        assert knob.parse(text) == value
        assert type(knob.parse(text)) is type(value)
        assert text == text.strip() != ""
        assert not text.startswith("!") and text not in ("auto", "all", "none")


@pytest.mark.parametrize("knob", KNOBS, ids=lambda knob: knob.name)
def test_a_wrong_value_is_refused_with_the_right_ones(knob: Knob) -> None:
    with pytest.raises(UsageError, match=f"{knob.name} has no value 'nonsense'") as refused:
        knob.parse("nonsense")
    assert all(knob.text(value) in refused.value.hint for value in knob.values)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("init_scale", "512", 512.0),
        ("init_scale", "65536.0", 65536.0),
        ("activation_budget", "0.25", 0.25),
        ("loader_workers", "3", 3),
        ("bucket_mb", "50", 50),
        (
            "allocator",
            "max_split_size_mb:128,expandable_segments:True",
            "max_split_size_mb:128,expandable_segments:True",
        ),
        ("allocator", "roundup_power2_divisions:[256:1,512:2]", "roundup_power2_divisions:[256:1,512:2]"),
    ],
)
def test_some_knobs_take_any_legal_value(name: str, text: str, value: object) -> None:
    knob = knob_of(name)
    assert knob.parse(text) == value
    assert knob.parse(knob.text(knob.parse(text))) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("precision", "BF16"),
        ("compile", "reduce_overhead"),
        ("cudnn_benchmark", "True"),
        ("cudnn_benchmark", "1"),
        ("loader_workers", "-1"),
        ("loader_workers", "2.0"),
        ("loader_workers", "None"),
        ("bucket_mb", "0"),
        ("bucket_mb", "2.5"),
        ("parallel", "FSDP"),
        ("init_scale", "inf"),
        ("init_scale", "0"),
        ("activation_budget", "1.5"),
        ("activation_budget", "nan"),
        ("allocator", ""),
        ("allocator", "expandable_segments"),
        ("allocator", "expandable_segments:True,"),
    ],
)
def test_values_are_read_strictly(name: str, text: str) -> None:
    with pytest.raises(UsageError):
        knob_of(name).parse(text)


def test_a_slip_of_the_pen_is_answered_with_what_was_meant() -> None:
    with pytest.raises(UsageError) as value:
        knob_of("memory-format").parse("channels-last")
    assert value.value.hint == "did you mean channels_last? It has: default, channels_last"
    with pytest.raises(UsageError) as mode:
        knob_of("compile").parse("reduce_overhead")
    assert mode.value.hint.startswith("did you mean reduce-overhead? ")
    with pytest.raises(UsageError, match="there is no knob 'precison'") as name:
        knob_of("precison")
    assert name.value.hint.startswith("did you mean precision? There are: precision, init_scale, ")


def test_accumulation_is_told_to_be_no_knob() -> None:
    with pytest.raises(UsageError, match="accumulate is not searched: it follows from the wanted effective batch"):
        knob_of("accumulate")


@pytest.mark.parametrize("knob", KNOBS, ids=lambda knob: knob.name)
def test_people_are_told_what_a_knob_does_in_one_line_each(knob: Knob) -> None:
    for line in (knob.summary, knob.risk, knob.applied):
        assert line and "\n" not in line and len(line) <= 115 and not line.endswith(".")
    assert set(knob.by_name) <= set(knob.values[1:])
    assert set(knob.options) <= set(TARGETS)
    assert all(names for names in knob.options.values())


def test_the_kinds_of_knobs() -> None:
    assert [knob.name for knob in KNOBS if knob.cost is Cost.COMPILE] == ["compile", "activation_budget"]
    assert [knob.name for knob in KNOBS if knob.loading] == ["loader_workers", "pin_memory"]
    assert [knob.name for knob in KNOBS if not knob.memory] == ["init_scale", "loader_workers", "pin_memory"]
    assert [knob.name for knob in KNOBS if knob.place is Place.ENVIRONMENT] == ["allocator"]
    assert [knob.name for knob in KNOBS if knob.ranks] == [
        *("parallel", "bucket_mb", "bucket_view", "static_graph", "reshard", "offload")
    ]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("traits", [RICH, PLAIN, Traits()], ids=["rich", "plain", "empty"])
def test_the_default_always_applies_and_reasons_are_sentences_without_their_stop(traits: Traits, device: str) -> None:
    for knob in KNOBS:
        assert knob.why_not(knob.default, traits, device) == ""
        for why in knob.applies(traits, device).values():
            assert why and "\n" not in why and not why.endswith(".")


def test_on_a_rich_cuda_device_everything_applies() -> None:
    assert {knob.name: knob.applies(RICH, "cuda") for knob in KNOBS if knob.applies(RICH, "cuda")} == {}


def test_what_does_not_apply_to_a_small_network_on_a_cpu() -> None:
    trouble = PLAIN.compile_trouble
    blocks = "the model has neither repeated blocks nor a switch of its own for it"
    data_set = "the workload has no data set"
    alone = "one rank trains alone; ask for more with --ranks"
    found = {knob.name: knob.applies(PLAIN, "cpu") for knob in KNOBS}
    assert {name: reasons for name, reasons in found.items() if reasons} == {
        "precision": {"tf32": PLAIN.tf32_trouble, "fp32": "a device without tf32 calculates in strict fp32 anyway"},
        "checkpointing": {"own": blocks, "blocks": blocks, "alternate": blocks},
        "compile": {"default": trouble, "reduce-overhead": trouble, "max-autotune": trouble},
        "activation_budget": {0.5: trouble},
        "memory_format": {"channels_last": "the model has no two-dimensional convolutions"},
        "attention": dict.fromkeys(
            ["cudnn", "flash", "efficient", "math"], "the model does not call scaled_dot_product_attention"
        ),
        "cudnn_benchmark": {True: "cuDNN is of CUDA devices"},
        "loader_workers": dict.fromkeys([2, 4, 8, 0], data_set),
        "pin_memory": {True: data_set},
        "allocator": {"expandable_segments:True": "the caching allocator is of CUDA devices"},
        "parallel": dict.fromkeys(["ddp", "fsdp", "zero", "tensor"], alone),
        "bucket_mb": {100: alone},
        **{name: {True: alone} for name in ("bucket_view", "static_graph", "offload")},
        "reshard": {False: alone},
    }


@pytest.mark.parametrize(
    ("knob", "value", "traits", "device", "why"),
    [
        ("precision", "bf16", Traits(bf16_trouble="T4 has no bf16"), "cuda", "T4 has no bf16"),
        ("precision", "fp16", Traits(fp16_trouble="K80 does not"), "cuda", "K80 does not"),
        (
            "precision",
            "fp16",
            Traits(lower_parameters=True),
            "cuda",
            "the model trains parameters in half precision, whose gradients the gradient scaler refuses",
        ),
        ("init_scale", 256.0, Traits(fp16_trouble="K80 does not"), "cuda", "K80 does not"),
        ("checkpointing", "own", Traits(blocks="Block"), "cpu", "the model has no switch of its own for it"),
        ("checkpointing", "alternate", Traits(own_checkpointing="timm"), "cpu", "the model has no repeated blocks"),
        ("compile", "reduce-overhead", Traits(), "cpu", "CUDA graphs are of CUDA devices"),
        ("optimizer", "fused", Traits(), "cuda", "the optimizer has one implementation only"),
        (
            "optimizer",
            "fused",
            Traits(optimizer_kinds=("for-loop", "foreach")),
            "cuda",
            "the optimizer has no fused implementation on this device",
        ),
        (
            "attention",
            "flash",
            Traits(attention=True, attention_backends=("math", "flash")),
            "cpu",
            "backends are there to choose from on CUDA devices only",
        ),
        (
            "attention",
            "cudnn",
            Traits(attention=True, attention_backends=("math", "flash")),
            "cuda",
            "this build or device has no cudnn attention",
        ),
        ("loader_workers", 2, Traits(data_set=True, cpu_cores=1), "cpu", "this process may use 1 core"),
        ("loader_workers", 17, Traits(data_set=True, cpu_cores=16), "cpu", "this process may use 16 cores"),
        (
            "loader_workers",
            8,
            Traits(data_set=True, cpu_cores=15, ranks=2),
            "cpu",
            "2 ranks with as many each may use 15 cores",
        ),
        ("parallel", "fsdp", Traits(ranks=2), "cuda", "the model has no repeated blocks to shard one after the other"),
        ("parallel", "fsdp", Traits(ranks=2, blocks="Block", shard_trouble="tied"), "cuda", "tied"),
        (
            "parallel",
            "zero",
            Traits(ranks=4, trained_tensors=3),
            "cuda",
            "the optimizer has 3 parameters, too few to be shared out to 4 ranks",
        ),
        (
            "parallel",
            "tensor",
            Traits(ranks=2),
            "cuda",
            "neither the model (_tp_plan) nor the workload (make_plan) says how to split it",
        ),
        ("offload", True, Traits(ranks=2), "cpu", "there is no device beside the host"),
        ("pin_memory", True, Traits(data_set=True), "cpu", "memory is pinned for copies to a CUDA device"),
    ],
)
def test_one_trait_takes_a_value_away(knob: str, value: str, traits: Traits, device: str, why: str) -> None:
    assert knob_of(knob).why_not(value, traits, device) == why


def test_rules_have_names_of_their_own_and_a_sentence_each() -> None:
    assert len({rule.name for rule in RULES}) == len({rule.why for rule in RULES}) == len(RULES)
    assert all("\n" not in rule.why and not rule.why.endswith(".") for rule in RULES)


def test_targets_are_those_of_the_exports() -> None:
    assert tuple(target.value for target in Target) == TARGETS
