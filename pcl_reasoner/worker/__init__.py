"""Programs with a process of their own: training, forward pass, logits, handlers offline."""
