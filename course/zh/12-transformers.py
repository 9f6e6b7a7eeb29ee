# %% [markdown]
# # 12. ELMo 与 BERT、GPT
#
# 2018 年，ELMo 二月问世，GPT 六月，BERT 十月。三者都是先读大量生文本，再学具体任务；后两者是 Transformer，在大多数评测上也更准（最早的对比表见 [BERT 论文](https://aclanthology.org/N19-1423/)）。那么今天为什么还要用 biLSTM？本章测量在一台笔记本电脑上能测的东西：开销、长度、词和字。最后给出一张选型表，并把两者合用。
#
# 准备工作：`pip install 'elmokit[hf,plots,zh]'`。不需要下载任何模型：这里的 Transformer 只按配置搭建，权重是随机的，用来看形状和大小足够，别的什么也说明不了。

# %%
import time
from pathlib import Path
from urllib.request import urlretrieve

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib import font_manager
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model

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


elmo = elmokit.load("small-zh")
text = data("tests/data/heldout_zh.txt").read_text("utf-8")
tokens = elmo.tokenize("".join(text.split()))
print(f"{len(tokens):,} 个词元，取自 small-zh 训练时没有见过的维基百科条目")

# %% [markdown]
# ## 三种读句子的方式
#
# | | ELMo | GPT | BERT |
# |---|---|---|---|
# | 网络 | 两个 LSTM，每个方向一个 | Transformer | Transformer |
# | 一个词看得到 | 前面的一切（前向）、后面的一切（后向），在两个独立的网络里 | 前面的一切 | 每一层都看得到全部 |
# | 训练目标 | 预测下一个词和上一个词 | 预测下一个子词 | 填回被遮住的子词 |
# | 单位 | 词，按字符读入 | 子词（中文多为单字） | 子词（中文多为单字） |
# | 通常用法 | 冻结，向量交给任务模型 | 生成，微调 | 微调 |
#
# 参数量按 `transformers` 的默认配置计算，即 BERT base 和最小的 GPT-2。在 `meta` 设备上，模型只有形状，不占内存：

# %%
with torch.device("meta"):
    sizes = {
        "BERT base": sum(p.numel() for p in BertModel(BertConfig()).parameters()),
        "GPT-2 small": sum(p.numel() for p in GPT2Model(GPT2Config()).parameters()),
    }
softmax = sum(p.numel() for p in elmo.bilm.softmax.parameters())
everything = sum(p.numel() for p in elmo.bilm.parameters())
sizes["small-zh，只算向量"] = everything - softmax
sizes["small-zh，含 softmax"] = everything
for name, count in sizes.items():
    print(f"{count / 1e6:6.1f} 百万个参数  {name}")

# %% [markdown]
# ## 开销与长度
#
# LSTM 对每个词做同样多的计算：长度加倍，时间加倍，而它一路带着的状态大小固定。自注意力则让每个位置去看所有位置：每层、每个头一个 n × n 的权重矩阵。下面是此刻在这台机器上测得的 ELMo 所用 CPU 时间（与最短文本的比值），旁边是 BERT base 那么大的 Transformer 要算的注意力权重的个数：

# %%
LENGTHS = (50, 100, 200, 400, 800)


def seconds(length):
    best = np.inf
    for _ in range(3):
        start = time.process_time()
        elmo.encode([tokens[:length]])
        best = min(best, time.process_time() - start)
    return best


seconds(LENGTHS[-1])  # 读过的词在缓存里：先热身
measured = np.array([seconds(length) for length in LENGTHS])
base = BertConfig()
weights = [base.num_hidden_layers * base.num_attention_heads * n * n for n in LENGTHS]
for n, ratio, count in zip(LENGTHS, measured / measured[0], weights, strict=True):
    per_token = ratio / n * LENGTHS[0]
    print(
        f"{n:4} 个词元：ELMo 用时 {ratio:4.1f} 倍，平均每个词元 {per_token:.2f} 倍；注意力权重 {count:,} 个"
    )

