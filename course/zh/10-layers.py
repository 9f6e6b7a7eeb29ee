# %% [markdown]
# # 10. 每一层知道什么
#
# ELMo 给每个词三个向量：第 0 层来自字符，第 1、2 层来自句子。论文最有名的发现是各层编码的信息不同：语法在下，词义在上。不少教程把它说成“字符层、词层、句子层”，这是错的：每一层都是每个*词*一个向量。本章用探针来测量，并且加上对照，以免过于轻信。
#
# 准备工作：`pip install 'elmokit[plots,zh]'`。

# %%
import csv
from pathlib import Path
from urllib.request import urlretrieve

import matplotlib.pyplot as plt
import numpy as np
from matplotlib import font_manager

import elmokit
import elmokit.probes

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


def read_tags(path):
    """每句是一对列表：词和词性。"""
    found = []
    for block in data(path).read_text("utf-8").strip().split("\n\n"):
        rows = [line.split("\t") for line in block.splitlines()]
        found.append(([row[1] for row in rows], [row[3] for row in rows]))
    return found


elmo = elmokit.load("small-zh")
train = read_tags("course/data/tags-zh-train.conllu")
test = read_tags("course/data/tags-zh-test.conllu")[:80]
print(
    f"训练 {sum(len(words) for words, _ in train)} 个词，测试 {sum(len(words) for words, _ in test)} 个词"
)
print(list(zip(*train[1], strict=True))[:6])

# %% [markdown]
# ## 探针
#
# 探针是一个简单到不会“动脑筋”的分类器：从向量到词性只有一个线性层。如果它成功了，说明词性本来就能从向量里直接读出来。我们在 UD Chinese GSDSimp 树库（CC BY-SA 4.0）的短句上为每一层训练一个探针，再用另外的句子测试。elmokit 里它是一个函数，也是一条命令（`elmokit probe pos`）。

# %%
report = elmokit.probes.pos(elmo, train, test, curve=())
print(report.table().partition("\n\n")[0])

# %% [markdown]
# 怎样读这张表：
#
# - *accuracy* 是测试集中词性正确的比例。第 0 层没有读过句子，只知道词由哪些字组成。
# - *each word's usual tag* 完全不用向量，只查训练集里每个词最常见的词性。探针必须比它好。
# - *control* 是下面要说的对照。
#
# ## 学会了，还是背下来了？
#
# 几百个输入的线性层能背下几千个词。所以让同样的探针去学一件没有意义的事：给每个词随机指定一个词性（Hewitt 和 Liang，2019）。要把这件事做好，只能靠背。有意义的是真实词性和随机词性之间的差距，叫选择性（selectivity）。

# %%
for layer in report.layers:
    print(
        f"第 {layer.layer} 层：真实词性 {layer.accuracy:.2f}，"
        f"随机词性 {layer.control:.2f}，选择性 {layer.selectivity:.2f}"
    )
assert report.layers[1].accuracy > report.layers[0].accuracy
assert report.layers[1].selectivity > report.layers[0].selectivity

# %% [markdown]
# 第 0 层连随机词性也学得不错，因为它认得出是哪个词。第 1 层的真实词性更准，随机词性却更差：它舍弃了一部分“是哪个词”的信息，换来词在句子里的角色。
#
# 第二个对照：同样的结构，随机的权重。没有训练过的网络也会把字形信息传上去，训练的功劳要以它为起点来衡量。

# %%
untrained = elmokit.probes.random_weights(elmo, seed=1)
random_report = elmokit.probes.pos(untrained, train, test, curve=())
for one, other in zip(report.layers, random_report.layers, strict=True):
    print(f"第 {one.layer} 层：训练过 {one.accuracy:.2f}，随机权重 {other.accuracy:.2f}")
    assert one.accuracy > other.accuracy

# %% [markdown]
# ## 词义
#
# 再看词义。中文没有像 SemCor 那样公开、又能随本教程分发的义项标注语料，所以这里用一份小小的测试题：每题一个多义词、三个句子，其中两句意思相同、一句不同。如果前两句里这个词的余弦更高，就算答对。这些题目在训练任何内置模型之前就写好了，此后不再改动。

# %%
with data("tests/data/sense_pairs_zh.tsv").open(encoding="utf-8", newline="") as file:
    questions = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
print(len(questions), "题，例如：")
for part, sentence in questions[2].items():
    print(f"  {part:7}", sentence)

PARTS = ("anchor", "same", "other")
sentences = [row[part].split() for row in questions for part in PARTS]


