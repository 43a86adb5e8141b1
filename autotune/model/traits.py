"""What of a workload and its device decides which settings make sense. Facts, no judgement."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """Found out once without a training step. Empty texts mean: nothing stands against it."""

    blocks: str = ""
    """Class of the repeated blocks that activation checkpointing would wrap; empty = the model has none."""
    num_blocks: int = 0
    own_checkpointing: str = ""
    """Library whose switch for activation checkpointing the model has: ``transformers``, ``timm``; empty = none."""
    convolutions: bool = False
    """Has two-dimensional convolutions."""
    attention: bool = False
    """Calls ``scaled_dot_product_attention``, as far as its code tells."""
    batch_norm: bool = False
    """Normalises over the batch, so that accumulation is not the same as a larger batch."""
    batch_norm_in_blocks: bool = False
    dropout: bool = False
    lower_parameters: bool = False
    """Has trainable parameters in fp16 or bf16."""
    frozen: bool = False
    """Has parameters that are not trained."""
    trained_tensors: int = 0
    """Parameters that are trained, each tensor counted once; 0 = not counted (older ledgers)."""
    shard_trouble: str = ""
    """Why FSDP2 cannot shard the model: no repeated blocks, blocks that share parameters with other parts."""
    optimizer_kinds: tuple[str, ...] = ()
    """Implementations that the optimizer's class offers on this device: ``for-loop``, ``foreach``, ``fused``."""
    data_set: bool = False
    """Batches come from a data set, so that loading can be measured."""
    varies: bool = False
    """Batches differ in the length of their samples."""
    tf32_trouble: str = ""
    """Why the device has no tf32."""
    bf16_trouble: str = ""
    slow_bf16: str = ""
    """Why bf16, which can be had, is not expected to pay: the device has no units for it."""
    fp16_trouble: str = ""
    compile_trouble: str = ""
    """Why ``torch.compile`` cannot work here: no compiler, no Triton, an old device."""
    attention_backends: tuple[str, ...] = ()
    """Backends of ``scaled_dot_product_attention`` that this build and device have."""
    tensor_plan: bool = False
    """Model or workload say how tensor parallel would split it."""
    ranks: int = 1
    """Ranks that train together; known to whoever asks for them, and put in where settings are chosen."""
    cpu_cores: int = 1
    """Cores this process may use, for data loader workers."""