# %%
# ELMo 的 CPU 时间和注意力权重的个数，相对于 50 个词元，双对数坐标
figure, axis = plt.subplots(figsize=(5.6, 3.4), layout="constrained")
axis.plot(LENGTHS, measured / measured[0], marker="o", label="ELMo：CPU 时间")
axis.plot(LENGTHS, np.array(weights) / weights[0], marker="s", label="注意力：权重个数")
axis.plot(LENGTHS, np.array(LENGTHS) / LENGTHS[0], color="grey", linestyle=":", label="线性")
axis.set(xscale="log", yscale="log", xlabel="词元数", ylabel="相对于 50 个词元")
axis.set_xticks(LENGTHS, LENGTHS)
axis.set_yticks([1, 10, 100], ["1", "10", "100"])
axis.minorticks_off()
axis.legend()
plt.show()

# %% [markdown]
# 不要过度解读。三十个词的句子，n × n 的矩阵微不足道；而且 Transformer *同时*计算所有位置，LSTM 只能一步接一步。在 GPU 上处理短文本，这一点起决定作用：同样大小的 Transformer 更快。长文档、CPU、词一个一个到来的场合，LSTM 的结构更合适。
#
# 还有一道硬边界。BERT 给每个位置一个向量，搭建时有多少个位置，就只能读多长：

# %%
torch.manual_seed(0)
config = BertConfig(
    vocab_size=5000,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    attn_implementation="eager",
)
bert = BertModel(config, add_pooling_layer=False).eval()
with torch.no_grad():
    found = bert(torch.zeros(1, 300, dtype=torch.long), output_attentions=True)
print("一层的注意力：", tuple(found.attentions[0].shape), "（文本、头、n、n）")
try:
    bert(torch.zeros(1, 600, dtype=torch.long))
except (IndexError, RuntimeError) as error:
    print(f"输入 600 个位置，模型只有 {config.max_position_embeddings} 个：{type(error).__name__}")
long = elmo.encode([tokens[:600]])[0]
print("ELMo 读 600 个词元：", long.shape)
assert long.shape == (600, elmo.dim)

# %% [markdown]
# （后来的模型延长或替换了位置向量，但平方大小的矩阵在其中多数模型里仍然存在。）
#
# ## 词与字
#
# 中文 BERT 的单位大多是单个汉字。这有三个后果。
#
# 1. **一个词有好几个向量。** 标注或比较词的时候，得有人决定：用第一个字的，最后一个字的，还是平均。ELMo 每个词一个向量。
# 2. **词的概率是若干个字的概率之积**，而词到哪里*结束*，要等下一个字才知道。阅读研究需要每个词的惊异度（见[惊异度](../surprisal.md)）；softmax 以词为单位时，它就是一个数：

# %%
sentence = elmo.tokenize("这艘古老的轮船沿着长江缓缓航行。")
for row in elmo.surprisal([sentence])[: len(sentence)]:
    print(f"{row['forward']:5.1f} 比特  {row['word']}（{len(row['word'])} 个字）")

# %% [markdown]
# 3. **没见过的词。** 按字切分的模型不怕新词，代价是序列更长、词的边界要自己学；只有词向量表的模型遇到新词则一无所知。ELMo 折中：以词为单位，但词是按字符读进来的，新词也有合理的向量。下面是十六个临时拼出来的词，绝大多数不在词表里。看看它们第 0 层的向量（没有上下文）离哪个已知的词最近：

# %%
PAIRS = [
    "图书馆员 图书馆",
    "高速公路网 高速公路",
    "火车站台 火车站",
    "小学校长 校长",
    "物理学者 物理学",
    "足球迷们 足球",
    "电影学院派 电影",
    "地铁线网 地铁",
    "博物馆学 博物馆",
    "奥运会场 奥运会",
    "钢琴家们 钢琴",
    "法国菜馆 法国",
    "发电厂区 发电厂",
    "数学家族 数学家",
    "飞机场地 飞机场",
    "大学校园网 大学",
]
new, old = zip(*(pair.split() for pair in PAIRS), strict=True)


def unit(words):
    vectors = np.concatenate(elmo.encode([[word] for word in words], layers=0))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


cosines = unit(new) @ unit(old).T
nearest = cosines.argmax(axis=1)
vocabulary = set(elmo.vocabulary.words)
unknown = sum(word not in vocabulary for word in new)
right = (nearest == np.arange(len(new))).sum()
print(f"{len(new)} 个词中 {unknown} 个不在词表里；{right} 个离预期的词最近")
for i in (0, 3, 11):
    print(f"  {new[i]} → {old[nearest[i]]}（余弦 {cosines[i, nearest[i]]:.2f}）")
