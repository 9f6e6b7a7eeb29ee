"""The probes for a list of models: run, with its data, baselines and planted changes of meaning."""
