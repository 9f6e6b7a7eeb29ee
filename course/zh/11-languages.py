# %% [markdown]
# # 11. 其他语言和自己的领域
#
# `small-zh` 读的是百科体的现代汉语。你的文本也许是葡萄牙语，也许是文言文，也许是食客写的点评。出路有三条：加载别人发布的模型、自己训练一个、在现有模型上做领域自适应。本章三条都走一走，最后给出选择的办法。
#
# 准备工作：`pip install 'elmokit[plots,zh]'`。

# %%
import contextlib
import csv
import io
import json
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from urllib.request import urlretrieve

import matplotlib.pyplot as plt
import numpy as np
from matplotlib import font_manager

import elmokit
from elmokit.corpus import CorpusConfig, TokenCorpus, prepare_corpus
from elmokit.lm import perplexity
from elmokit.training import DataConfig, LossConfig, OptimizerConfig, RunConfig, settings_for

# 图中的汉字需要中文字体：挑一个本机已有的。
fonts = ["WenQuanYi Micro Hei", "Noto Sans CJK SC", "Microsoft YaHei", "PingFang SC"]
installed = {font.name for font in font_manager.fontManager.ttflist}
plt.rcParams["font.family"] = [name for name in fonts if name in installed] + ["DejaVu Sans"]

scratch = tempfile.TemporaryDirectory()
folder = Path(scratch.name)


def data(path):
    """elmokit 仓库中的文件：本地有就用本地的，没有就下载。"""
    if not Path(path).exists():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        urlretrieve(f"https://raw.githubusercontent.com/elmokit/elmokit/main/{path}", path)
    return Path(path)


# %% [markdown]
# ## 有没有现成的？
#
# 2018 年以来公开发布的 ELMo 模型，elmokit 都收录了名称、下载地址和许可证：

# %%
known = [model for model in elmokit.models() if model.kind == "published"]
languages = Counter(language for model in known for language in model.languages)
print(len(known), "个模型，", len(languages), "种语言和序列")
print("最多的是", "、".join(f"{name} {count}" for name, count in languages.most_common(8)))
for model in known:
    if any(name.startswith("zh") for name in model.languages):
        print(f"  {model.name}：{'、'.join(model.languages)}，{model.domain}")

# %% [markdown]
# 已发布的模型按名称加载。第一次会下载（几百 MB）、校验并存入缓存：
#
# ```console
# $ elmokit models --language zh
# $ elmokit info manylangs-zhs
# $ elmokit download manylangs-zhs
# ```
#
# ```python
# elmo = elmokit.load("manylangs-zhs")
# ```
#
# `info` 在下载*之前*就列出许可证和每条信息的出处。有些模型没有写明许可证，发布用它做出的东西之前请先问作者。
#
# ## 小语料能买到什么？
#
# 如果没有现成的模型，能自己训练吗？这取决于你有多少文本。下图来自仓库里的一个实验：同一个小网络，用越来越多的英文文本训练，再从四个方面测试（见[需要多少文本](../how-much-text.md)）。

# %%
# 困惑度、词性准确率、词义 F1、命名实体 F1 随训练文本量的变化
results = json.loads(data("benchmarks/results/text_amount.json").read_text("utf-8"))["models"]
runs = sorted(results.values(), key=lambda run: run["tokens"])
tokens = [run["tokens"] / 1e6 for run in runs]
panels = {
    "困惑度": [run["perplexity"]["perplexity"] for run in runs],
    "词性，第 1 层（%）": [run["pos"]["layers"][1] for run in runs],
    "词义，第 2 层（%）": [run["wsd"]["layers"][2] for run in runs],
    "命名实体 F1（%）": [np.mean(run["ner"]["f1"]) for run in runs],
}
figure, axes = plt.subplots(1, 4, figsize=(9, 2.5), layout="constrained")
for axis, (name, values) in zip(axes, panels.items(), strict=True):
    axis.plot(tokens, values, marker="o")
    axis.set(title=name, xscale="log", xlabel="百万词元")
    axis.set_xticks(tokens, [f"{count:.0f}" for count in tokens])
    axis.minorticks_off()
    axis.title.set_fontsize(9)
plt.show()
assert panels["困惑度"][0] > panels["困惑度"][-1]

