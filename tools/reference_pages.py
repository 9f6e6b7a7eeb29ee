"""Writes docs/reference and its Chinese twin: one page for each room of the package.

python tools/reference_pages.py            # compare the pages with the public names
python tools/reference_pages.py --write    # write them again
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"

ROOMS = {
    "elmokit": ("The names at hand after `import elmokit`", "`import elmokit` 后直接可用的名称"),
    "text": ("Text to tokens to character ids", "文本 → 词元 → 字符 ID"),
    "corpus": ("Raw text to shards for pretraining", "原始文本 → 预训练用的分片"),
    "model": ("Ids to hidden states to layers", "ID → 隐状态 → 各层"),
    "checkpoints": ("Files to a model and back; downloads", "文件与模型的互相转换；下载"),
    "encode": ("A model to vectors and files of vectors", "模型 → 向量与向量文件"),
    "lm": ("A model to probabilities of words", "模型 → 词的概率"),
    "word_vectors": ("Static vectors", "静态词向量"),
    "training": ("Text to a model", "文本 → 模型"),
    "tasks": ("Labelled examples to a predictor", "标注样本 → 预测器"),
    "probes": ("What each layer encodes", "各层编码了什么信息"),
    "integrations": ("Other libraries, older programs", "其他库与旧程序的接口"),
    "server": ("The HTTP server and its client", "HTTP 服务器与客户端"),
    "ray": ("The same work on a Ray cluster", "在 Ray 集群上完成同样的工作"),
    "config": ("The configuration of a model", "模型配置"),
    "errors": ("Exceptions", "异常"),
}
"""The pages in the order of the data flow."""
MODULES = {
    "training": ["training.pretrain.pretrain", "training.adapt.adapt"],
    "tasks": ["tasks.config", "tasks.task", "tasks.inputs.source"],
    "integrations": [
        "integrations.migration.allennlp",
        "integrations.migration.embedders",
        "integrations.migration.seqvec",
    ],
    "config": ["config"],
    "errors": ["errors", "limits.ReadLimits"],
}
"""What is public and no name of its room."""
OWN_PAGE = {"elmokit", "config", "errors"}
"""Pages that are no folder of the package."""
MARK = "<!-- tools/reference_pages.py writes this page. -->"
INTRO = (
    "# Reference\n\nEvery name here is public. Import it from `elmokit` or from its folder, "
    "for example\n`from elmokit.lm import perplexity`: the modules inside a folder may change.\n\n"
    "| page | about |\n|---|---|\n",
    "# 参考\n\n这里的名称都是公开的。请从 `elmokit` 或其所在的文件夹导入，例如\n"
    "`from elmokit.lm import perplexity`；文件夹内部的模块可能会变动。"
    "各名称的说明取自代码，为英文。\n\n"
    "| 页面 | 内容 |\n|---|---|\n",
)
HEADS = ("| name | also in |\n|---|---|\n", "| 名称 | 也在 |\n|---|---|\n")


def pages(language: int) -> dict[str, str]:
    """The text of every page by its name."""
    found = {room: page(room, language) for room in ROOMS}
    rows = [f"| [{title(room)}]({room}.md) | {ROOMS[room][language]} |\n" for room in ROOMS]
    return {"index": f"{MARK}\n\n{INTRO[language]}{''.join(rows)}", **found}


def title(room: str) -> str:
    return room if room == "elmokit" else f"elmokit.{room}"


def page(room: str, language: int) -> str:
    end = "。" if language else "."
    parts = [MARK, f"# {title(room)}", f"{ROOMS[room][language]}{end}"]
    if room == "elmokit":
        homes = public_names("elmokit")
        rows = (f"| [`{name}`][{home}.{name}] | `{folder(home)}` |\n" for name, home in homes)
        return "\n\n".join([*parts, HEADS[language] + "".join(rows)])
    names = [] if room in OWN_PAGE else public_names(f"elmokit.{room}")
    shown = [f"{home}.{name}" for name, home in names]
    shown += [f"elmokit.{name}" for name in MODULES.get(room, ())]
    return "\n\n".join([*parts, *(f"::: {name}" for name in shown)]) + "\n"


def public_names(package: str) -> list[tuple[str, str]]:
    """The public names of a package and the modules that define them."""
    return list(importlib.import_module(package)._homes.items())


def folder(home: str) -> str:
    """Where else a name can be imported from."""
    return ".".join(home.split(".")[:2])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true")
    write = parser.parse_args().write
    for language, folder in enumerate((DOCS / "reference", DOCS / "zh" / "reference")):
        wanted = {f"{name}.md": text for name, text in pages(language).items()}
        if write:
            folder.mkdir(exist_ok=True)
            for name, text in wanted.items():
                (folder / name).write_text(text, "utf-8")
        elif wanted != {path.name: path.read_text("utf-8") for path in folder.glob("*.md")}:
            sys.exit(f"{folder}: differs from the code; run tools/reference_pages.py --write")


if __name__ == "__main__":
    main()
