# %% [markdown]
# # 1. 静态词向量错在哪里
#
# word2vec、GloVe、fastText 给每个词一个向量。这在当年是很大的进步，但有一个缺陷，语料再多也补不上：一个词有两个意思，向量却只有一个。本章先造出这样的向量，看看“苹果”的两个意思会变成什么，再看 ELMo 怎么处理。
#
# 准备工作：Python，以及 `pip install 'elmokit[plots,zh]'`。模型 `small-zh` 就在安装包里。

# %%
import matplotlib.pyplot as plt
import numpy as np
from matplotlib import font_manager

import elmokit
from elmokit.word_vectors import average_words

# 图中的汉字需要中文字体：挑一个本机已有的。
fonts = ["WenQuanYi Micro Hei", "Noto Sans CJK SC", "Microsoft YaHei", "PingFang SC"]
installed = {font.name for font in font_manager.fontManager.ttflist}
plt.rcParams["font.family"] = [name for name in fonts if name in installed] + ["DejaVu Sans"]

elmo = elmokit.load("small-zh")
fruit = [
    "树上的苹果熟了。",
    "她把苹果洗干净，切成四块。",
    "果园里种着苹果和桃子。",
    "孩子们每人吃了一个苹果。",
    "这种苹果又甜又脆。",
    "他从篮子里拿出一个苹果。",
]
company = [
    "苹果发布了新一代手机。",
    "苹果的股票昨天大涨。",
    "他在苹果担任软件设计师。",
    "苹果和谷歌都推出了自己的浏览器。",
    "苹果起诉了那家电子公司。",
    "法院要求苹果支付赔偿。",
]
sentences = [elmo.tokenize(text) for text in fruit + company]
senses = ["水果"] * len(fruit) + ["公司"] * len(company)
print(sentences[1])

# %% [markdown]
# 中文没有空格，`small-zh` 用 jieba 分词，之后的一切都以词元为单位。
#
# ## 一个词，一个向量
#
# 静态词向量来自一个词的所有上下文，不分彼此。最简单的造法：先给这个词的每次出现一个与上下文有关的向量，再对所有出现取平均。`average_words` 对一份文本里的每个词都这样做，得到的就是一张和 GloVe 一样的表：输入词，查出向量。

# %%
table = average_words(elmo, sentences, layers="top", min_count=1)
print(len(table.words), "个词，向量宽度", table.dim)


def cosine(a, b):
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def static(tokens, word):
    """表中的向量：和句子无关。"""
    return table.lookup(tokens)[tokens.index(word)]


eaten, sued = sentences[3], sentences[10]
print("吃的苹果与打官司的苹果：")
print(f"余弦 {cosine(static(eaten, '苹果'), static(sued, '苹果')):.3f}")

# %% [markdown]
# 余弦恰好是 1。只看这些向量的程序，分不清吃的苹果和告人的苹果。
#
# 更糟的是，这唯一的向量哪个意思都不是。下面比较三个向量：水果义的平均、公司义的平均，以及表中的向量（全部出现的平均）。


# %%
def in_context(tokens, word, layers="top"):
    """ELMo 给句中某个词的向量。"""
    return elmo.encode([tokens], layers=layers)[0][tokens.index(word)]


uses = np.stack([in_context(tokens, "苹果") for tokens in sentences])  # (12, 2P)
by_fruit, by_company = uses[:6].mean(axis=0), uses[6:].mean(axis=0)
one = static(eaten, "苹果")
print(f"水果义与公司义  {cosine(by_fruit, by_company):.3f}")
print(f"表与水果义      {cosine(one, by_fruit):.3f}")
print(f"表与公司义      {cosine(one, by_company):.3f}")
assert cosine(by_fruit, by_company) < min(cosine(one, by_fruit), cosine(one, by_company))

# %% [markdown]
# 表中的向量夹在中间：它离两个意思都比两个意思彼此之间更近。语料越多，它就越靠近更常见的那个意思，但永远不会变成两个。
#
# ## 一次出现，一个向量
#
# ELMo 不查表，而是读完整个句子，再给*这里*的“苹果”一个向量。把每次出现两两比较：左图用静态向量，右图用 ELMo 的顶层。第 1–6 行是水果，第 7–12 行是公司。

