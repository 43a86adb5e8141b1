"""A training script with transformers' Trainer on a device: an evaluation now and then, bf16, no word of autotune."""

import argparse

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

WORDS, LENGTH = 1000, 128

parser = argparse.ArgumentParser()
parser.add_argument("--per_device_train_batch_size", type=int, default=8)
parser.add_argument("--output_dir", default="trained")
args = parser.parse_args()


class Texts(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 20_000

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        words = (torch.arange(LENGTH) * (index + 1)) % WORDS
        return {"input_ids": words, "attention_mask": torch.ones_like(words), "labels": torch.tensor(index % 2)}


config = BertConfig(
    vocab_size=WORDS,
    hidden_size=256,
    num_hidden_layers=4,
    num_attention_heads=4,
    intermediate_size=1024,
    max_position_embeddings=LENGTH,
)
Trainer(
    model=BertForSequenceClassification(config),
    args=TrainingArguments(
        output_dir=args.output_dir,
        per_device_train_batch_size=args.per_device_train_batch_size,
        per_device_eval_batch_size=16,
        max_steps=40,
        bf16=True,
        eval_strategy="steps",
        eval_steps=4,
        save_strategy="no",
        logging_steps=1,
        report_to="none",
        disable_tqdm=True,
    ),
    train_dataset=Texts(),
    eval_dataset=torch.utils.data.Subset(Texts(), range(64)),
).train()
