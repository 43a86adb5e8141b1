"""A small text classifier trained by transformers' Trainer; autotune takes the Trainer as it is.

    autotune inspect examples/hf_trainer.py                                # what of it will be probed
    autotune search examples/hf_trainer.py --output autotune.json
    autotune export autotune.json --to hf                                  # the same as TrainingArguments
    python examples/hf_trainer.py --batch-size 32                          # checks autotune.json where there is one

Needs transformers and accelerate. No model and no data is downloaded: texts are random numbers of different lengths.
"""

import argparse
from pathlib import Path

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

WORDS = 1000
LONGEST = 64

Text = dict[str, torch.Tensor]


def make_texts(count: int, seed: int) -> list[Text]:
    """Texts of 8 to 64 words, each with a label."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(8, LONGEST + 1, (count,), generator=generator).tolist()
    words = (torch.randint(1, WORDS, (length,), generator=generator) for length in lengths)
    return [{"input_ids": text, "labels": text[0] % 2} for text in words]


def collate(texts: list[Text]) -> Text:
    """Texts padded to the longest of their batch: ``input_ids`` and ``attention_mask`` (batch, length)."""
    padded = pad_sequence([text["input_ids"] for text in texts], batch_first=True)
    labels = torch.stack([text["labels"] for text in texts])
    return {"input_ids": padded, "attention_mask": (padded > 0).long(), "labels": labels}


def make_trainer(batch_size: int = 8, steps: int = 20) -> Trainer:
    """What is trained; autotune calls this without arguments and sets the batch size itself."""
    config = BertConfig(
        vocab_size=WORDS,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=512,
        max_position_embeddings=LONGEST,
    )
    arguments = TrainingArguments(
        output_dir="hf_trainer_output",
        per_device_train_batch_size=batch_size,
        max_steps=steps,
        learning_rate=3e-4,
        weight_decay=0.01,
        label_smoothing_factor=0.1,
        save_strategy="no",
        report_to="none",
    )
    return Trainer(
        BertForSequenceClassification(config),
        arguments,
        data_collator=collate,
        train_dataset=make_texts(2000, seed=0),
        eval_dataset=make_texts(200, seed=1),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train a small text classifier.")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=20)
    given = parser.parse_args()
    trainer = make_trainer(given.batch_size, given.steps)
    if Path("autotune.json").exists():
        from autotune.integrations.huggingface import AutotuneCallback

        trainer.add_callback(AutotuneCallback("autotune.json"))
    print(f"loss after {given.steps} steps: {trainer.train().training_loss:.3f}")
