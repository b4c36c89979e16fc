"""The sampler inside this process: a small Qwen2 model on the CPU, for a laptop."""
