# %% [markdown]
# # 5. 训练自己的 biLM
#
# 训练一个语言模型要多少文本、多少时间？要做得好，两样都要很多（`small-zh` 在 GPU 上读了两亿词元）。如果只想亲眼看它学习，半兆文本加一个 CPU 就够了。本章清洗一份文本，算一个基线，用两种优化器训练 biLM，再拿来用一用。
#
# 文本是中文维基百科（2020 年）关于动物、植物和真菌的 248 篇条目（作者为各条目的编辑者，CC BY-SA 3.0）。换成自己的文件也可以：一行一段，文档之间空一行。

# %%
import contextlib
import io
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from urllib.request import urlretrieve

import matplotlib.pyplot as plt
import numpy as np
from matplotlib import font_manager

import elmokit
from elmokit.corpus import CleaningConfig, CorpusConfig, TokenCorpus, prepare_corpus
from elmokit.training import read_log, settings_for

# 图中的汉字需要中文字体：挑一个本机已有的。
fonts = ["WenQuanYi Micro Hei", "Noto Sans CJK SC", "Microsoft YaHei", "PingFang SC"]
installed = {font.name for font in font_manager.fontManager.ttflist}
plt.rcParams["font.family"] = [name for name in fonts if name in installed] + ["DejaVu Sans"]

STEPS = 16  # long: 1000
EVALUATE = 8  # long: 50
CELLS = 128  # long: 256
WIDTH = 32  # long: 64
ROWS = 12  # long: 32


def data(path):
    """elmokit 仓库中的文件：本地有就用本地的，没有就下载。"""
    if not Path(path).exists():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        urlretrieve(f"https://raw.githubusercontent.com/elmokit/elmokit/main/{path}", path)
    return Path(path)


text = data("course/data/nature-zh.txt.xz")
scratch = tempfile.TemporaryDirectory()
folder = Path(scratch.name)

# %% [markdown]
# 下面是一次只有几秒的训练：`STEPS = 16`，网络也很小。真正的训练是同样的代码，只是换成 `long:` 后面的数，在 CPU 上要五到十分钟，它的曲线在后面。
#
# ## 清洗，以及为什么不清洗
#
# 教程喜欢清洗：去掉标点和数字，去掉停用词。elmokit 也能做（命令行选项 `--lower`、`--strip-non-letters`、`--stop-words 文件`）。看看一个句子会变成什么样。

# %%
stop_words = ("的", "了", "是", "在", "和", "与", "及", "或", "也", "为", "有", "于", "等", "之")
plain = CorpusConfig(tokenizer="jieba", heldout=0.05)
cleaned = replace(
    plain, cleaning=CleaningConfig(lower=True, strip_non_letters=True, stop_words=stop_words)
)
corpora = {}
for name, settings in (("原样", plain), ("清洗", cleaned)):
    prepare_corpus([text], folder / name, settings=settings, workers=1)
    corpora[name] = corpus = TokenCorpus(folder / name)
    train = corpus.split("train")
    first = " ".join(corpus.words[i] for i in train.tokens_of(0))
    print(f"{name}：{train.tokens:,} 个词元，{len(corpus.words):,} 个不同的词。例如：")
    print(f"  {first}")

# %% [markdown]
# 清洗之后只剩一串关键词。“的”“在”“于”决定了谁修饰谁、谁在哪里，标点和数字撑起了句子的结构。词袋模型需要清洗，因为每多一种写法就多一列；字符模型不怕写法多，而语言模型去掉虚词以后，就没有语法可学了。所以：切分句子和词，其余保持原样。留出部分（5 % 的文档，训练时从不读）用来评估。
#
# ## 基线：词频
#
# 先看一个完全不看上下文、只按词频预测的模型。词表以外的词算作同一个符号 `<UNK>`，对它和对后面的模型都一样，这样两者的任务才相同。

# %%
overrides = [
    "model.text.tokenizer=jieba",
    f"model.lstm.cells={CELLS}",
    f"model.lstm.width={WIDTH}",
    "model.characters.filters=[[1, 16], [2, 16], [3, 32], [4, 32]]",
    f"data.rows={ROWS}",  # 并行读多少个句子
    "data.unroll=20",  # 时间上反向传播的步数
    "data.min_count=3",  # 更少见的词，作为预测目标都是 <UNK>
    "loss.kind=full",
    "run.dropout=0.1",
    f"run.max_steps={STEPS}",
    f"run.evaluate_every={EVALUATE}",
    f"optimizer.warmup={STEPS // 10}",
]
corpus = corpora["原样"]
size = int((corpus.counts >= 3).sum()) + 3  # <S>、</S>、<UNK>
END, UNKNOWN = 1, 2

counts = np.array(corpus.counts[:size], dtype=float)
counts[UNKNOWN] = corpus.counts[size:].sum()
counts[END] = len(corpus.split("train"))
logp = np.log((counts + 1) / (counts + 1).sum())

heldout = corpus.split("heldout")
ids, lengths = heldout.gather(np.arange(len(heldout)))
ids = np.where(ids < size, ids, UNKNOWN)
unigram = np.exp(-np.mean([*logp[ids], *[logp[END]] * len(lengths)]))
print(f"留出 {len(ids):,} 个词元，词表 {size:,}，其中 <UNK> 占 {(ids == UNKNOWN).mean():.0%}")
print(f"一元模型的困惑度 {unigram:.1f}")

