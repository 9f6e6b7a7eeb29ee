# %% [markdown]
# # 2. 语言模型：从左到右，从右到左
#
# ELMo 只训练一件事：给出前文，猜下一个词；再用另一个网络，给出后文，猜前一个词。词向量是副产品。本章先在一段玩具文本上用计数亲手做一遍，再拿同样的问题去问 `small-zh`。
#
# ## 前向：数一数
#
# 四个句子，首尾各加一个标记。二元（bigram）模型只往回看一个词：p(坐 | 猫) 等于“猫 坐”出现的次数除以“猫”出现的次数。

# %%
from collections import Counter
from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
from matplotlib import font_manager

import elmokit
from elmokit.lm import guesses

# 图中的汉字需要中文字体：挑一个本机已有的。
fonts = ["WenQuanYi Micro Hei", "Noto Sans CJK SC", "Microsoft YaHei", "PingFang SC"]
installed = {font.name for font in font_manager.fontManager.ttflist}
plt.rcParams["font.family"] = [name for name in fonts if name in installed] + ["DejaVu Sans"]

toy = [
    "小 猫 坐 在 垫子 上 。",
    "小 狗 坐 在 地毯 上 。",
    "小 猫 看见 小 狗 。",
    "大 狗 看见 小 猫 。",
]
sentences = [["<S>", *text.split(), "</S>"] for text in toy]
words = Counter(word for sentence in sentences for word in sentence)
pairs = Counter(pair for sentence in sentences for pair in pairwise(sentence))


def forward(word, left):
    return pairs[left, word] / words[left]


for word in ("猫", "狗", "垫子"):
    print(f"p({word} | 小) = {pairs['小', word]}/{words['小']} = {forward(word, '小'):.3f}")

# %% [markdown]
# 一个句子的概率，就是每个词（加上句末标记）的这种因子之积。这就是链式法则 p(w₁ … w_T) = Π p(w_k | w₁ … w_{k−1})，只不过这里对左边只看一个词。
#
# ## 后向：同样的计数
#
# 同一份计数也能回答另一个问题：p(猫 | … 坐) 等于“猫 坐”出现的次数除以“坐”出现的次数。


# %%
def backward(word, right):
    return pairs[word, right] / words[right]


text = "小 狗 坐 在 垫子 上 。"
sentence = ["<S>", *text.split(), "</S>"]
print("前向     后向   词")
for left, word, right in zip(sentence, sentence[1:], sentence[2:], strict=False):
    print(f"{forward(word, left):.3f}  {backward(word, right):7.3f}   {word}")

# %% [markdown]
# 对大多数词，两个方向的看法不同：“在”前面只能是“坐”，而“狗”后面的“坐”只是几种可能之一。可是两个方向的乘积却相等：

# %%
left_to_right = np.prod([forward(word, left) for left, word in pairwise(sentence)])
right_to_left = np.prod([backward(word, right) for word, right in pairwise(sentence)])
print(f"{left_to_right:.5f} {right_to_left:.5f}")
assert np.isclose(left_to_right, right_to_left)

# %% [markdown]
# 这不是巧合。两个乘积的分子是同一批词对的次数；分母一个是所有左邻词的次数，一个是所有右邻词的次数，除了首尾标记以外是同样的词，而两个标记出现得一样多。*句子*只有一个概率，*词*却可以从两边看。ELMo 要的正是词的这两种看法。
#
# ## 困惑度
#
# 句子越长，概率越小，所以取每个词的平均对数概率，再反过来：困惑度 = exp(−平均 log p)。它的含义是：相当于在多少个同样可能的词里猜一个。

# %%
factors = [forward(word, left) for left, word in pairwise(sentence)]
perplexity = np.exp(-np.mean(np.log(factors)))
print(f"困惑度 {perplexity:.2f}，可选的词有 {len(words) - 1} 个")
print(f"p(猫 | 大) = {forward('猫', '大')}")

