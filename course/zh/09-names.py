# %% [markdown]
# # 9. 命名实体识别：有没有 ELMo 差多少
#
# “加上 ELMo 之后 F1 提高了若干个点”，这句话写起来容易，要写得有根据却不容易。本章用少量真实数据把同一个标注器训练两遍，一遍不用 ELMo，一遍用，并照顾到公平比较的各个方面：其余一切相同、多个随机种子、用实体 F1 而不是准确率，最后看差别从哪里来。
#
# 准备工作：`pip install 'elmokit[plots,zh]'`。

# %%
import tempfile
from pathlib import Path
from urllib.request import urlretrieve

import matplotlib.pyplot as plt
import numpy as np
from matplotlib import font_manager

import elmokit

# 图中的汉字需要中文字体：挑一个本机已有的。
fonts = ["WenQuanYi Micro Hei", "Noto Sans CJK SC", "Microsoft YaHei", "PingFang SC"]
installed = {font.name for font in font_manager.fontManager.ttflist}
plt.rcParams["font.family"] = [name for name in fonts if name in installed] + ["DejaVu Sans"]


def data(path):
    """elmokit 仓库中的文件：本地有就用本地的，没有就下载。"""
    if not Path(path).exists():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        urlretrieve(f"https://raw.githubusercontent.com/elmokit/elmokit/main/{path}", path)
    return Path(path)


def read(path):
    """每句是一对列表：词元和标签。"""
    found = []
    for block in data(path).read_text("utf-8").strip().split("\n\n"):
        tokens, tags = zip(*(line.split("\t") for line in block.splitlines()), strict=True)
        found.append((list(tokens), list(tags)))
    return found


labelled = read("course/data/names-zh-train.conll")
train, dev = labelled[:120], labelled[120:160]
test = read("course/data/names-zh-test.conll")[:100]
print(f"训练 {len(train)} 句，验证 {len(dev)} 句，测试 {len(test)} 句")
print(
    " ".join(
        f"{token}/{tag}" if tag != "O" else token for token, tag in zip(*train[0], strict=True)
    )
)

# %% [markdown]
# 数据来自 Universal NER 的简体中文部分（CC BY-SA 4.0），标注了人名（PER）、机构名（ORG）和地名（LOC）。`B-` 是一个名字的开头，`I-` 是它的后续，`O` 是其他一切。一两百个标注好的句子，正是许多项目手上的数据量。
#
# ## 为什么不看准确率
#
# 大多数词不是名字。一个什么都找不到的标注器，按词元计算的准确率是：

# %%
gold = [tag for _, tags in test for tag in tags]
nothing = gold.count("O") / len(gold)
print(f"{nothing:.3f}")
assert nothing > 0.7

# %% [markdown]
# 可见准确率不是合适的指标。我们想知道的是：找出来的名字里有多少是对的（精确率），实际的名字里有多少被找到了（召回率）。开头、结尾、类型全对才算对。F1 是两者的调和平均。


# %%
def spans(tags):
    """BIO 标签序列中的名字：(起点, 终点, 类型)。"""
    found = []
    for i, tag in enumerate([*tags, "O"]):
        if found and found[-1][1] is None and not (tag[0] == "I" and tag[2:] == found[-1][2]):
            found[-1] = (found[-1][0], i, found[-1][2])
        if tag[0] == "B":
            found.append((i, None, tag[2:]))
    return set(found)


def f1(gold, predicted):
    """若干标签序列的实体 F1。"""
    pairs = [(spans(g), spans(p)) for g, p in zip(gold, predicted, strict=True)]
    right = sum(len(g & p) for g, p in pairs)
    precision = right / max(1, sum(len(p) for _, p in pairs))
    recall = right / max(1, sum(len(g) for g, _ in pairs))
    return 2 * precision * recall / max(1e-9, precision + recall)


example = ["O", "B-PER", "I-PER", "O", "B-LOC"]
print(sorted(spans(example)))
print("第一个名字少了半截：", round(f1([example], [["O", "B-PER", "O", "O", "B-LOC"]]), 2))

# %% [markdown]
# ## 只差一点的两个标注器
#
# `elmokit.tasks.fit("tag", ...)` 训练的是 biLSTM 加 CRF。两个标注器都有可训练的词嵌入和一个小的字符 CNN，所以不用 ELMo 的那个也看得到字形。`elmo=None` 就只有这些；`elmo=elmo` 则再拼接上 ELMo 各层的标量混合。其余完全相同：句子、轮数、学习率、随机种子。最佳轮次按验证集选，测试集到最后才用。

# %%
EPOCHS = 8  # long: 30
SEEDS = 3
elmo = elmokit.load("small-zh")
store = tempfile.TemporaryDirectory()  # 冻结的各层只计算一次，各个种子共用


def settings(seed):
    return elmokit.tasks.task_settings(
        "tag",
        None,
        [
            f"run.epochs={EPOCHS}",
            f"run.seed={seed}",
            "run.batch=8",
            "optimizer.lr=0.01",
            "optimizer.warmup=5",
            "encoder.cells=32",
            "inputs.words=32",
            "inputs.characters=16",
        ],
    )


def run(model, seed):
    return elmokit.tasks.fit(
        "tag", train, dev, elmo=model, config=settings(seed), store=store.name, quiet=True
    )


taggers = {
    name: [run(model, seed) for seed in range(SEEDS)]
    for name, model in (("不用 ELMo", None), ("用 ELMo", elmo))
}
without, with_elmo = taggers