assert right > len(new) / 2

# %% [markdown]
# 第 0 层看的是字形，字面相近的词也会混进来，比如同以“馆”结尾的词。ELMo 的输入端没有未登录词；输出端有：softmax 只能预测词表里的词。
#
# ## ELMo 落后在哪里
#
# - **左右两侧在模型内部从不相遇。** BERT 的每一层都同时看两侧；ELMo 的两半要到任务的第一层才合起来（第 7 章）。对于需要比较文中相距很远的两处的任务，如文本蕴含、阅读理解，这会损失准确率。
# - **规模。** 在大型机器上 Transformer 训练每个词元更快，所以读过的文本多得多。大模型带给你的，主要就是这个。
# - **微调。** 整体微调 Transformer 是常规做法；ELMo 通常冻结，上面再接任务模型：训练便宜，上限也低。
# - **生成。** ELMo 的前向一半只是一个小语言模型，不要拿它当 GPT。
#
# ## 合用
#
# 向量可以拼接。Transformer 给的是字的向量，把一个词的各个字取平均，就得到每词一个向量，[BERT; ELMo] 只要一行。（这里的权重是随机的，只有形状有意义。）

# %%
characters = sorted({letter for word in tokens + sentence for letter in word})
ids = [characters.index(letter) for word in sentence for letter in word]
owner = np.array([i for i, word in enumerate(sentence) for _ in word])
with torch.no_grad():
    of_characters = bert(torch.tensor([ids])).last_hidden_state[0].numpy()  # (字数, 64)
of_words = np.stack([of_characters[owner == i].mean(axis=0) for i in range(len(sentence))])
both = np.concatenate([of_words, elmo.encode([sentence])[0]], axis=1)
print(f"{len(sentence)} 个词，{len(ids)} 个字；BERT {of_words.shape}，拼接后 {both.shape}")
assert both.shape == (len(sentence), config.hidden_size + elmo.dim)

# %% [markdown]
# elmokit 可以代劳：`transformers` 能加载的编码器都可以和 ELMo 一起作为任务的输入，各有各的标量混合，`--compare` 会告诉你提高了多少（见 [Hugging Face](../huggingface.md)）：
#
# ```console
# $ elmokit train tag --train train.conll --dev dev.conll -o both --model small-zh --model bert-folder
# ```
#
# ## 怎么选
#
# | 你的情况 | 先试 |
# |---|---|
# | 有 GPU，要最高的准确率 | 微调 Transformer |
# | 生成文本 | GPT 一类的模型 |
# | CPU、浏览器、小设备、内存少 | ELMo（`small-zh` 就在安装包里）；上下文不重要时用静态词向量 |
# | 在 CPU 上处理长文档，或者词一个一个到来 | ELMo：线性，没有最大长度 |
# | 新词、错字、OCR 文本多 | ELMo，或以字符为单位的 Transformer |
# | 没有好的 Transformer 的语言或领域，有几十 MB 文本 | 预训练 ELMo 或做领域自适应（第 11 章） |
# | 词的惊异度、阅读实验 | ELMo：一个词一个概率 |
# | 想逐层观察词的向量 | ELMo：三层，每词一个向量 |
# | 想要最后一点 F1 | 两者拼接，像第 9 章那样测量 |
#
# 无论选哪个，都要加上一个几乎不花钱的基线：静态词向量，或者词袋。
#
# ## 小结
#
# - Transformer 赢在准确率和规模；ELMo 小，开销与长度成正比，以词为单位。
# - 按你的限制来选，在你的数据上测量。上面的表只是起点，不是结论。
#
# ## 练习
#
# 1. 分别测量一次编码 20 段各 40 个词元的文本，和一段 800 个词元的文本。哪个平均每个词元更快？批次为什么对 LSTM 有帮助？
# 2. 再拼十个新词，分别以已知词开头和以已知词结尾。第 0 层更看重词的开头还是结尾？
# 3. 如果你的机器上有 BERT 的文件夹，用 `elmo=elmo`、`elmo="bert-folder"`、`elmo=[elmo, "bert-folder"]` 各跑三个种子，重做第 9 章。合用提高了多少？
