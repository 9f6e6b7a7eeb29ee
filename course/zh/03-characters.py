# %% [markdown]
# # 3. 从字符到词向量
#
# ELMo 的输入端没有词表。它读的是每个词的字符：字符嵌入、几种宽度的卷积、Highway 层、一个投影。本章用 `small-zh` 的真实权重，在 NumPy 里把一个词的每一步都算一遍，最后与库的结果对照。

# %%
import matplotlib.pyplot as plt
import numpy as np
from matplotlib import font_manager

import elmokit

# 图中的汉字需要中文字体：挑一个本机已有的。
fonts = ["WenQuanYi Micro Hei", "Noto Sans CJK SC", "Microsoft YaHei", "PingFang SC"]
installed = {font.name for font in font_manager.fontManager.ttflist}
plt.rcParams["font.family"] = [name for name in fonts if name in installed] + ["DejaVu Sans"]

elmo = elmokit.load("small-zh")
weights = {name: tensor.numpy() for name, tensor in elmo.bilm.named_parameters()}
word = "科学家"

# %% [markdown]
# ## 字符其实是字节
#
# 一个词先变成 UTF-8 字节，前后加上词首、词尾标记，再补上填充。一个汉字是三个字节，所以宽度为 3 的窗口可以正好看到一个字，宽度为 6 的正好看到两个字。

# %%
alphabet = elmo.alphabet
ids = alphabet.ids([word])[0]
print(ids)
print(word.encode().hex(" "), f"（{len(word.encode())} 个字节，编号 = 字节 + 1）")

embedding = weights["encoder.characters.embedding"]  # (262, E)
characters = embedding[ids]  # (C, E)
print("嵌入表", embedding.shape, "这个词", characters.shape)


def spell(ids):
    """窗口里的字节：词首 <，词尾 >，填充 _，不完整的字显示为 ·。"""
    markers = {alphabet.begin_word: b"<", alphabet.end_word: b">", alphabet.padding: b"_"}
    data = b"".join(markers.get(int(i)) or bytes([i - 1]) for i in ids)
    return data.decode("utf-8", errors="replace").replace("\ufffd", "·")


print(spell(ids))

# %% [markdown]
# ## 卷积：n 元字节的检测器
#
# 宽度为 n 的卷积核是一个小矩阵（n × E），在词上滑动，每个窗口得到一个数：越“喜欢”这 n 个字节，数就越大。每个卷积核只保留最大的那个数（max-pooling），所以不管词有多长，每个卷积核只给出一个数。卷积核有几种宽度：


# %%
def windows(characters, width):
    """所有宽度为 width 的窗口，展平：(位置数, width * E)。"""
    positions = len(characters) - width + 1
    return np.stack([characters[i : i + width].ravel() for i in range(positions)])


banks = []  # 宽度、矩阵 (width * E, 卷积核数)、偏置
for number, (width, count) in enumerate(elmo.config.characters.filters):
    weight = weights[f"encoder.characters.filters.{number}.weight"]  # (卷积核数, E, width)
    matrix = weight.transpose(2, 1, 0).reshape(-1, count)
    banks.append((width, matrix, weights[f"encoder.characters.filters.{number}.bias"]))

pooled = []
for width, matrix, bias in banks:
    responses = windows(characters, width) @ matrix + bias  # (位置数, 卷积核数)
    pooled.append(responses.max(axis=0))
    best = int(pooled[-1].argmax())
    start = int(responses[:, best].argmax())
    shown = spell(ids[start : start + width])
    print(
        f"宽度 {width}：响应 {responses.shape}，{best} 号最强：{pooled[-1][best]:.2f}，窗口 {shown}"
    )

x = np.maximum(np.concatenate(pooled), 0)  # ReLU：(F,)
print(f"共 {len(x)} 个数，其中 {(x > 0).mean():.0%} 大于零")

# %% [markdown]
# 宽度为 6 的卷积核里，响应最强的十二个，以及它们在词的哪个位置上响应：

# %%
# 图：十二个最强的宽度 6 卷积核在“科学家”各个位置上的响应
width, matrix, bias = banks[-1]
responses = windows(characters, width) @ matrix + bias
strongest = responses.max(axis=0).argsort()[::-1][:12]
figure, axis = plt.subplots(figsize=(6.5, 3.4), layout="constrained")
limit = np.abs(responses[:, strongest]).max()
image = axis.imshow(
    responses[:, strongest].T, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto"
)
shown = [spell(ids[i : i + width]) for i in range(len(responses))]
axis.set(xticks=range(len(shown)), yticks=range(12), ylabel="卷积核")
axis.set_xticklabels(shown, rotation=60)
axis.set_yticklabels(strongest)
figure.colorbar(image, label="响应")
plt.show()

# %% [markdown]
# 这样的卷积核在找什么？给它看三千个常用词，收集它最喜欢的窗口。

# %%
vocabulary = list(elmo.vocabulary)
common = [entry for entry in vocabulary[3:3003] if entry.isalpha()]
for best in strongest[:4]:
    found = {}
    for other in common:
        other_ids = alphabet.ids([other])[0]
        values = windows(embedding[other_ids], width) @ matrix[:, best] + bias[best]
        at = int(values.argmax())
        found[other] = (float(values[at]), spell(other_ids[at : at + width]))
    liked = sorted(found, key=found.get, reverse=True)[:6]
    print(f"{best:3} 号：", "  ".join(f"{entry}[{found[entry][1]}]" for entry in liked))

