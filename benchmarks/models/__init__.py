"""What a model's card shows: perplexity senses speed storage reproduce; card writes it."""
