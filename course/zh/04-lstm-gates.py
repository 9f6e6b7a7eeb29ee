# %% [markdown]
# # 4. LSTM 的门
#
# 第 3 章的词向量对句子一无所知。把句子加进来的是两组 LSTM：一组从左到右，一组从右到左。LSTM 就是六个公式。本章把公式和计算它们的代码并排放在一起，使用 `small-zh` 的真实权重，并与库的隐状态对照。

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
shape = elmo.config.lstm
H, P = shape.cells, shape.width
print(f"每个方向 {shape.layers} 层，H = {H} 个细胞，隐状态有 P = {P} 个数")


def weights(direction, layer):
    prefix = f"lstm.{direction}_stack.{layer}."
    found = {n: t.numpy() for n, t in elmo.bilm.named_parameters() if n.startswith(prefix)}
    return {name.removeprefix(prefix): array for name, array in found.items()}


for name, array in weights("forward", 0).items():
    print(f"{name:13} {array.shape}")

# %% [markdown]
# ## 六个公式
#
# 每读一个词，这一层用到三样东西：词的向量 x、自己上一步的隐状态 h、细胞状态 c。
#
# | | 公式 | 含义 |
# |---|---|---|
# | 输入门 | i = σ(W_i x + U_i h + b_i) | 候选值写入多少 |
# | 遗忘门 | f = σ(W_f x + U_f h + b_f + 1) | 旧的细胞状态保留多少 |
# | 候选值 | g = tanh(W_g x + U_g h + b_g) | 可以写入的内容 |
# | 输出门 | o = σ(W_o x + U_o h + b_o) | 细胞状态露出多少 |
# | 细胞状态 | c ← clip(f · c + i · g) | 留一些，写一些 |
# | 隐状态 | h ← clip(R (o · tanh c)) | 露出一些，再从 H 个数投影到 P 个 |
#
# 四组 W、U、b 按 i、f、g、o 的顺序各存在一个大矩阵里。有两点是教科书里的 LSTM 没有的：投影 R 让细胞可以很多而 h 仍然不大；c 和 h 都要截断（clip），限制在一定范围内。遗忘门里的 1 让刚开始训练的网络先把细胞状态留住，再慢慢学会丢掉什么。


# %%
def sigmoid(x):
    return 0.5 + 0.5 * np.tanh(x / 2)  # 即 1 / (1 + exp(-x))，不会溢出


def step(w, x, h, c):
    i, f, g, o = np.split(w["input_weight"] @ x + w["state_weight"] @ h + w["bias"], 4)
    i, f, g, o = sigmoid(i), sigmoid(f + shape.forget_bias), np.tanh(g), sigmoid(o)
    c = np.clip(f * c + i * g, -shape.cell_clip, shape.cell_clip)
    h = np.clip(w["projection"] @ (o * np.tanh(c)), -shape.projection_clip, shape.projection_clip)
    return h, c, (i, f, g, o)


# %% [markdown]
# 只有五行。现在从零初始状态开始，让它读一个句子。句首有标记 `<S>`，它和别的词元一样有自己的向量。

# %%
text = "银行 去年 借给 他 一大笔 钱 买 房子 。"
tokens = text.split()
x = elmo.encode([["<S>", *tokens, "</S>"]], layers=0)[0][:, :P]  # 词向量 (T + 2, P)


def run(direction, layer, inputs):
    """每个词元处的隐状态、细胞状态和门。"""
    w, h, c = weights(direction, layer), np.zeros(P, np.float32), np.zeros(H, np.float32)
    steps = []
    for vector in inputs:
        h, c, gates = step(w, vector, h, c)
        steps.append((h, c, gates))
    hidden, cells, gates = zip(*steps, strict=True)
    return np.stack(hidden), np.stack(cells), np.array(gates)  # (T, P)、(T, H)、(T, 4, H)


hidden, cells, gates = run("forward", 0, x[:-1])
print("对所有细胞取平均；|c|、|h| 是大小")
print("   i     f    |g|    o     |c|   |h|   词元")
for token, h, c, (i, f, g, o) in zip(["<S>", *tokens], hidden, cells, gates, strict=True):
    sizes = f"{np.abs(c).mean():6.2f} {np.linalg.norm(h):5.2f}"
    print(
        f"{i.mean():5.2f} {f.mean():5.2f} {np.abs(g).mean():5.2f} {o.mean():5.2f} {sizes}   {token}"
    )

# %% [markdown]
# 门其实是向量，每个细胞一个数，平均值看不出细胞之间的差别，而差别很大：

# %%
# 图：句中所有词元、所有细胞的输入门、遗忘门和输出门的直方图
figure, axes = plt.subplots(1, 3, figsize=(7.2, 2.3), sharey=True, layout="constrained")
for axis, number, name in zip(axes, (0, 1, 3), ("输入门 i", "遗忘门 f", "输出门 o"), strict=True):
    axis.hist(gates[:, number].ravel(), bins=30, range=(0, 1))
    axis.set(title=name, xticks=[0, 0.5, 1])
axes[0].set_ylabel("细胞 × 词元")
plt.show()

# %% [markdown]
# 在任何一个词上，大多数细胞几乎不写入（i 接近 0），也几乎不露出（o 接近 0）：每个词只和一小部分细胞有关。遗忘门则从 0 到 1 都有：f 接近 0 的细胞只存着刚读过的词，f 接近 1 的细胞保留原有的内容。
#
# ## 这真的是 ELMo 吗？
#
# `encode` 给出的第 1 层向量，前一半就是前向隐状态，不含句首标记。后向是同样的代码、另一组权重，从句尾读起。第二层读第一层的隐状态，再把它加到自己的输出上，这叫残差连接。