# %% [markdown]
# ## 两种优化器
#
# 老教程用带 Nesterov 动量的随机梯度下降（SGD）：v ← μ v + ∇，w ← w − r (∇ + μ v)。AdamW 则按每个参数近期梯度的大小来缩放它的步长。两者用同样的网络、同样顺序的同样文本，以及各自合适的学习率：SGD 的是 AdamW 的一百倍。

# %%
optimizers = {
    "sgd": ["optimizer.name=sgd", "optimizer.momentum=0.9", "optimizer.lr=1.0"],
    "adamw": ["optimizer.name=adamw", "optimizer.lr=0.01"],
}
models, curves = {}, {}
for name, chosen in optimizers.items():
    config = settings_for("tiny", overrides=[*overrides, *chosen])
    config = replace(config, corpus=(str(folder / "原样"),), output=str(folder / name))
    with contextlib.redirect_stderr(io.StringIO()) as log:  # 训练过程的表格
        models[name] = elmokit.pretrain(config, device="cpu")
    entries = read_log(folder / name / "training" / "log.jsonl")
    found = [entry for entry in entries if entry["kind"] == "heldout"]
    curves[name] = [(entry["step"], round(entry["perplexity"], 2)) for entry in found]
    print(name, "各步之后的留出困惑度：", dict(curves[name]))
assert len(models["adamw"].vocabulary) == size
for name, curve in curves.items():
    assert curve[-1][1] < curve[0][1], name

# %% [markdown]
# 在命令行里，每次训练只要一行：
#
#     elmokit pretrain nature-zh.txt.xz -o my-model --preset tiny --tokenizer jieba --heldout 0.05 --set optimizer.name=sgd --set optimizer.lr=1.0
#
# ## 长的训练
#
# `course/data/long_run.py` 用长的设置运行本章，并把曲线存下来。

# %%
# 图：长的训练中两种优化器的留出困惑度随步数的变化，虚线是一元模型
stored = json.loads(data("course/data/long-run-zh.json").read_text("utf-8"))
figure, axis = plt.subplots(figsize=(6.5, 3.4), layout="constrained")
for name, curve in stored["curves"].items():
    axis.plot(*zip(*curve, strict=True), "o-", label=name)
axis.axhline(stored["unigram"], color="0.5", linestyle=":", label="一元模型")
axis.set(xlabel="步数", ylabel="留出困惑度", ylim=(0, None))
axis.legend()
plt.show()
print(stored["machine"])
print(f"两次训练共用 CPU 时间 {stored['minutes']:.1f} 分钟")
for name, curve in stored["curves"].items():
    print(f"{name:6} 最低的留出困惑度 {min(value for _, value in curve):.1f}")

# %% [markdown]
# 从这样的图里可以读出三件事。第一，头一两百步之内就胜过了词频。第二，各用各的学习率，两种优化器的结果相差不大；如果互换学习率，SGD 几乎不动，AdamW 则会发散（见练习 1），所以“SGD 不行”和“Adam 不行”的说法都能在文章里找到。第三，曲线若重新上升，就是网络开始死记训练文本了：最好的权重在曲线的最低点，`pretrain` 保留的正是那一份。
#
# ## 拿来用
#
# 半兆文本训练的模型知道什么？让它填空：分别是刚才的短训练、长的训练（存下的结果）和 `small-zh`。

# %%
sentences = [
    ("它 是 菊科 下 的 一种 植物 。", "植物"),
    ("它 分布 于 中国 的 云南 等 地 。", "分布"),
    ("花 为 白色 ， 果实 为 红色 。", "红色"),
]
elmo, small = models["adamw"], elmokit.load("small-zh")
examples = {}
for sentence, word in sentences:
    tokens = sentence.split()
    gap = tokens.index(word)
    shown = {}
    for name, model in (("短训练", elmo), ("small-zh", small)):
        shown[name] = [found.word for found in model.substitutes(tokens, gap, 6)]
    examples[sentence] = shown["短训练"]
    shown["长训练"] = stored["examples"].get(sentence, [])
    print(sentence.replace(f" {word} ", " ____ "))
    for name, words in shown.items():
        print(f"  {name}：", "  ".join(words))

# %%
scratch.cleanup()

# %% [markdown]
# 几秒钟只够认得标点和几个常用词，其余都是噪声。长的训练学会了这一类文本的套话：分类、分布、颜色，除此之外一无所知。`small-zh` 读过的文本多上千倍，懂的中文多得多，在生物条目里却未必更在行（第 11 章两者兼得：让大模型适应一个领域）。要训练更大的模型，换掉文件和预设即可：数字见[预训练](../pretraining.md)和[需要多少文本](../how-much-text.md)。
#
# ## 小结
#
# - 保留标点和虚词；留出整篇文档；和一元模型比较。
# - 只有文本和词表都相同时，困惑度才能比较。
# - 不给优化器各自的学习率，就算不上比较。
#
# ## 练习
#
# 1. 给两种优化器同样的学习率（先 0.01，再 1.0），画出四条曲线。
# 2. 用清洗过的语料训练。它的困惑度为什么不能和上面的相比？可以改比什么？
# 3. 把分词换成 `chars`（一个字一个词元），词表、`<UNK>` 的比例和困惑度各怎么变？怎样才能公平地比较两种切分？
