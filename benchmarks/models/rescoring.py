"""How long rescoring takes, as a real-time factor, and what the fast path costs.

Run: python -m benchmarks.models.rescoring MODEL [--lists 8] [--n 10] [--save NAME]

There is no audio here. Sentences of tests/data are the utterances; their n-best lists are made by
replacing a random word by a random one of the text, 10 hypotheses each. The real-time factor is the
time to score all hypotheses divided by the time it takes to say the utterances at 150 words per
minute, an assumption; one thread. The times of the three ways alternate, and the median of three
rounds counts. "Changed" is the share of lists whose best hypothesis by the language model alone
differs from that of both directions in float32; and, for int8, from that of forward in float32.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time

import torch

import elmokit
from benchmarks.models.perplexity import first, sentences_of
from benchmarks.report import report
from elmokit.lm.rescoring import forward_only, rescore

WORDS_PER_MINUTE = 150
ROUNDS = 3


def lists_of(elmo: elmokit.Elmo, count: int, n: int) -> list[dict[str, object]]:
    """N-best lists of some sentences, the sentence itself among them."""
    rng = random.Random(0)
    sentences = [s for s in first(sentences_of("sample-en", elmo, None), 10**6) if len(s) > 4]
    words = sorted({word for sentence in sentences for word in sentence})
    records = []
    for sentence in sentences[:count]:
        hypotheses = [{"text": sentence, "score": 0.0}]
        for _ in range(n - 1):
            changed = list(sentence)
            changed[rng.randrange(len(changed))] = rng.choice(words)
            hypotheses.append({"text": changed, "score": 0.0})
        records.append({"hypotheses": hypotheses})
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="anything that elmokit.load reads")
    parser.add_argument("--lists", type=int, default=8)
    parser.add_argument("--n", type=int, default=10)
    parser.add_argument("--save", metavar="NAME", help="write results/rescoring_NAME.txt")
    options = parser.parse_args()
    torch.set_num_threads(1)
    elmo = elmokit.load(options.model, device="cpu")
    ways = {
        "both directions, float32": elmo,
        "forward, float32": forward_only(elmo, "float32"),
        "forward, int8": forward_only(elmo, "int8"),
    }
    records = lists_of(elmo, options.lists, options.n)
    best, seconds = {}, {name: [] for name in ways}
    for _ in range(ROUNDS + 1):  # the first one fills caches
        for name, model in ways.items():
            start = time.perf_counter()
            ranked = list(rescore(model, records, 1.0))
            seconds[name].append(time.perf_counter() - start)
            best[name] = [record["hypotheses"][0]["text"] for record in ranked]
    words = sum(len(record["hypotheses"][0]["text"]) for record in records)
    audio = words / WORDS_PER_MINUTE * 60
    lines = [
        f"{options.model}: {len(records)} lists of {options.n} hypotheses, {words:,} words spoken "
        f"({audio:.0f} s at {WORDS_PER_MINUTE} words per minute), one thread",
        f"{'way':<26} {'seconds':>8} {'real-time factor':>17} {'hypotheses/s':>13} {'changed':>8}",
    ]
    for name, times in seconds.items():
        median = statistics.median(times[1:])
        compared = "forward, float32" if "int8" in name else next(iter(ways))
        changed = sum(a != b for a, b in zip(best[name], best[compared], strict=True))
        lines.append(
            f"{name:<26} {median:>8.2f} {median / audio:>17.4f} "
            f"{len(records) * options.n / median:>13.0f} {changed / len(records):>8.1%}"
        )
    report(f"rescoring_{options.save}", "\n".join(lines), bool(options.save))


if __name__ == "__main__":
    main()