# %%
first_f, first_b = run("forward", 0, x[:-1])[0], run("backward", 0, x[:0:-1])[0]
second_f = run("forward", 1, first_f)[0] + first_f
second_b = run("backward", 1, first_b)[0] + first_b
by_hand = [
    np.concatenate([forward[1:], backward[:0:-1]], axis=1)  # 去掉 <S> 和 </S>：(T, 2P)
    for forward, backward in ((first_f, first_b), (second_f, second_b))
]
library = elmo.encode([tokens], layers="all")[0]  # (3, T, 2P)
for number, array in enumerate(by_hand, start=1):
    print(f"第 {number} 层：最大误差 {np.abs(array - library[number]).max():.1e}")
    assert np.allclose(array, library[number], atol=1e-4)

# %% [markdown]
# ELMo 的编码器就这么多，库里其余的代码都是为了快。
#
# ## 看一个细胞
#
# 细胞里存着什么？多数说不出名字，也有少数说得出。我们来找一个跟踪引号的细胞：引号是否还没合上，是语言模型长时间需要、而任何单个词都看不出来的信息。取几个句子，引号里的词记 1，看第 1 层哪个细胞的状态与它最相关。

# %%
quoted = [
    "他 说 ： “ 我 明天 回来 。 ” 然后 离开 了 房间 。",
    "这 首 歌 叫做 “ 春天 的 故事 ” ， 非常 流行 。",
    "人们 称 他 为 “ 音乐 之 父 ” 。",
    "牌子 上 写 着 “ 禁止 入内 ” 四个 大字 。",
    "“ 你 要 去 哪里 ？ ” 她 问 。",
    "老人 大声 喊 “ 救命 ” ， 却 没有 人 听见 。",
    "这种 现象 被 称为 “ 温室 效应 ” ， 由 科学家 在 十九 世纪 发现 。",
    "他 的 外号 是 “ 铁人 ” ， 因为 他 从不 休息 。",
]


def states(text):
    """第一层的细胞状态、门，以及从左引号起为 1 的标记。"""
    tokens = text.split()
    vectors = elmo.encode([["<S>", *tokens]], layers=0)[0][:, :P]
    _, cells, gates = run("forward", 0, vectors)
    inside = np.cumsum([(token == "“") - (token == "”") for token in tokens])
    return cells[1:], gates[1:], inside


found = [states(text) for text in quoted]
c = np.concatenate([cells for cells, _, _ in found])
inside = np.concatenate([marks for _, _, marks in found])
correlation = ((c - c.mean(axis=0)) * (inside - inside.mean())[:, None]).mean(axis=0)
correlation /= c.std(axis=0) * inside.std()
cell = int(np.abs(correlation).argmax())
print(f"{H} 个细胞中的 {cell} 号：相关系数 {correlation[cell]:.2f}")

# %% [markdown]
# 从这么多细胞里按八个句子挑最好的，就算全是噪声也能挑出*点什么*。所以要看一个没参与挑选的句子：

# %%
# 图：跟踪引号的细胞在每个词上的状态、输入门和遗忘门
text = "这 本书 叫做 “ 世界 的 历史 ” ， 卖出 了 一百万 册 ， 可是 没有 人 读 完 。"
cells, gates, inside = states(text)
at = np.arange(len(inside))
figure, axis = plt.subplots(figsize=(7.2, 3.4), layout="constrained")
axis.fill_between(at, -1, 1, where=inside == 1, step="mid", color="0.9", label="引号内")
axis.plot(at, cells[:, cell], "o-", color="black", label="细胞状态 c")
axis.plot(at, gates[:, 0, cell], ".--", label="输入门 i")
axis.plot(at, gates[:, 1, cell], ".--", label="遗忘门 f")
axis.set(xticks=at, title=f"第 1 层前向 {cell} 号细胞")
axis.set_xticklabels(text.split(), rotation=60)
figure.legend(loc="outside right upper")
plt.show()
print(f"在这个句子里的相关系数 {np.corrcoef(cells[:, cell], inside)[0, 1]:.2f}")

# %% [markdown]
# 几个门就是这样配合的。遇到左引号，输入门打开，写入一个值；之后输入门几乎关闭，遗忘门接近 1，这个值就穿过中间的词保留下来；遇到右引号，遗忘门把它丢掉，或者输入门把它改写。没有人编写过这条规则，它只是有助于预测下一个引号什么时候来。
#
# ## 截断
#
# 细胞状态的截断多久起一次作用？就用上面那些带引号的句子来数：

# %%
at_bound = np.abs(c) >= shape.cell_clip
print(f"{at_bound.size:,} 个细胞状态中有 {at_bound.sum()} 个到达界限 {shape.cell_clip}")

# %% [markdown]
# 很少。但只要发生一次，没有截断的程序从那里起算出的向量就不同了。如果要把已发布的模型装进自己写的 LSTM，首先检查截断和遗忘门里的那个 1。
#
# ## 小结
#
# - LSTM 的一步是四个门、一个细胞状态、一个隐状态：五行代码。
# - ELMo 另外加了投影、两处截断，从第二层起还有残差连接。
# - 两个方向是两组独立的网络，权重各不相同。
#
# ## 练习
#
# 1. 把 `step` 里遗忘门的 1 改成 0（`sigmoid(f)`），再跑一遍并比较。哪一层受影响更大？
# 2. 找出与“词在句中的位置”最相关的细胞，以及与“在书名号《》之内”最相关的细胞，并用新句子检验。
# 3. 不清零 h 和 c，让前向层把同一个句子连读两遍。第二遍读到第几个词，隐状态才和第一遍差不多？
