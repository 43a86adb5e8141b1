"""Traits of workloads that stand for a kind."""

from dataclasses import replace

from autotune.model import Traits

ON_CUDA = Traits(
    optimizer_kinds=("for-loop", "foreach", "fused"),
    attention_backends=("math", "efficient", "flash", "cudnn"),
    cpu_cores=8,
)
RICH = replace(
    ON_CUDA,
    blocks="Block",
    num_blocks=12,
    own_checkpointing="transformers",
    convolutions=True,
    attention=True,
    data_set=True,
    cpu_cores=64,
    tensor_plan=True,
    ranks=4,
)
"""Nothing stands against anything."""
GPT = replace(ON_CUDA, blocks="Block", num_blocks=12, attention=True, dropout=True)
RESNET = replace(
    ON_CUDA, blocks="Bottleneck", num_blocks=16, convolutions=True, batch_norm=True, batch_norm_in_blocks=True
)
PLAIN = Traits(
    tf32_trouble="tf32 is of NVIDIA devices",
    optimizer_kinds=("for-loop", "foreach", "fused"),
    compile_trouble="torch.compile needs a C++ compiler, and g++ is not on PATH",
    attention_backends=("math", "flash"),
    cpu_cores=2,
)
"""A small network on a CPU."""
