"""n responses a problem: the embedded sampler or an OpenAI-compatible server."""
