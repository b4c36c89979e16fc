"""Programs that run in separate processes: training, forward pass, logits, preprocessing."""