# %% [markdown]
# 方括号里是窗口，· 是被切开的字：卷积核按字节滑动，不管字从哪里开始。有的很整齐，找的是同一个字或同一个词尾；有的则同时喜欢几种不相干的东西，要靠下面的 Highway 层来分辨。没有人告诉卷积核该找什么，它们只是对预测有用。
#
# ## Highway：改多少
#
# 这 F 个数再经过一到两个 Highway 层：y = g · relu(A x + a) + (1 − g) · x。门 g 对 F 个数中的每一个都取 0 到 1 之间的值，决定输入被替换多少；为 0 时输入原样通过。


# %%
def sigmoid(x):
    return 0.5 + 0.5 * np.tanh(x / 2)  # 即 1 / (1 + exp(-x))，不会溢出


def highway(x, number):
    name = f"encoder.characters.highways.{number}"
    weight = weights[f"{name}.weight"]  # (2F, F)：上半是 A，下半属于门
    transformed, gate = np.split(weight @ x + weights[f"{name}.bias"], 2)
    gate = sigmoid(gate)
    return gate * np.maximum(transformed, 0) + (1 - gate) * x, gate


y = x
for number in range(elmo.config.characters.highways):
    y, gate = highway(y, number)
    print(f"门：平均 {gate.mean():.2f}，最小 {gate.min():.3f}，最大 {gate.max():.3f}")

# %%
# 图：“科学家”的 Highway 门取值的直方图
figure, axis = plt.subplots(figsize=(5, 2.4), layout="constrained")
axis.hist(gate, bins=40, range=(0, 1))
axis.set(xlabel="门 g", ylabel="个数", title=f"“{word}”的 Highway 门")
plt.show()

# %% [markdown]
# 这一层把不同的卷积核组合起来：“以‘家’结尾，但开头不是‘国’”，单个卷积核说不出来。
#
# ## 投影
#
# 最后用一个矩阵把 F 个数降到 P 个，也就是 LSTM 一个方向的宽度。结果就是 ELMo 的第 0 层，应当与库的结果相同：

# %%
vector = weights["encoder.projection.weight"] @ y + weights["encoder.projection.bias"]  # (P,)
library = elmo.encode([[word]], layers=0)[0][0]  # (2P,)
print(x.shape, "->", y.shape, "->", vector.shape)
print(f"最大误差 {np.abs(vector - library[: len(vector)]).max():.1e}")
assert np.allclose(vector, library[: len(vector)], atol=1e-4)
assert np.array_equal(library[: len(vector)], library[len(vector) :])

# %% [markdown]
# `encode` 给出 2P 个数：同一个向量重复两次，每个方向一次，这样各层宽度一致。
#
# ## 写法相近的词
#
# 输入是字节，所以有相同汉字的词向量也相近，而且没有未登录词。下面在最常用的 5,000 个词里找第 0 层的最近邻。有些词不在模型的预测词表里，照样有向量：

# %%
entries = vocabulary[3:5003]
table = np.concatenate(elmo.encode([[entry] for entry in entries], layers=0))


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


asked = ["科学家", "大学生", "北京市", "元宇宙", "苹果树", "机器学习"]
known = set(vocabulary)
queries = np.concatenate(elmo.encode([[entry] for entry in asked], layers=0))
for entry, cosines in zip(asked, unit(queries) @ unit(table).T, strict=True):
    near = [entries[i] for i in cosines.argsort()[::-1] if entries[i] != entry][:5]
    print(f"{entry}{'' if entry in known else '（不在词表中）'}：", "  ".join(near))

# %%
some = ["大学生", "学生", "石头", "苹果树", "苹果"]
cosines = unit(np.concatenate(elmo.encode([[entry] for entry in some], layers=0)))
cosines = dict(zip(some, cosines @ cosines.T, strict=True))
print(f"大学生与学生  {cosines['大学生'][1]:.2f}")
print(f"大学生与石头  {cosines['大学生'][2]:.2f}")
print(f"苹果树与苹果  {cosines['苹果树'][4]:.2f}")
assert cosines["大学生"][1] > cosines["大学生"][2]
assert cosines["苹果树"][4] > cosines["苹果树"][2]

# %% [markdown]
# 最近邻并不只是字面相似：意思和词性相近的词也在其中，哪怕没有一个字相同。CNN 是为了预测上下文而训练的，容量也够大，装得下常用词的知识。而对少见的词，能依靠的只剩写法，最近邻往往和它有相同的字。
#
# 第 0 层做不到的是看上下文：“科学家”在任何句子里都是这个向量。
#
# ## 小结
#
# - 字节 → 嵌入 → n 元卷积与 max-pooling → Highway → 投影，每一步只有几行代码。
# - 这个向量只取决于词的写法，所以每个不同的词只需算一次。
# - 输入端没有未登录词。（输出端有：softmax 只能预测词表里的词。）
#
# ## 练习
#
# 1. max-pooling 丢掉了位置。比较“蜜蜂”与“蜂蜜”、“上海”与“海上”的第 0 层向量，它们有多像？为什么不会完全相同？
# 2. 把 Highway 换成恒等映射（`y = x`）再投影。对常用词和生造词，结果离真正的向量各有多远？
# 3. 比较“北京”“北京市”“東京”“东京”的第 0 层向量。繁体字和简体字在 UTF-8 里没有共同的字节，这对模型意味着什么？
