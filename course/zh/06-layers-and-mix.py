# %% [markdown]
# # 6. 2L + 1 个向量与混合
#
# 论文说，L 层的 biLM 给每个词元 2L + 1 个向量；而各种库给你的是 L + 1 个。公式 ELMo = γ Σ s_j h_j 里，有一组权重之和为一，另有一个权重却不受限制。本章来数一数、验一验，顺便纠正几句教程之间互相抄来抄去的话。

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib import font_manager

import elmokit

# 图中的汉字需要中文字体：挑一个本机已有的。
fonts = ["WenQuanYi Micro Hei", "Noto Sans CJK SC", "Microsoft YaHei", "PingFang SC"]
installed = {font.name for font in font_manager.fontManager.ttflist}
plt.rcParams["font.family"] = [name for name in fonts if name in installed] + ["DejaVu Sans"]

elmo = elmokit.load("small-zh")
tokens = elmo.tokenize("苹果今年卖得很好，农民非常高兴。")
layers = elmo.encode([tokens], layers="all")[0]
L, P = elmo.config.lstm.layers, elmo.config.lstm.width
print(tokens)
print(f"L = {L}，P = {P}")
print(f"层数、词元数、2P：{layers.shape}")

# %% [markdown]
# ## 数一数
#
# 每个词元有一个词向量 x（第 3 章），L 层中的每一层又各有一个前向和一个后向的隐状态（第 4 章）：共 1 + 2L 个宽度为 P 的向量。把每层的两个方向拼接起来，x 则与自己拼接，就成了 L + 1 个宽度为 2P 的向量。不多也不少。

# %%
at = tokens.index("苹果")
vectors = {"x": layers[0, at, :P]}
for layer in range(1, L + 1):
    vectors[f"前向 {layer}"] = layers[layer, at, :P]
    vectors[f"后向 {layer}"] = layers[layer, at, P:]
for name, vector in vectors.items():
    print(f"{vector.shape} 范数 {np.linalg.norm(vector):5.2f}  {np.round(vector[:4], 2)}  {name}")
assert len(vectors) == 2 * L + 1
assert np.array_equal(layers[0, :, :P], layers[0, :, P:])

# %% [markdown]
# ## 两个从不相遇的网络
#
# “ELMo 从两个方向读句子”没错，“每个隐状态都看过整个句子”就错了。前向网络的任何一层都不知道后面是什么。改动一个词，看哪些数会变。

# %%
# 图：把“农民”换成“股东”之后，每个词元的向量在各层、各方向上的变化
other = ["股东" if token == "农民" else token for token in tokens]
changed = elmo.encode([other], layers="all")[0]
difference = np.stack(
    [
        np.linalg.norm((changed - layers)[layer, :, half], axis=1)
        for half in (slice(0, P), slice(P, 2 * P))
        for layer in range(L + 1)
    ]
)  # (方向数 * 层数, T)
names = [f"{way} {n}" for way in ("前向", "后向") for n in range(L + 1)]
figure, axis = plt.subplots(figsize=(7, 2.8), layout="constrained")
image = axis.imshow(difference, cmap="magma_r", aspect="auto")
axis.set(xticks=range(len(tokens)), yticks=range(len(names)))
axis.set_xticklabels(tokens, rotation=45)
axis.set_yticklabels(names)
figure.colorbar(image, label="变化")
plt.show()

# %% [markdown]
# 第 0 层只有被改的词自己变了。前向的一半从这个词开始变，后向的一半到这个词为止变。在被改的词左边，前向的一半在每一层都丝毫不变：

# %%
word = tokens.index("农民")
print("前向，这个词之前：", difference[: L + 1, :word].max())
print("后向，这个词之后：", difference[L + 1 :, word + 1 :].max())
assert difference[: L + 1, :word].max() < 1e-5
assert difference[L + 1 :, word + 1 :].max() < 1e-5
assert difference[2, word + 1] > 0.1
assert difference[L + 3, word - 1] > 0.1

# %% [markdown]
# 所以，句首的“苹果”不管后面高兴的是“农民”还是“股东”，向量的前向一半完全一样，只有后向一半能分辨公司和水果。两边要到下游任务使用整个向量时才相遇。BERT 则在每一层都让两边相遇，这是两者最主要的区别。
#
# ## 标量混合
#
# 下游任务想要每个词元一个向量，于是 ELMo 取各层的加权和：γ Σ s_j h_j，共 L + 1 层。s_j 由 L + 1 个自由的数经过 softmax 得到，所以不管这些数是什么，s_j 总是正的，和为一。γ 是另一个自由的数。

# %%
mix = elmokit.ScalarMix(L + 1, weights=[0.1, 1.0, -0.5], gamma=0.8)
shares = mix.shares().detach().numpy()
print(
    "s =",
    np.round(shares, 3),
    "和",
    round(float(shares.sum()), 6),
    " γ =",
    round(mix.gamma.item(), 3),
)

