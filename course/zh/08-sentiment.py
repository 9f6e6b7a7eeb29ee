# %% [markdown]
# # 8. 情感分类：先平均池化，再用注意力
#
# 几乎每篇 ELMo 教程的分类器都是“词向量取平均，再接一个全连接层”。本章用纯 PyTorch 在冻结的各层上实现它，用真实的点评做诚实的测试；然后把平均换成注意力，让模型自己决定每个词的分量，再看看它是怎么决定的。
#
# 准备工作：`pip install 'elmokit[plots,zh]'`。

# %%
import csv
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


def data(path):
    """elmokit 仓库中的文件：本地有就用本地的，没有就下载。"""
    if not Path(path).exists():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        urlretrieve(f"https://raw.githubusercontent.com/elmokit/elmokit/main/{path}", path)
    return Path(path)


with data("course/data/reviews-zh.tsv").open(encoding="utf-8", newline="") as file:
    rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
print(len(rows), "条点评，好评差评各一半")
for row in rows[0], rows[-1]:
    print(f"{row['label']}: ……{row['text'][-60:]}")

# %% [markdown]
# 这是大众点评上的餐馆点评，取自 ASAP 数据集公开的样例（Apache-2.0）：三星及以下算差评（neg），五星算好评（pos）。点评很长，而总评多半写在末尾，所以每条只取最后 64 个词元。
#
# ## 先算各层
#
# biLM 保持冻结，每条点评只需编码一次，得到 L + 1 层、T 个词元、每个 2P 个数。长短不一的点评要填充成一个张量，另用一个掩码标明哪些位置是真的。

# %%
elmo = elmokit.load("small-zh")
LENGTH = 64


def tensors(sentences):
    """各层 (B, L + 1, T, 2P) 和掩码 (B, T)。"""
    encoded = elmo.encode(sentences, layers="all")
    longest = max(layers.shape[1] for layers in encoded)
    batch = torch.zeros(len(encoded), elmo.layers, longest, elmo.dim)
    mask = torch.zeros(len(encoded), longest, dtype=torch.bool)
    for i, layers in enumerate(encoded):
        batch[i, :, : layers.shape[1]] = torch.from_numpy(layers)
        mask[i, : layers.shape[1]] = True
    return batch, mask


reviews = [elmo.tokenize(row["text"])[-LENGTH:] for row in rows]
inputs, mask = tensors(reviews)
targets = torch.tensor([float(row["label"] == "pos") for row in rows])
print(inputs.shape)

# %% [markdown]
# ## 平均池化加全连接层
#
# 第 6 章的标量混合让每个词元得到一个向量，平均之后每条点评一个向量，全连接层再给出一个数：大于零就是好评。填充位置不能参与平均，所以要用真实词元之和除以真实词元的个数。忘记掩码是这里最常见的错误：短文本的向量会因此变小。


# %%
class MeanClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = elmokit.ScalarMix(elmo.layers)
        self.dropout = nn.Dropout(0.5)
        self.dense = nn.Linear(elmo.dim, 1)

    def weights(self, vectors, mask):
        """每个词元的分量：(B, T)，每行之和为一。"""
        return mask / mask.sum(1, keepdim=True)

    def forward(self, layers, mask):
        vectors = self.mix(list(layers.unbind(1)))  # (B, T, 2P)
        pooled = (self.weights(vectors, mask)[..., None] * vectors).sum(1)  # (B, 2P)
        return self.dense(self.dropout(pooled))[:, 0]


# %% [markdown]
# ## 注意力
#
# 要改的只有 `weights`。一个可训练的向量（query）与每个词元的向量做内积，就是该词元的得分；在整句上做 softmax，得分变成和为一的权重。填充位置的得分是负无穷，权重为零。所有得分相等时就是平均，所以 query 取零向量，正好从平均开始训练。


# %%
class AttentionClassifier(MeanClassifier):
    def __init__(self):
        super().__init__()
        self.query = nn.Parameter(torch.zeros(elmo.dim))  # 一开始权重相等

    def weights(self, vectors, mask):
        scores = vectors @ self.query / elmo.dim**0.5  # (B, T)
        return scores.masked_fill(~mask, -torch.inf).softmax(1)


# %% [markdown]
# ## 交叉验证
#
# 一百多条点评，留出四分之一做测试，结果会被运气左右。五折交叉验证让每条点评都恰好被测试一次：分成五份，轮流用四份训练、一份测试。两个模型用同样的划分、同样的轮数和优化器。

# %%
EPOCHS = 10  # long: 30
FOLDS = 5


def fit(kind, chosen, seed=0):
    torch.manual_seed(seed)
    model = kind()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02, weight_decay=0.01)
    for _ in range(EPOCHS):
        for part in chosen[torch.randperm(len(chosen))].split(28):
            scores = model(inputs[part], mask[part])
            loss = nn.functional.binary_cross_entropy_with_logits(scores, targets[part])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model.eval()