# %% [markdown]
# 词性很便宜：一百万词元，也就是几百篇文章，已经学到了大半。词义和命名实体需要的文本多得多。横轴是对数刻度，每一步都是三倍左右的文本。
#
# ## 为另一种语言训练
#
# 训练方法里没有哪一处与语言有关。输入由字符（准确地说是 UTF-8 字节）组成，不必定义字母表，要选的只有分词器。这里用文言文做例子：《论语》，一个字一个词元。对只读过现代汉语的模型来说，文言文就是另一种语言。

# %%
STEPS = 40  # long: 300
text = data("course/data/analects-zh.txt")
settings = CorpusConfig(tokenizer="chars", sentences="line", documents="line", heldout=0.1)
prepare_corpus([text], folder / "analects", settings=settings, workers=1)
corpus = TokenCorpus(folder / "analects")
print(text.read_text("utf-8").splitlines()[0])
print(f"{corpus.split('train').tokens:,} 个词元，{len(corpus.words):,} 个不同的字")

config = settings_for(
    "tiny",
    overrides=[
        "model.lstm.cells=128",
        "model.lstm.width=32",
        "model.characters.filters=[[1, 32], [2, 32], [3, 64]]",
        "data.rows=32",
        "data.min_count=3",
        "loss.kind=full",
        "optimizer.lr=0.01",
        f"optimizer.warmup={max(1, STEPS // 10)}",
        f"run.max_steps={STEPS}",
        f"run.evaluate_every={STEPS}",
    ],
)
config = replace(config, corpus=(str(folder / "analects"),), output=str(folder / "classical"))
with contextlib.redirect_stderr(io.StringIO()):  # 训练过程的表格
    classical = elmokit.pretrain(config, device="cpu")
print(classical.encode("学而时习之").shape, "每个字一个向量")

# %% [markdown]
# 它学到东西了吗？和一个只知道字频的模型比一比：

# %%
size = len(classical.vocabulary)
counts = np.array(corpus.counts[:size], dtype=float)
counts[1], counts[2] = len(corpus.split("train")), corpus.counts[size:].sum()  # </S>、<UNK>
logp = np.log((counts + 1) / (counts + 1).sum())
heldout = corpus.split("heldout")
ids, lengths = heldout.gather(np.arange(len(heldout)))
ids = np.where(ids < size, ids, 2)
unigram = np.exp(-np.mean([*logp[ids], *[logp[1]] * len(lengths)]))
sentences = [[corpus.words[i] for i in heldout.tokens_of(n)] for n in range(len(heldout))]
learned = perplexity(classical, sentences).perplexity
print(f"词表有 {size:,} 项，乱猜的困惑度就是 {size:,}")
print(f"字频模型 {unigram:.0f}，biLM 训练 {STEPS} 步之后 {learned:.0f}")
assert learned < unigram

# %% [markdown]
# 几秒钟就超过了字频。不过也要看清它是什么：一本短书，多数章节以“子曰”开头。设 `STEPS = 300`，困惑度会继续下降，然后停住：两万字学不会一门语言。请把这一步当作检查流程是否跑通的办法，然后换成维基百科的转储文件，`elmokit corpus prepare` 可以直接读取（见[语料](../corpus.md)）。
#
# ## 领域自适应
#
# 更常见的情形是：语言没错，文体不对。这里用大众点评上的餐馆点评（ASAP 样例，Apache-2.0），每条取末尾一段：

# %%
elmo = elmokit.load("small-zh")
with data("course/data/reviews-zh.tsv").open(encoding="utf-8", newline="") as file:
    rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
lines = [row["text"][-60:] for row in rows[::2]]
reviews = folder / "reviews.txt"
reviews.write_text("\n".join(lines) + "\n", "utf-8")
for line in lines[:2]:
    print(line)

settings = CorpusConfig(tokenizer="jieba", sentences="line", documents="line", heldout=0.12)
prepare_corpus([reviews], folder / "reviews", settings=settings, workers=1)
split = TokenCorpus(folder / "reviews").split
print(f"用来适应的有 {split('train').tokens:,} 个词元，留出 {split('heldout').tokens:,} 个")

# %% [markdown]
# `adapt` 在新文本上继续训练整个模型，softmax 和词表不变，所以前后的困惑度可以比较。一点点文本，很少的几步：