# %%
sentences = [tokens for tokens, _ in test]
gold = [tags for _, tags in test]
predicted = {name: [t.predict(sentences) for t in runs] for name, runs in taggers.items()}
scores = {name: np.array([f1(gold, p) for p in runs]) for name, runs in predicted.items()}
for name, runs in scores.items():
    flat = [
        [a == b for g, q in zip(gold, p, strict=True) for a, b in zip(g, q, strict=True)]
        for p in predicted[name]
    ]
    print(
        f"{name}：准确率 {np.mean(flat):.3f}，F1 {runs.mean():.3f}，"
        f"标准差 {runs.std(ddof=1):.3f}，各种子 {runs.round(3)}"
    )

official = taggers[with_elmo][0].evaluate(test)
assert abs(official["f1"] - scores[with_elmo][0]) < 1e-6  # 上面十来行代码与 elmokit 的结果一致
assert scores[with_elmo].mean() > scores[without].mean()
store.cleanup()

# %% [markdown]
# 先看准确率：即使是很差的标注器，准确率也和“什么都找不到”不相上下。再看 F1。这就是命名实体的论文都报告 F1 的原因。
#
# 也要替不用 ELMo 的标注器说句公道话：它从零开始学，而本页只训练了很短的时间。设 `EPOCHS = 30` 时它的进步比另一个大，差距会缩小，但不会消失。
#
# ## 差别是真的吗？
#
# 尺子是各个种子之间的起伏。差半个标准差是噪声，差许多个就不是。

# %%
# 两种标注器各个种子的实体 F1
figure, axis = plt.subplots(figsize=(5, 3.2), layout="constrained")
for x, runs in enumerate(scores.values()):
    axis.bar(x, runs.mean(), width=0.5, color="lightsteelblue")
    axis.scatter([x] * SEEDS, runs, color="black", s=14, zorder=3)
axis.set(xticks=range(2), xticklabels=scores, ylabel="测试集上的实体 F1", ylim=(0, 1))
plt.show()
gain = scores[with_elmo] - scores[without]
print(
    f"各种子的提高 {gain.round(3)}；相对错误减少 {gain.mean() / (1 - scores[without].mean()):.0%}"
)

# %% [markdown]
# 三个种子说明训练有多大起伏，却不能说明换一个*测试集*会有多大起伏：只有一两百个名字时，还要再加几个百分点。要写论文，请用更多的种子、完整的测试集，并对句子做 bootstrap（练习 2）。
#
# ## 差别从哪里来？
#
# 测试集里大多数名字用到的词，在训练句子里根本没出现过。只有自己的词嵌入的标注器，除了字形对它们一无所知。ELMo 则在预训练时读过大量没有标注的句子，见过它们。

# %%
known = {token for tokens, _ in train for token in tokens}
counts = {"训练集里见过": [], "没见过": []}
for index, (words, tags) in enumerate(test):
    for span in spans(tags):
        unseen = any(word not in known for word in words[span[0] : span[1]])
        counts["没见过" if unseen else "训练集里见过"].append((index, span))
for kind, wanted in counts.items():
    recall = [
        np.mean([span in spans(p[i]) for p in predicted[name] for i, span in wanted])
        for name in scores
    ]
    print(f"{kind}：{len(wanted)} 个名字，召回率 {recall[0]:.2f}（不用）、{recall[1]:.2f}（用）")

# %% [markdown]
# ## 看几个句子
#
# 数字看不出模型具体做了什么。`details=True` 会给出名字、位置和概率：

# %%
tagger, plain = taggers[with_elmo][0], taggers[without][0]
for text in (
    "王小明 去年 从 北京 搬 到 了 昆明 。",
    "他 离开 微软 ， 去 了 杭州 的 一 家 小 公司 。",
    "长江 大桥 位于 南京 。",
):
    print(text)
    for name, model in ((without, plain), (with_elmo, tagger)):
        found = model.predict([text.split()], details=True)[0]
        names = [f"{span.text}（{span.type}，{span.score:.2f}）" for span in found.spans]
        print(f"  {name}：", "、".join(names) or "没有找到")

# %% [markdown]
# 最后一句是故意出的难题：“长江”是地名，“长江大桥”也是，边界该划在哪里？
#
# ## 一条命令
#
# 本章的比较是内置功能，如果有静态词向量，还可以作为第三、第四种输入。它用所有种子训练所有变体，打印均值、标准差和错误减少的比例：
#
# ```console
# $ elmokit train tag --train train.conll --dev dev.conll --test test.conll -o gains --config tag-ner --compare --seeds 5 --model small-zh
# ```
#
# [任务结果](../task-results.md)里有十九个数据集用全部训练数据得到的这种表格。那里的提高比这里小：标注越多，可提高的余地越少。
#
# ## 小结
#
# - 准确率会美化命名实体标注器，请用实体 F1。
# - 跑一次只是个例，多个种子加标准差才是测量。
# - 标注数据越少、名字越新，ELMo 的帮助越大。
#
# ## 练习
#
# 1. 分别用 30、60、120、240 句训练两个标注器，画出 F1 随句数变化的曲线。在这里 ELMo 相当于多少个标注句子？
# 2. 做 bootstrap：从测试集中有放回地抽 100 句，重复 1000 次，每次计算两者 F1 之差。2.5 % 和 97.5 % 分位数是多少？
# 3. 给不用 ELMo 的标注器一切便利：更多轮数、更多单元、`inputs.characters=50`，只按验证集选择。它能追上多少？
