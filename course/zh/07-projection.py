# %% [markdown]
# # 7. W[h→; h←] + b：学出来的投影
#
# 许多教程把 ELMo 的向量写成 *W[h→; h←] + b*，然后就不再解释。本章把这个式子拆开：两半各是什么，任务为什么要乘一个矩阵，代价多大，矩阵又学到了什么。
#
# 准备工作：`pip install 'elmokit[plots,zh]'`。

# %%
from pathlib import Path
from urllib.request import urlretrieve

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib import font_manager
from torch import nn

import elmokit

# 图中的汉字需要中文字体：挑一个本机已有的。
fonts = ["WenQuanYi Micro Hei", "Noto Sans CJK SC", "Microsoft YaHei", "PingFang SC"]
installed = {font.name for font in font_manager.fontManager.ttflist}
plt.rcParams["font.family"] = [name for name in fonts if name in installed] + ["DejaVu Sans"]

elmo = elmokit.load("small-zh")
P = elmo.dim // 2
print("向量宽度", elmo.dim, "= 2 ×", P)

# %% [markdown]
# ## 互不来往的两半
#
# ELMo 的每一层都是拼接而成的：前 P 个数来自从左往右读的网络，后 P 个数来自从右往左读的网络。这是两个独立的网络。所以，如果只改句子的*最后一个*词，前面各词的前向那一半不应有任何变化。

# %%
one = elmo.encode([["他", "在", "苹果", "买", "了", "手机"]], layers="top")[0]
two = elmo.encode([["他", "在", "苹果", "买", "了", "股票"]], layers="top")[0]
change = np.abs(one - two)[:5]  # 两句共有的五个词
print("前向一半的最大变化", change[:, :P].max())
print("后向一半的最小变化", change[:, P:].max(axis=1).min())
assert change[:, :P].max() < 1e-5 < change[:, P:].max(axis=1).min()

# %% [markdown]
# “苹果”的后向一半知道句子怎样结尾，前向一半不可能知道。任何一半都没有读完整句，而 ELMo 自己从不把两半合起来，这件事留给下游任务：ELMo 之后第一个带参数的层，才是左右上下文相遇的地方。如果这一层是线性的，它就是
#
# W[h→; h←] + b = W→ h→ + W← h← + b
#
# 对拼接向量乘一个矩阵，等价于两个方向各乘一个矩阵再相加：

# %%
torch.manual_seed(0)
layer = nn.Linear(elmo.dim, 16)
vectors = torch.from_numpy(one)  # (T, 2P)
together = layer(vectors)
left, right = layer.weight[:, :P], layer.weight[:, P:]
apart = vectors[:, :P] @ left.T + vectors[:, P:] @ right.T + layer.bias
print(together.shape, "最大差别", float((together - apart).abs().max().detach()))
assert torch.allclose(together, apart, atol=1e-5)

# %% [markdown]
# 不乘 W、直接把两半相加（h→ + h←）是错的：前向网络的第 5 个数和后向网络的第 5 个数毫无关系，两个网络从不同的随机权重出发，各自训练。
#
# ## 代价与节省
#
# 在 elmokit 里，这个式子只是一个参数：`ElmoEmbedding(..., projection=k)`。无论 biLM 多大，输出的向量都是 k 维。投影本身有 k(2P + 1) 个参数，但后面每一层的输入都变窄了。下面是一个标注器的全部参数量，编码器是每个方向 128 个单元的 biLSTM：


# %%
def tagger(projection):
    embedding = elmokit.ElmoEmbedding(elmo, projection=projection)
    lstm = nn.LSTM(embedding.dim, 128, bidirectional=True)
    return embedding, lstm, nn.Linear(256, 17)


print("projection    embedding       biLSTM        total")
for k in (None, 128, 64, 16):
    parts = [sum(p.numel() for p in part.parameters()) for part in tagger(k)]
    print(f"{k or 'none':>10}{parts[0]:>13,}{parts[1]:>13,}{sum(parts):>13,}")

# %% [markdown]
# 冻结的 biLM 不计在内：它的上千万个参数不参与训练。在*参与*训练的参数里，biLSTM 的输入矩阵占大头，而它的大小正比于向量宽度。
#
# ## 训练它
#
# 任务是词性标注，数据取自 UD Chinese GSDSimp 树库（CC BY-SA 4.0）的短句：140 句训练，70 句测试。如果你手上只有这个 notebook，数据会自动下载。


# %%
def data(path):
    """elmokit 仓库中的文件：本地有就用本地的，没有就下载。"""
    if not Path(path).exists():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        urlretrieve(f"https://raw.githubusercontent.com/elmokit/elmokit/main/{path}", path)
    return Path(path)


def read_tags(path):
    """句子列表，每句是若干 (词, 词性)。"""
    found = []
    for block in data(path).read_text("utf-8").strip().split("\n\n"):
        rows = [line.split("\t") for line in block.splitlines()]
        found.append([(row[1], row[3]) for row in rows])
    return found


train = read_tags("course/data/tags-zh-train.conllu")[:140]
test = read_tags("course/data/tags-zh-test.conllu")[:70]
TAGS = sorted({tag for sentence in train + test for _, tag in sentence})


def tensors(sentences):
    """所有词的所有层，以及词性的编号。"""
    words = [[word for word, _ in sentence] for sentence in sentences]
    layers = np.concatenate(elmo.encode(words, layers="all"), axis=1)  # (L + 1, N, 2P)
    tags = [TAGS.index(tag) for sentence in sentences for _, tag in sentence]
    return torch.from_numpy(layers), torch.tensor(tags)


inputs, targets = tensors(train)
test_inputs, test_targets = tensors(test)
print(inputs.shape, len(TAGS), "种词性，例如", train[0][:5])