# %%
ADAPT_STEPS = 14  # long: 60
config = elmokit.AdaptConfig(
    output=str(folder / "diner"),
    data=DataConfig(rows=16, unroll=12),
    loss=LossConfig(negatives=512),
    optimizer=OptimizerConfig(lr=2e-3, warmup=2),
    run=RunConfig(max_steps=ADAPT_STEPS, evaluate_every=ADAPT_STEPS, save_every=1000),
)
with contextlib.redirect_stderr(io.StringIO()):
    result = elmokit.adapt(elmo, folder / "reviews", config, device="cpu")
print(f"留出的点评：困惑度 {result.before.perplexity:.0f} → {result.after.perplexity:.0f}")
assert result.after.perplexity < result.before.perplexity * 0.8

# %% [markdown]
# 下降来自哪里？惊异度是每个词对困惑度的贡献，单位是比特：读过前面的词之后，这个词有多出乎意料？

# %%
# 两句点评中各个词的惊异度，领域自适应前后
TEXTS = ["味道还不错，服务员也很热情。", "环境很好，就是上菜太慢，下次不会再来了。"]
figure, axes = plt.subplots(2, 1, figsize=(7.2, 4), layout="constrained")
for axis, review in zip(axes, TEXTS, strict=True):
    words = elmo.tokenize(review)
    for shift, name, model in ((-0.2, "之前", elmo), (0.2, "之后", result.elmo)):
        bits = [row["forward"] for row in model.surprisal([words])][: len(words)]
        axis.bar(np.arange(len(words)) + shift, bits, width=0.38, label=name)
    axis.set_xticks(range(len(words)), words)
    axis.set_ylabel("比特")
axes[0].legend()
plt.show()

# %% [markdown]
# 两三千个词元就足以改变模型的预期，也足以损害它。适应之后的模型怎样看待普通的百科文字？下面的句子没有任何模型在训练时见过：

# %%
lines = data("tests/data/heldout_zh.txt").read_text("utf-8").splitlines()
general = [elmo.tokenize(line) for line in lines if 30 < len(line) < 90][:8]
for name, model in (("之前", elmo), ("之后", result.elmo)):
    print(f"百科文字，{name}：困惑度 {perplexity(model, general).perplexity:.0f}")
scratch.cleanup()

# %% [markdown]
# 这就是“灾难性遗忘”，用数字写出来的。办法有：降低学习率、减少步数（`elmokit adapt` 的默认设置比这里温和），在语料里掺一些普通文本；最要紧的是在*两种*文本上都测量，等你关心的那一种不再进步就停下。如果向量只是交给分类器用，而你的文本全是点评，这种损失也许无所谓；那也请在你的任务上测一测。
#
# 命令行：
#
# ```console
# $ elmokit adapt reviews.txt -o diner --max-steps 200 --model small-zh
# $ elmokit perplexity other.txt --model diner
# ```
#
# ## 选哪条路？
#
# | 你有 | 就 |
# |---|---|
# | 某种语言，已有发布的模型 | 按名称加载；文本特殊的话再做领域自适应 |
# | 几 MB 中文或英文的领域文本 | 在 `small-zh` 或 `small-en` 上做领域自适应 |
# | 没有模型的语言，不到一百万词元 | 不要训练 biLM；在任务模型里用字符或 n-gram，或者用多语言模型 |
# | 没有模型的语言，几千万词元 | 在 GPU 上预训练，几分钟到几小时（见[预训练](../pretraining.md)） |
#
# ## 小结
#
# - 训练方法与语言无关，有关的是分词器和文本。
# - 领域自适应用不了多少文本和时间，但要留意忘掉了什么。
# - 词表相同、留出的文本相同，困惑度才能比较。
#
# ## 练习
#
# 1. 用 `lr=2e-4` 做领域自适应，画出 5、10、20、40 步之后点评和百科两种困惑度。有没有一点，前者已经进步而后者还没有变差？
# 2. 掺一掺：把 `heldout_zh.txt` 的一半句子和点评放在一起训练，用另一半测量。遗忘减少了多少？
# 3. 《论语》改用 `tokenizer="jieba"` 再训练一次。词表和困惑度怎样变化？为什么这两个困惑度不能直接比较？
