"""A tiny BERT in a Trainer, about 6 MiB a sample: ``bert.py KIND`` with plain, bf16 or lora."""

import ctypes
import sys

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

KIND = sys.argv[1] if len(sys.argv) > 1 else "plain"

# Every large tensor gets a mapping of its own and gives it back, so that the heap does not fragment by chance.
if sys.platform == "linux":
    ctypes.CDLL(None).mallopt(-3, 128 * 1024)  # M_MMAP_THRESHOLD, see mallopt(3)

LENGTH = 128
DATA = [{"input_ids": torch.full((LENGTH,), 1 + i % 9), "labels": torch.tensor(i % 2)} for i in range(96)]


def make_model():
    config = BertConfig(
        vocab_size=10,
        hidden_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=4096,
        max_position_embeddings=LENGTH,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = BertForSequenceClassification(config)
    if KIND == "lora":
        from peft import LoraConfig, TaskType, get_peft_model

        model = get_peft_model(model, LoraConfig(task_type=TaskType.SEQ_CLS, r=2, target_modules=["query", "value"]))
    return model


def make_trainer():
    arguments = TrainingArguments(
        "never_made",
        bf16=KIND == "bf16",
        optim="adamw_torch",
        weight_decay=0.1,
        learning_rate=0.25,
        label_smoothing_factor=0.1,
        gradient_accumulation_steps=2,
        report_to="all",
        use_cpu=True,
    )
    return Trainer(make_model(), arguments, train_dataset=DATA, eval_dataset=DATA[:20])