by_hand = 0.8 * np.tensordot(shares, layers, axes=1)
library = elmo.encode([tokens], layers=mix)[0]
print(f"手算与库的差 {np.abs(by_hand - library).max():.1e}")
assert np.allclose(by_hand, library, atol=1e-5)

moved = elmokit.ScalarMix(L + 1, weights=[10.1, 11.0, 9.5])  # 各加 10：份额不变
assert torch.allclose(mix.shares(), moved.shares())
assert np.allclose(elmo.encode([tokens], layers="mean")[0], layers.mean(axis=0), atol=1e-5)

# %% [markdown]
# 没有任务时默认的 `layers="mean"`，就是 s = (1/3, 1/3, 1/3)、γ = 1。
#
# 为什么要两种权重？s_j 回答*用哪些层*，γ 回答*放大多少*。份额之和为一的加权和落在各层之间，大小也和各层差不多，而任务的网络可能需要别的大小。看它学一次：目标是第 1 层的两倍半，光靠 s 怎么选都到不了。

# %%
target = 2.5 * torch.from_numpy(layers[1])
inputs = torch.from_numpy(layers)
results = {}
for name in ("s 和 γ", "只有 s"):
    mix = elmokit.ScalarMix(L + 1)
    mix.gamma.requires_grad_(name == "s 和 γ")
    optimizer = torch.optim.Adam([p for p in mix.parameters() if p.requires_grad], lr=0.05)
    history = []
    for _ in range(400):
        loss = (mix(list(inputs)) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append([*mix.shares().tolist(), mix.gamma.item(), loss.item()])
    results[name] = np.array(history)
    *s, gamma, error = history[-1]
    print(f"{name}：s = {np.round(s, 2)}，γ = {gamma:.2f}，误差 {error:.4f}")
assert results["s 和 γ"][-1, -1] < results["只有 s"][-1, -1]

# %%
# 图：学习混合的 400 步中各层份额与 γ 的变化
figure, axis = plt.subplots(figsize=(6, 3), layout="constrained")
history = results["s 和 γ"]
for layer in range(L + 1):
    axis.plot(history[:, layer], label=f"s_{layer}")
axis.plot(history[:, L + 1], color="black", label="γ")
axis.set(xlabel="步")
axis.legend(loc="center right")
plt.show()

# %% [markdown]
# 在把份额解读成“任务需要哪一层”之前，请注意：各层的大小不同，份额相同时，大的层分量更重。

# %%
sizes = np.linalg.norm(layers, axis=2).mean(axis=1)
for layer, size in enumerate(sizes):
    print(f"第 {layer} 层：平均范数 {size:5.2f}，在简单平均里占 {size / sizes.sum():.0%}")

# %% [markdown]
# 数据少的时候，学到的份额也会停在起点 1/3 附近。下结论之前，先像第 10 章那样逐层比较。
#
# ## 教程里常见的错误
#
# | 你可能读到 | 其实 |
# |---|---|
# | 三层分别是字符级、词级、句子级 | 三层都是每个*词元*一个向量。第 0 层没有上下文；第 1、2 层都读句子，第 2 层建立在第 1 层之上。没有句子向量 |
# | 一个双向 LSTM | 两组独立的网络，权重各不相同；共用的只有词向量，训练时还有 softmax |
# | 每个状态都看过整个句子 | 前向状态只看左边，后向状态只看右边 |
# | 各层的 γ 之和为一 | 每个任务只有一个 γ；和为一的是 s_j |
# | ELMo 是每个词 1024 个数 | 是每个*词元* (L + 1) × 2P 个数；1024 是某个已发布模型混合之后的 2P |
# | 一个词有一个 ELMo 向量 | 每次出现各有一个；处处相同的只有第 0 层 |
#
# 验证第一行和最后一行：

# %%
first, second = (elmo.tokenize(text) for text in ("他吃了一个苹果。", "他起诉了苹果。"))
a, b = (elmo.encode([t], layers="all")[0][:, t.index("苹果")] for t in (first, second))
for layer in range(L + 1):
    cosine = a[layer] @ b[layer] / np.linalg.norm(a[layer]) / np.linalg.norm(b[layer])
    print(f"第 {layer} 层：两个“苹果”的余弦 {cosine:.3f}")
assert np.allclose(a[0], b[0], atol=1e-5)
assert not np.allclose(a[1], b[1], atol=0.1)
assert not np.allclose(a[2], b[2], atol=0.1)

# %% [markdown]
# ## 小结
#
# - 2L + 1 个宽度为 P 的向量，就是 L + 1 层宽度为 2P 的向量。
# - 向量的前向一半与右边的词无关，后向一半与左边的词无关。
# - s 决定用哪些层（和为一），γ 决定大小（不受限制）。
#
# ## 练习
#
# 1. 改动一个长句的*最后一个*词。第 2 层的后向一半，往左多远还有明显变化？画出变化与距离的关系。
# 2. 混合之前先把每层除以它的平均范数。如果目标是第 1 层加第 2 层，上面的小实验会学到怎样的份额？
# 3. 有教程建议把前向和后向状态相加，而不是拼接。找出两对不同但和相同的状态，说说下游任务因此做不到什么。
