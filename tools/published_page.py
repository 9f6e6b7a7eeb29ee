"""Writes docs/published-models.md and its Chinese twin from the catalogue of published models.

python tools/published_page.py            # compare the pages with the catalogue
python tools/published_page.py --write    # write them again
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from urllib.parse import urlsplit

from elmokit.checkpoints import PublishedModel, published_models

DOCS = Path(__file__).parents[1] / "docs"
Word = Callable[[str], str]

LANGUAGES = {
    "ar": ("Arabic", "阿拉伯语"),
    "as": ("Assamese", "阿萨姆语"),
    "bg": ("Bulgarian", "保加利亚语"),
    "bn": ("Bengali", "孟加拉语"),
    "ca": ("Catalan", "加泰罗尼亚语"),
    "cs": ("Czech", "捷克语"),
    "cu": ("Old Church Slavonic", "古教会斯拉夫语"),
    "da": ("Danish", "丹麦语"),
    "de": ("German", "德语"),
    "el": ("Greek", "希腊语"),
    "en": ("English", "英语"),
    "es": ("Spanish", "西班牙语"),
    "et": ("Estonian", "爱沙尼亚语"),
    "eu": ("Basque", "巴斯克语"),
    "fa": ("Persian", "波斯语"),
    "fi": ("Finnish", "芬兰语"),
    "fr": ("French", "法语"),
    "ga": ("Irish", "爱尔兰语"),
    "gl": ("Galician", "加利西亚语"),
    "grc": ("Ancient Greek", "古希腊语"),
    "gu": ("Gujarati", "古吉拉特语"),
    "he": ("Hebrew", "希伯来语"),
    "hi": ("Hindi", "印地语"),
    "hr": ("Croatian", "克罗地亚语"),
    "hu": ("Hungarian", "匈牙利语"),
    "id": ("Indonesian", "印度尼西亚语"),
    "it": ("Italian", "意大利语"),
    "ja": ("Japanese", "日语"),
    "kn": ("Kannada", "卡纳达语"),
    "ko": ("Korean", "韩语"),
    "kok": ("Konkani", "孔卡尼语"),
    "la": ("Latin", "拉丁语"),
    "lt": ("Lithuanian", "立陶宛语"),
    "lv": ("Latvian", "拉脱维亚语"),
    "ml": ("Malayalam", "马拉雅拉姆语"),
    "mr": ("Marathi", "马拉地语"),
    "nb": ("Norwegian Bokmål", "书面挪威语"),
    "ne": ("Nepali", "尼泊尔语"),
    "nl": ("Dutch", "荷兰语"),
    "nn": ("Norwegian Nynorsk", "新挪威语"),
    "no": ("Norwegian", "挪威语"),
    "or": ("Odia", "奥里亚语"),
    "pa": ("Punjabi", "旁遮普语"),
    "pl": ("Polish", "波兰语"),
    "protein": ("protein", "蛋白质"),
    "pt": ("Portuguese", "葡萄牙语"),
    "ro": ("Romanian", "罗马尼亚语"),
    "ru": ("Russian", "俄语"),
    "sa": ("Sanskrit", "梵语"),
    "sk": ("Slovak", "斯洛伐克语"),
    "sl": ("Slovene", "斯洛文尼亚语"),
    "sv": ("Swedish", "瑞典语"),
    "ta": ("Tamil", "泰米尔语"),
    "tcr": ("T-cell receptor", "T 细胞受体"),
    "te": ("Telugu", "泰卢固语"),
    "tr": ("Turkish", "土耳其语"),
    "ug": ("Uyghur", "维吾尔语"),
    "uk": ("Ukrainian", "乌克兰语"),
    "ur": ("Urdu", "乌尔都语"),
    "vi": ("Vietnamese", "越南语"),
    "zh-Hans": ("Chinese, simplified", "简体中文"),
    "zh-Hant": ("Chinese, traditional", "繁体中文"),
}
GROUPS = {
    "English models of AllenNLP and cuts of them": "AllenNLP 英语模型及其裁剪版",
    "Models contributed to AllenNLP": "AllenNLP 收录的社区模型",
    "Cross-lingual models of seven languages": "七种语言的跨语言模型",
    "AllenNLP task models and Hugging Face repositories": "AllenNLP 任务模型与 Hugging Face 仓库",
    "TF-Hub, Spark NLP, GluonNLP": "TF-Hub、Spark NLP、GluonNLP",
    "ELMoForManyLangs": "ELMoForManyLangs",
    "NLPL vectors repository": "NLPL 词向量库",
    "DeepPavlov (Russian)": "DeepPavlov（俄语）",
    "EMBEDDIA": "EMBEDDIA",
    "Languages of India": "印度诸语言",
    "Other languages": "其他语言",
    "Domains of English": "英语的各个领域",
    "Biology": "生物序列",
}
WORDS = {
    "general": "通用",
    "news": "新闻",
    "web": "网页",
    "wikipedia": "维基百科",
    "social media": "社交媒体",
    "biomedical": "生物医学",
    "clinical": "临床",
    "chemistry": "化学",
    "materials science": "材料科学",
    "job titles": "职位名称",
    "programming": "编程",
    "protein": "蛋白质",
    "task": "下游任务",
    "test": "测试",
    "not stated": "未说明",
    "documented": "有文献",
    "unverified": "未核实",
    "wide": "维",
    "also": "别名",
    "weights": "权重",
    "options": "配置",
    "vocabulary": "词表",
    "checkpoint": "检查点",
    "archive": "压缩包",
    "repository": "仓库",
    "mirror": "镜像",
    "or": "或",
    "by hand": "手动下载",
    "no reader": "无法读取",
}
HEADS = (
    "| name | language, domain, sizes | corpus; licence | files; status |",
    "| 名称 | 语言、领域、规模 | 语料；许可证 | 文件；状态 |",
)
MARK = "<!-- Below this line tools/published_page.py writes. -->\n"
FILTER = """<input id="filter" type="search" placeholder="{hint}"
style="width: 100%; padding: 0.4rem; border: 1px solid; border-radius: 4px">