# %% [markdown]
# biLM 是冻结的，各层只需计算一次。要训练的东西很少：第 6 章的标量混合、投影 *W[h→; h←] + b*，以及在 k 个数上的线性分类器。


# %%
class Projected(nn.Module):
    def __init__(self, k, halves=slice(None)):
        super().__init__()
        self.halves = halves
        self.mix = elmokit.ScalarMix(elmo.layers)
        width = len(range(elmo.dim)[halves])
        self.projection = nn.Linear(width, k) if k else nn.Identity()
        self.output = nn.Linear(k or width, len(TAGS))

    def project(self, layers):
        return self.projection(self.mix(list(layers))[:, self.halves])  # (N, k)

    def forward(self, layers):
        return self.output(self.project(layers))


def fit(*arguments, steps=80, seed=0):
    torch.manual_seed(seed)
    model = Projected(*arguments)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03, weight_decay=1e-4)
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        right = (model(test_inputs).argmax(1) == test_targets).float().mean()
    return model, float(right)


widths = (1, 2, 4, 8, 16)
models = {k: fit(k) for k in widths}
models["none"] = fit(None)
for k, (_, accuracy) in models.items():
    print(f"k = {k:>4}  准确率 {accuracy:.3f}")
assert models[1][1] < models[8][1]

# %%
# 准确率随投影宽度的变化
figure, axis = plt.subplots(figsize=(5.6, 3.2), layout="constrained")
axis.plot(widths, [models[k][1] for k in widths], marker="o", label="W[h→; h←] + b")
axis.axhline(models["none"][1], color="grey", linestyle="--", label=f"全部 {elmo.dim} 维")
axis.set(xlabel="宽度 k", ylabel="准确率", xscale="log", xticks=widths, xticklabels=widths)
axis.minorticks_off()
axis.legend()
plt.show()

# %% [markdown]
# 一两个数不够区分十几种词性，十来个数就差不多够了：词性只占 ELMo 向量空间里很小的一个子空间。还要注意投影*不是*什么：如果后面紧接着又是线性层，它不会增加表达能力，因为两个矩阵相乘还是一个矩阵，只不过秩最多为 k。它是一个由你决定宽窄的瓶颈。
#
# ## 少一个方向会怎样？
#
# 同样的分类器（k = 16），只用前向一半、只用后向一半、两半都用：

# %%
for name, halves in (("h→", slice(0, P)), ("h←", slice(P, None)), ("[h→; h←]", slice(None))):
    print(f"{name:9} 准确率 {fit(16, halves)[1]:.3f}")

# %% [markdown]
# 两半都看得到词本身，所以只用一半也不会太差；另一半带来的是另一侧的上下文。投影各用了多少？看 W 各列的范数（乘上输入的尺度）：

# %%
weight = models[16][0].projection.weight.detach()  # (16, 2P)
scale = models[16][0].mix(list(inputs)).detach().std(0)
norms = (weight * scale).norm(dim=0)
share = float(norms[:P].square().sum() / norms.square().sum())
print(f"W 中前向一半占 {share:.2f}，后向一半占 {1 - share:.2f}")
assert 0.2 < share < 0.8

# %% [markdown]
# ## 画成一个平面
#
# k = 2 时，投影本身就是一张图。下面的点是测试句中的词，训练时没有见过；每个点都是 W[h→; h←] + b。

# %%
# 测试句中的词投影到两维平面
model, accuracy = models[2]
with torch.no_grad():
    points = model.project(test_inputs).numpy()
figure, axis = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
for tag in ("NOUN", "VERB", "ADP", "ADV", "NUM", "PART", "PUNCT", "PROPN"):
    chosen = points[test_targets.numpy() == TAGS.index(tag)]
    axis.scatter(*chosen.T, s=12, label=tag)
axis.set(xticks=[], yticks=[], title=f"每个词两个数（准确率 {accuracy:.2f}）")
axis.legend(loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()

# %% [markdown]
# 各类词围绕中心，像切开的蛋糕：平面上的线性分类器只能这样切，而投影正是为这个分类器训练的。
#
# ## 放进一个模块
#
# 实际编程时不必自己搬运矩阵。`ElmoEmbedding` 自带标量混合和投影，输入句子，与模型的其余部分一起训练。把刚才学到的权重交给它，可以确认是同一个式子：

# %%
embedding = elmokit.ElmoEmbedding(elmo, projection=2, dropout=0.0)
embedding.mixes[0].load_state_dict(model.mix.state_dict())
embedding.projection.load_state_dict(model.projection.state_dict())
words = [word for word, _ in test[0]]
with torch.no_grad():
    from_module = embedding([words]).vectors[0]
print(words[:4], from_module.shape)
assert np.allclose(from_module.numpy(), points[: len(words)], atol=1e-4)
print(sorted(embedding.state_dict()))

# %% [markdown]
# 它的检查点里只有这几项；biLM 从自己的文件加载。
#
# ## 小结
#
# - [h→; h←] 是两个互不交换信息的网络的拼接，由任务的第一层把它们合起来。
# - W[h→; h←] + b 决定宽度，也就决定了后面各层的大小。
# - 夹在两个线性层之间时，它只是一个瓶颈。
#
# ## 练习
#
# 1. 把拼接换成相加 h→ + h←（宽度 P）再投影。准确率降了多少？比只用一半好吗？
# 2. 在投影和分类器之间加上 `nn.Tanh()`，重做不同宽度的实验。哪些宽度有提升？
# 3. 在[在 PyTorch 模型中使用](../pytorch.md)的标注器里换成 `ElmoEmbedding(elmo, projection=16)`，用这里的句子训练，比较有无投影时的准确率和 `state_dict()` 的大小。