# %% [markdown]
# 最后一行说明了光靠计数为什么不够：“大 猫”从没出现过，于是任何含有它的句子概率都是 0，困惑度是无穷大。零可以修补（每个计数加一），但更深的问题补不了：“猫”的计数对“狗”毫无帮助，而一个词的上下文也实在太短。神经语言模型让相似的词有相似的向量，并且读完左边（或右边）的全部内容。
#
# ## 拿同样的问题问 ELMo
#
# `elmo.score` 给出每个词在两个方向上的对数概率，由整个词表上的完整 softmax 算出。一个词的惊异度（surprisal）是 −log₂ p，单位是比特。

# %%
elmo = elmokit.load("small-zh")
score = elmo.score("火车昨天晚上到达上海。")
print("前向   后向（比特）")
for word, left, right in zip(score.tokens, score.forward, score.backward[1:], strict=False):
    print(f"{-left / np.log(2):4.1f}   {-right / np.log(2):4.1f}   {word}")

# %%
# 图：句中每个词的惊异度（比特），前向与后向
bits = -np.stack([score.forward[:-1], score.backward[1:]]) / np.log(2)
at = np.arange(len(score.tokens))
figure, axis = plt.subplots(figsize=(7, 3), layout="constrained")
axis.bar(at - 0.2, bits[0], width=0.4, label="前向：已知左边")
axis.bar(at + 0.2, bits[1], width=0.4, label="后向：已知右边")
axis.set(xticks=at, ylabel="比特")
axis.set_xticklabels(score.tokens)
figure.legend(loc="outside upper center", ncols=2)
plt.show()

# %% [markdown]
# 从两端看这张图：句子的第一个词没有左边，最后一个词没有右边，两个方向的起点都只能按词频去猜；而句号对从右边开始读的方向来说毫不费力。
#
# 模型的困惑度就是我们手算的那个式子，对两个方向一起取平均：

# %%
by_hand = np.exp(-np.mean(np.concatenate([score.forward, score.backward])))
print(f"{by_hand:.2f} {score.perplexity:.2f}")
assert np.isclose(by_hand, score.perplexity, rtol=1e-4)

order = np.random.default_rng(0).permutation(score.tokens).tolist()
shuffled = elmo.score([order])[0]
print(f"{shuffled.perplexity:.0f}：{' '.join(order)}")
assert shuffled.perplexity > 5 * score.perplexity

# %% [markdown]
# 词还是那些词，打乱顺序之后困惑度高得多：语言模型懂得词序，词袋模型不懂。
#
# ## 两边各知道什么
#
# 挖掉一个词，先分别问两个方向，再一起问。

# %%
tokens = elmo.tokenize("火车昨天晚上到达上海。")
gap = tokens.index("到达")
print("左边：", " ".join(tokens[:gap]), "……")
print("   ", "  ".join(guess.word for guess in guesses(elmo, tokens, gap, "forward", 8)))
print("右边：", "……", " ".join(tokens[gap + 1 :]))
print("   ", "  ".join(guess.word for guess in guesses(elmo, tokens, gap, "backward", 8)))
print("两边一起：")
print("   ", "  ".join(word.word for word in elmo.substitutes(tokens, gap, 8)))

# %% [markdown]
# “火车昨天晚上”后面几乎什么都可以接；“上海。”前面的选择就少一些。两个方向都看不到另一边：主语是火车，只有左边知道；后面是地名，只有右边知道。ELMo 把两种看法分开存放，各占向量的一半，由使用向量的下游任务去合并，第 6 章再谈。
#
# ## 小结
#
# - 语言模型根据左边（前向）或右边（后向）给每个词一个概率。
# - 困惑度是 exp(−平均 log p)，只有文本和词表都相同时才能比较。
# - 训练的目标是让两个方向的 −log p 之和最小。要猜得准，网络就得把上下文编码下来：这些编码就是 ELMo 的向量。
#
# ## 练习
#
# 1. 给每个词对的计数加一（分母相应加上词数）。句子在两个方向上的概率还相等吗？给出证明，或者找出不成立的情形。
# 2. 给“我看见了他。”和“他看见了我。”打分。两个方向上最意外的词分别是哪个？为什么？
# 3. 给玩具文本写一个三元（trigram）模型。训练文本上的困惑度降低了；再用同样的词造一个新句子打分，发生了什么？
