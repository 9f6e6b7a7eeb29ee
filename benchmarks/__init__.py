"""Scripts that measure elmokit; each runs as ``python -m benchmarks.FOLDER.SCRIPT``.

speed: vectors per second beside other programs, by size and length, on a GPU, with ONNX and Ray;
startup, memory, the preparation of a corpus. training: tokens per second and perplexity of the
presets. quality: the probes of the paper's tables. tasks: the tasks of the paper's table. models:
what the cards of the embedded models say. server: the HTTP service under load.

report prints a result with the machine and keeps it in results/; fill_pages puts results into the
pages of docs/.
"""
