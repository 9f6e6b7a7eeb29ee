"""Run chapter 5 with its long settings, and store its curves and examples for its page.

python course/data/long_run.py en    # five minutes of CPU time
"""

from __future__ import annotations

import datetime
import json
import platform
import sys
import time
from pathlib import Path

import matplotlib as mpl
import torch

sys.path.insert(0, str(Path(__file__).parents[2]))

from tools.course import Chapter, long_version

language = sys.argv[1]
mpl.use("agg")
source = Chapter(language, "05-train-your-own").source.read_text("utf-8")
target = Path(f"course/data/long-run-{language}.json")
names: dict[str, object] = {"__name__": "long_run"}
before = time.process_time()
exec(compile(long_version(source), "chapter 5", "exec"), names)
result = {
    "date": datetime.date.today().isoformat(),
    "machine": f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}",
    "minutes": round((time.process_time() - before) / 60, 1),
    "unigram": round(float(names["unigram"]), 1),  # type: ignore[arg-type]
    "curves": names["curves"],
    "examples": names["examples"],
}
target.write_text(json.dumps(result, ensure_ascii=False) + "\n", "utf-8")
print(target)
