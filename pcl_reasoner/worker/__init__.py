"""The programs that a training process runs: training, a forward pass, logits, handlers offline."""
