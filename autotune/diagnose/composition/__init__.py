"""What the peak of a training step consists of: blocks matched to real objects."""