def margins(encoded):
    """每题、每一层：与同义句的余弦减去与异义句的余弦。"""
    found = np.zeros((len(questions), elmo.layers))
    for i, row in enumerate(questions):
        uses = [
            layers[:, words.index(row["word"])]
            for words, layers in zip(sentences[3 * i :][:3], encoded[3 * i :][:3], strict=True)
        ]
        unit = [use / np.linalg.norm(use, axis=1, keepdims=True) for use in uses]  # (L + 1, 2P)
        found[i] = (unit[0] * (unit[1] - unit[2])).sum(axis=1)
    return found


def right(margins):
    """每一层答对的题数；余弦相等算半题。"""
    return np.where(abs(margins) < 1e-5, 0.5, margins > 0).sum(axis=0)


trained = margins(elmo.encode(sentences, layers="all"))
trained_right = right(trained)
random_right = right(margins(list(untrained.stream(sentences))))
for layer in range(elmo.layers):
    print(f"第 {layer} 层：{trained_right[layer]:g} 题，随机权重 {random_right[layer]:g} 题")
assert trained_right[0] == len(questions) / 2
assert trained_right[1:].max() > trained_right[0]

# %% [markdown]
# 第 0 层恰好对一半，而且必然如此：同一个词在任何句子里的第 0 层向量都相同，三个余弦全都相等。能区分词义的只有读过句子的层。顶层答错的是哪几题？看一看比看总分更有收获：

# %%
for row, margin in zip(questions, trained[:, -1], strict=True):
    if margin <= 0:
        print(f"{row['word']}：{row['anchor']}")

# %% [markdown]
# ## 放在一起

# %%
# 各层的词性准确率（含对照）和词义题的正确率
figure, axes = plt.subplots(1, 2, figsize=(7.4, 3.2), layout="constrained")
numbers = range(elmo.layers)
axes[0].plot(numbers, [x.accuracy for x in report.layers], marker="o", label="small-zh")
axes[0].plot(numbers, [x.accuracy for x in random_report.layers], marker="s", label="随机权重")
axes[0].plot(numbers, [x.control for x in report.layers], marker="^", label="随机词性")
axes[0].set(title="词性", ylabel="准确率")
axes[1].plot(numbers, trained_right / len(questions), marker="o", label="small-zh")
axes[1].plot(numbers, random_right / len(questions), marker="s", label="随机权重")
axes[1].axhline(0.5, color="grey", linestyle="--", label="乱猜")
axes[1].set(title="词义", ylabel="答对的比例")
for axis in axes:
    axis.set(xticks=numbers, xlabel="层")
    axis.legend(fontsize=8)
plt.show()

# %% [markdown]
# 在已发布的英文模型上，词性在第 1 层最好，词义在第 2 层最好。你的结果一致吗？先拿标准误差量一量：一千多个测试词上，0.85 左右的准确率的标准误差约为 0.01；20 道题，0.75 左右的正确率的标准误差约为 0.1。从第 0 层到有上下文的层，差距很大；第 1 层和第 2 层之间的差别，靠 20 道题是分不出来的。[内置模型](../embedded-models.md)里有用完整测试集得到的结果；[需要多少文本](../how-much-text.md)表明，学会词义需要的文本远多于学会词性。
#
# ## 这些不能说明什么
#
# - 某一层*编码*了某种信息，不等于下游任务*用到*了它。训练好的标量混合更能说明后者（`elmokit probe layers my-tagger`），但短时间训练后各层的权重仍接近三分之一，不要过度解读。
# - 带隐藏层的探针在哪一层得分都会更高，却说明不了更多：它会把没找到的东西自己算出来。
# - 各层不是“字符、词、句子”。三层都是词的向量，区别在于读了多少上下文、做了多少变换。
#
# 换成自己的数据，词性部分只要一条命令。`--against random` 加上第二个对照，`--plot` 画图：
#
# ```console
# $ elmokit probe pos train.conllu test.conllu --model small-zh --against random --plot pos.png
# ```
#
# [探针](../probes.md)一页还有相似度、多义、语义变化、鲁棒性、语法等探针；有义项标注的语料时用 `elmokit probe wsd`。
#
# ## 小结
#
# - 用弱到不会自己计算的探针来测量各层，并且永远带上对照。
# - 第 0 层认得出是哪个词；上面的层拿一部分这种信息，换来词在句中的角色和意思。
# - 层与层之间的小差别，要用大的测试集才看得清。
#
# ## 练习
#
# 1. 只用十分之二的训练数据：`train[::5]`。数据变少，哪一层下降最多？它的选择性怎样变化？
# 2. 用各层的平均做探针：`elmokit.probes.pos` 接受任何带有 `name`、`layers`、`dim`、`tokenize`、`stream` 的类（见[探针](../probes.md)）。平均比最好的一层还好吗？
# 3. 把标签换成词本身看不出来的东西，例如*下一个*词的词性。哪几层知道？第 0 层又怎么可能知道一点？