# %%
# 图：“苹果”十二次出现两两之间的余弦，左为静态向量，右为 ELMo
fixed = np.stack([static(tokens, "苹果") for tokens in sentences])
figure, axes = plt.subplots(1, 2, figsize=(7.2, 3.2), layout="constrained")
for axis, vectors, name in zip(axes, (fixed, uses), ("静态向量", "ELMo 顶层"), strict=True):
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    image = axis.imshow(unit @ unit.T, vmin=0.2, vmax=1, cmap="viridis")
    ticks = range(0, 12, 2)
    axis.set(title=name, xticks=ticks, yticks=ticks)
    axis.set_xticklabels([i + 1 for i in ticks])
    axis.set_yticklabels([i + 1 for i in ticks])
figure.colorbar(image, ax=axes, label="余弦")
plt.show()

# %% [markdown]
# 右图有两个亮块：水果像水果，公司像公司。换成数字：

# %%
unit = uses / np.linalg.norm(uses, axis=1, keepdims=True)
cosines = unit @ unit.T
same = np.equal.outer(senses, senses)
others = ~np.eye(len(senses), dtype=bool)
print(f"同义之间的平均余弦  {cosines[same & others].mean():.3f}")
print(f"异义之间的平均余弦  {cosines[~same].mean():.3f}")
assert cosines[same & others].mean() > cosines[~same].mean()

nearest = np.where(others, cosines, -1).argmax(axis=1)
right = sum(senses[i] == senses[j] for i, j in enumerate(nearest))
print(f"{len(senses)} 次出现中，{right} 次的最近邻与自己同义")

# %% [markdown]
# ## 画成地图
#
# 几百维的向量要画在纸上，只能留两维。`elmo.map` 取前两个主成分，也就是各次出现差异最大的两个方向。颜色是我们标的词义，模型从没见过。叉号是静态向量在同一平面上的位置。

# %%
# 图：“苹果”的十二次出现在平面上的位置，按词义着色，静态向量在中间
picture = elmo.map(sentences, "苹果", labels=senses)
centred = uses - uses.mean(axis=0)
plane = np.linalg.lstsq(centred, picture.points, rcond=None)[0]  # (2P, 2)：两个主方向
figure, axis = plt.subplots(figsize=(6, 4.2), layout="constrained")
for sense in ("水果", "公司"):
    x, y = picture.points[np.array(senses) == sense].T
    axis.scatter(x, y, label=sense)
for number, point in enumerate(picture.points):
    axis.annotate(number + 1, point, xytext=(5, 3), textcoords="offset points")
axis.scatter(*((one - uses.mean(axis=0)) @ plane), marker="x", s=90, color="black", label="静态")
axis.set(xticks=[], yticks=[], title="“苹果”的十二次出现")
axis.legend()
plt.show()

# %% [markdown]
# 在 notebook 里，单独一行写 `picture` 就会画出带例句的图。
#
# ## 难在哪里
#
# `small-zh` 是个小模型，训练语料又主要是百科。语料里少见的意思，可供学习的用例也少。“小米”便是一例：粮食与公司。

# %%
grain = [
    "农民种植小米和玉米。",
    "她用小米煮了一锅粥。",
    "小米是北方的主要粮食。",
    "山坡地适合种小米。",
]
phone = [
    "小米发布了新的手机。",
    "小米的股价上涨了。",
    "他在小米担任工程师。",
    "小米和华为都生产手机。",
]
vectors = [in_context(elmo.tokenize(text), "小米") for text in grain + phone]
kinds = ["粮食"] * 4 + ["公司"] * 4
right = 0
for i, vector in enumerate(vectors):
    rest = [j for j in range(8) if j != i]
    best = max(rest, key=lambda j: cosine(vector, vectors[j]))
    right += kinds[best] == kinds[i]
print(f"“小米”的 8 次出现中，{right} 次的最近邻与自己同义")

# %% [markdown]
# 瞎猜大约能对三四次。别轻信地图：教程作者挑的十二个句子说明不了多少问题。真实测试集上的结果见[内置模型](../embedded-models.md)。
#
# ## 小结
#
# - 静态词向量是一个词所有出现的平均，两个意思被压成中间的一个点。
# - ELMo 根据整个句子，给每次出现算一个向量。
# - 它怎么读句子，是接下来五章的内容。
#
# ## 练习
#
# 1. 把 `in_context` 中的 `layers="top"` 换成 `layers=0` 和 `layers=1`，两个平均余弦有什么变化？第 0 层的结果为什么必然如此？
# 2. 给“杜鹃”（鸟、花）或“病毒”（医学、电脑）写十个句子并画图。先用 `elmo.tokenize` 确认这个词没有和别的字粘在一起。
# 3. 调用 `average_words` 之前，再加 30 句关于苹果公司的新闻。静态向量在图上移到了哪里？
