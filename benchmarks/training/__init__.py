"""Training: presets and cpu (tokens per second), quality and cpu_example (perplexity)."""