<script>
document.getElementById("filter").addEventListener("input", (event) => {{
  const words = event.target.value.toLowerCase().split(/\\s+/)
  for (const row of document.querySelectorAll("tbody tr")) {{
    const text = row.textContent.toLowerCase()
    row.hidden = !words.every((word) => text.includes(word))
  }}
}})
</script>
"""
COUNTS = (
    "{total} models in {languages} languages and kinds of sequences. Of {no_reader} elmokit cannot "
    "read the files: [what they are](#no-reader).\n",
    "共 {total} 个模型，覆盖 {languages} 种语言与生物序列。其中 {no_reader} 个的文件 elmokit "
    "无法读取，见[说明](#无法读取的模型)。\n",
)
ENDINGS = (("## No reader", "| name | why |"), ("## 无法读取的模型", "| 名称 | 原因 |"))
HINTS = ("Filter: name, language, domain, …", "筛选：名称、语言、领域……")
CHINESE = 1
LONG = 24
"""Characters of an alias that only `elmokit info` shows."""


def tables(language: int) -> str:
    models = published_models()

    def word(text: str) -> str:
        return WORDS[text] if language == CHINESE else text

    codes = {code for model in models for code in model.languages}
    unreadable = [model for model in models if model.reader is None]
    counts = {"total": len(models), "languages": len(codes), "no_reader": len(unreadable)}
    parts = [COUNTS[language].format(**counts), FILTER.format(hint=HINTS[language])]
    for group, some in groupby(models, lambda model: model.group):
        title = GROUPS[group] if language == CHINESE else group
        rows = [row(model, language, word) for model in some]
        parts.append("\n".join([f"## {title}", "", HEADS[language], "|---" * 4 + "|", *rows, ""]))
    title, head = ENDINGS[language]
    rows = [f"| `{model.name}` | {model.no_reader} |" for model in unreadable]
    parts.append("\n".join([title, "", head, "|---|---|", *rows, ""]))
    return "\n".join(parts)


def row(model: PublishedModel, language: int, word: Word) -> str:
    names = [f"`{model.name}`"]
    if also := [f"`{alias}`" for alias in model.aliases if len(alias) < LONG]:
        names.append(f"{word('also')} {', '.join(also)}")
    spoken = ", ".join(f"{LANGUAGES[code][language]} ({code})" for code in model.languages)
    cells = [
        names,
        [spoken, word(model.domain), sizes(model, word)],
        [model.corpus or "–", model.licence or "–"],
        [files(model, word), ": ".join(filter(None, [word(model.status), "; ".join(model.notes)]))],
    ]
    return "| " + " | ".join("<br>".join(filter(None, cell)) for cell in cells) + " |"


def sizes(model: PublishedModel, word: Word) -> str:
    given = model.architecture
    lstm = f"{given.layers}×{given.cells}/{given.projection}" if given.cells else ""
    wide = f"{given.dim} {word('wide')}" if given.dim else ""
    return ", ".join(filter(None, [lstm, wide]))


def files(model: PublishedModel, word: Word) -> str:
    sets = []
    for some in model.downloads:
        links = []
        for file in some:
            first, *mirrors = map(link, file.addresses)
            roles = Counter(other.role for other in some)
            name = word(file.role) if roles[file.role] == 1 else f"`{file.name}`"
            links.append(f"[{name}]({first})")
            links += [f"[{word('mirror')}]({mirror})" for mirror in mirrors]
        sets.append(", ".join(links))
    if sets:
        return f"; {word('or')} ".join(sets)
    if model.reader is None:
        return word("no reader")
    pages = [f"[{urlsplit(o.address).netloc}]({o.address})" for o in model.others]
    return f"{word('by hand')}: {', '.join(dict.fromkeys(pages))}" if pages else ""


def link(address: str) -> str:
    hub = address.removeprefix("hf:")
    return address if hub == address else f"https://huggingface.co/{hub}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true")
    write = parser.parse_args().write
    for language, folder in enumerate((DOCS, DOCS / "zh")):
        path = folder / "published-models.md"
        text = path.read_text("utf-8")
        whole = f"{text.partition(MARK)[0]}{MARK}\n{tables(language)}"
        if write:
            path.write_text(whole, "utf-8")
        elif text != whole:
            sys.exit(f"{path}: differs from the catalogue; run tools/published_page.py --write")


if __name__ == "__main__":
    main()