order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
fold = torch.arange(len(rows)) % FOLDS
for kind in (MeanClassifier, AttentionClassifier):
    scores = []
    for number in range(FOLDS):
        model = fit(kind, order[fold != number])
        held_out = order[fold == number]
        with torch.no_grad():
            positive = model(inputs[held_out], mask[held_out]) > 0
        scores.append(float((positive == targets[held_out].bool()).float().mean()))
    size = sum(p.numel() for p in model.parameters())
    runs = "、".join(f"{score:.2f}" for score in scores)
    print(f"{kind.__name__:20} {size} 个参数  准确率 {np.mean(scores):.3f}（各折 {runs}）")
    assert np.mean(scores) > 0.55

# %% [markdown]
# 全猜好评的准确率是 0.5。140 条点评上，0.7 左右的准确率的标准误差约为 0.04，所以两个模型若只差两三个百分点，就等于没有差别：相信一个比较之前，先算这个数。各折之间的起伏也说明了同样的事。注意力的参数多一倍，要靠同样一百来个标签来学，不要指望奇迹；它一定能给你的，是看到判断来自哪里。
#
# 三星也算差评，这样的点评往往有褒有贬，是这个任务难的原因之一。
#
# ## 注意力在看什么

# %%
# 三句话中各个词的注意力权重
TEXTS = [
    "菜很好吃，服务也很热情，下次还会再来。",
    "等了一个小时，菜是凉的，服务员态度很差。",
    "环境不错，可是味道很一般，不会再来了。",
]
model = fit(AttentionClassifier, torch.arange(len(rows)))
sentences = [elmo.tokenize(text) for text in TEXTS]
layers, real = tensors(sentences)
with torch.no_grad():
    weights = model.weights(model.mix(list(layers.unbind(1))), real)  # (3, T)
    chances = model(layers, real).sigmoid()
assert torch.allclose(weights.sum(1), torch.ones(3), atol=1e-5)

figure, axes = plt.subplots(3, 1, figsize=(7.2, 4.6), layout="constrained")
for axis, words, row, chance in zip(axes, sentences, weights.numpy(), chances, strict=True):
    axis.bar(range(len(words)), row[: len(words)])
    axis.axhline(1 / len(words), color="grey", linestyle="--", linewidth=1)
    axis.set_xticks(range(len(words)), words, fontsize=9)
    axis.set_ylabel("权重", fontsize=8)
    axis.set_title(f"p(好评) = {float(chance):.2f}", fontsize=9, loc="left")
plt.show()

# %% [markdown]
# 虚线是平均：每个词的分量相同。高出虚线的词被加重了。这样的图要小心解读：权重属于*向量*，而“很差”后面的句号，其向量也读到了“很差”。注意力说明信息取自哪里，不说明答案为什么是这样。
#
# 在全部点评里，平均下来哪些词的权重最高？

# %%
with torch.no_grad():
    all_weights = model.weights(model.mix(list(inputs.unbind(1))), mask)
    lift = all_weights * mask.sum(1, keepdim=True)  # 等于 1 就是平均
totals = {}
for row, words in zip(lift.tolist(), reviews, strict=True):
    for word, value in zip(words, row, strict=False):
        totals.setdefault(word, []).append(value)
ranked = sorted((np.mean(v), word) for word, v in totals.items() if len(v) >= 8)
print("最高：", "、".join(f"{word} {value:.1f}" for value, word in ranked[:-11:-1]))
print("最低：", "、".join(f"{word} {value:.1f}" for value, word in ranked[:10]))

# %% [markdown]
# ## 更少的代码
#
# 命令行里两种分类器都有：`head.kind` 取 `mean` 或 `attention`（后者下面还有一层 biLSTM），配方 `classify-tutorial` 就是上面的模型。请用比这里多得多的点评训练，测试集留到最后：
#
# ```console
# $ elmokit train classify --train train.csv --dev dev.csv --test test.csv -o my-classifier --config classify-tutorial --model small-zh
# $ elmokit predict my-classifier new.txt
# ```
#
# 文件格式见[任务](../tasks.md)；[任务结果](../task-results.md)里有 ChnSentiCorp 酒店评论等十九个数据集的分数。
#
# ## 小结
#
# - 平均池化加一个全连接层是很好的起点：几百个参数，几秒钟训练。
# - 注意力把相等的权重换成学出来的权重，代价是更多的参数，要有数据才划算。
# - 说一个模型更好之前，先看多次运行的起伏，再算测试集的标准误差。
#
# ## 练习
#
# 1. 把平均换成最大池化：`elmo.encode(reviews, pool="max")` 再接全连接层。哪些点评平均会判错，最大池化却能判对？
# 2. 把 `LENGTH` 改成 16、32、128，并试试取开头而不是末尾。总评真的写在末尾吗？
# 3. 只用第 0 层（`inputs[:, :1]`，它没有读过上下文）。准确率差多少？再写几句带“不”“没”的点评试试。
