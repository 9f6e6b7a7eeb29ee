"""Make the suites of minimal pairs of `elmokit probe pairs` from templates.

Run: python tools/make_pairs.py

Writes src/elmokit/probes/pairs-en.jsonl.gz and pairs-zh.jsonl.gz, the same at every run. Counts of
words alone decide nothing: in every phenomenon the right and the wrong sentences together hold the
same words equally often. Either both sentences of a pair have the same words in another order, or
a pair comes with its mirror image, in which the word that is wrong here is the right one. Pairs
with a word outside the most frequent ones of the embedded models are drawn again.
"""

from __future__ import annotations

import gzip
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence, Set
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "src" / "elmokit" / "probes"
MODELS = {"en": "small-en", "zh": "small-zh"}
PAIRS = 100
"""Pairs of each phenomenon."""
FREQUENT = {"en": 25_000, "zh": 38_000}
"""How far down the vocabulary a word may be; a jieba word of Chinese is rarer than its parts."""
TRIES = 20_000
BY_CHARACTER = ("reduplication with 了",)
"""Phenomena in which the characters are equally frequent, not the words: jieba joins 看看."""

Group = list[tuple[str, str]]
"""Pairs, right and wrong, that are kept together."""
Draw = random.Random
Template = Callable[[Draw], Group]
PHENOMENA: dict[str, dict[str, Template]] = {"en": {}, "zh": {}}


def phenomenon(language: str, name: str = "") -> Callable[[Template], Template]:
    """Add a template, under the name of its function where no other is given."""

    def add(template: Template) -> Template:
        own = template.__name__.removeprefix(f"{language}_").replace("_", " ")
        PHENOMENA[language][name or own] = template
        return template

    return add


def mirror(first: str, second: str, x: str, y: str) -> Group:
    """Two frames with a gap ``{}``: x is right in the first and y in the second."""
    return [(first.format(x), first.format(y)), (second.format(y), second.format(x))]


def some(words: str) -> list[str]:
    return words.split()


def rows(text: str) -> list[list[str]]:
    """Lines of words; ``_`` is a space inside of one."""
    return [[word.replace("_", " ") for word in line.split()] for line in text.strip().split("\n")]


# English

PEOPLE = some(
    "boy girl king queen teacher student doctor soldier farmer writer artist officer worker singer "
    "actor priest lawyer prince servant prisoner player driver captain stranger visitor"
)
THINGS = some("book house ship letter picture stone box car tree door bridge garden window table")
ADJECTIVES = some("old young tall small poor rich great strong famous new little")
THING_ADJECTIVES = some("old new small large heavy beautiful red white black strange")
PLACES = [
    *("in the garden", "in the house", "near the river", "in the town", "at the station"),
    *("in the street", "on the island", "near the church", "at the school", "in the village"),
]
WALK = rows("""
walk walks
work works
live lives
sing sings
dance dances
sleep sleeps
sit sits
stand stands
play plays
wait waits
rest rests
""")
LIKE = some("like know love hate see help follow fear visit remember")
MEN = some("king man father son brother uncle husband prince boy grandfather")
WOMEN = some("queen woman mother daughter sister aunt wife princess girl grandmother")
TO_ONESELF = some("hurt saw blamed killed found introduced saved defended asked described")
VERBS = rows("""
write wrote written writing the_letter
take took taken taking the_money
speak spoke spoken speaking the_truth
give gave given giving the_answer
choose chose chosen choosing the_name
break broke broken breaking the_window
eat ate eaten eating the_bread
draw drew drawn drawing the_map
steal stole stolen stealing the_horse
throw threw thrown throwing the_stone
sing sang sung singing the_song
wear wore worn wearing the_crown
forget forgot forgotten forgetting the_name
begin began begun beginning the_work
drive drove driven driving the_car
""")
SAW = some("saw found bought lost sold liked painted described")
MADE = some("found bought liked described mentioned discovered received built made destroyed")


def plural(noun: str) -> str:
    return noun + ("es" if noun.endswith(("x", "s", "ch")) else "s")


def two(draw: Draw, words: Sequence[str]) -> list[str]:
    return draw.sample(list(words), 2)


@phenomenon("en")
def en_agreement(draw: Draw) -> Group:
    noun, place = draw.choice(PEOPLE), draw.choice(PLACES)
    base, third = draw.choice(WALK)
    adjective = draw.choice(ADJECTIVES)
    one, many = f"The {adjective} {noun} {{}} {place} .", f"The {adjective} {plural(noun)} {{}} "
    return mirror(one, f"{many}{place} .", third, base)


@phenomenon("en")
def en_agreement_across_a_preposition(draw: Draw) -> Group:
    noun, other = two(draw, PEOPLE)
    link, place = draw.choice(some("near behind with beside")), draw.choice(PLACES)
    base, third = draw.choice(WALK)
    one = f"The {noun} {link} the {plural(other)} {{}} {place} ."
    return mirror(one, f"The {plural(noun)} {link} the {other} {{}} {place} .", third, base)


@phenomenon("en")
def en_agreement_across_an_object_relative(draw: Draw) -> Group:
    noun, other = two(draw, PEOPLE)
    like, end = draw.choice(LIKE), draw.choice(ADJECTIVES)
    one = f"The {noun} that the {plural(other)} {like} {{}} {end} ."
    return mirror(one, f"The {plural(noun)} that the {other} {like}s {{}} {end} .", "is", "are")


@phenomenon("en")
def en_agreement_across_a_subject_relative(draw: Draw) -> Group:
    noun, other = two(draw, PEOPLE)
    like, place = draw.choice(LIKE), draw.choice(PLACES)
    base, third = draw.choice(WALK)
    one = f"The {noun} who {like}s the {plural(other)} {{}} {place} ."
    return mirror(one, f"The {plural(noun)} who {like} the {other} {{}} {place} .", third, base)


@phenomenon("en")
def en_agreement_of_two_verbs(draw: Draw) -> Group:
    noun, place = draw.choice(PEOPLE), draw.choice(PLACES)
    (base, third), (base2, third2) = draw.sample(WALK, 2)
    one, many = f"The {noun} {third} {place} and {{}} .", f"The {plural(noun)} {base} {place} and "
    return mirror(one, f"{many}{{}} .", third2, base2)


@phenomenon("en")
def en_there_is(draw: Draw) -> Group:
    noun, place = draw.choice(PEOPLE + THINGS), draw.choice(PLACES)
    number = draw.choice(some("two three four five six many several some"))
    many = f"There {{}} {number} {plural(noun)} {place} ."
    return mirror(f"There {{}} one {noun} {place} .", many, "is", "are")


@phenomenon("en")
def en_determiner_and_noun(draw: Draw) -> Group:
    noun, person, saw = draw.choice(THINGS), draw.choice(PEOPLE), draw.choice(SAW)
    one, many = draw.choice([("this", "these"), ("that", "those")])
    start = f"The {person} {saw}"
    return mirror(f"{start} {{}} {noun} .", f"{start} {{}} {plural(noun)} .", one, many)


@phenomenon("en")
def en_determiner_adjective_and_noun(draw: Draw) -> Group:
    noun, person, saw = draw.choice(THINGS), draw.choice(PEOPLE), draw.choice(SAW)
    one, many = draw.choice([("this", "these"), ("that", "those")])
    start, end = f"The {person} {saw}", draw.choice(THING_ADJECTIVES)
    return mirror(f"{start} {{}} {end} {noun} .", f"{start} {{}} {end} {plural(noun)} .", one, many)


@phenomenon("en")
def en_number_and_noun(draw: Draw) -> Group:
    noun, person, saw = draw.choice(THINGS), draw.choice(PEOPLE), draw.choice(SAW)
    one, many = draw.choice(some("one each every")), draw.choice(some("two three four five many"))
    start = f"The {person} {saw}"
    return mirror(f"{start} {one} {{}} .", f"{start} {many} {{}} .", noun, plural(noun))


@phenomenon("en")
def en_much_and_many(draw: Draw) -> Group:
    stuff = draw.choice(some("water money food time blood work snow rain wine gold"))
    start = draw.choice(
        ["There was not", "They did not have", "We did not see", "He never had", "She had"]
    )
    noun = plural(draw.choice(THINGS))
    return mirror(f"{start} {{}} {stuff} .", f"{start} {{}} {noun} .", "much", "many")


@phenomenon("en")
def en_a_and_an(draw: Draw) -> Group:
    vowel = draw.choice(some("apple egg island artist officer actor animal engine office army old"))
    end = " friend" if vowel == "old" else ""
    start = f"The {draw.choice(PEOPLE)} {draw.choice(SAW)}"
    return mirror(
        f"{start} {{}} {vowel}{end} .", f"{start} {{}} {draw.choice(THINGS)} .", "an", "a"
    )


@phenomenon("en")
def en_reflexive_gender(draw: Draw) -> Group:
    man, woman, verb = draw.choice(MEN), draw.choice(WOMEN), draw.choice(TO_ONESELF)
    end = draw.choice(PLACES)
    one, other = f"The {man} {verb} {{}} {end} .", f"The {woman} {verb} {{}} {end} ."
    return mirror(one, other, "himself", "herself")


@phenomenon("en")
def en_reflexive_number(draw: Draw) -> Group:
    man, verb, end = draw.choice(MEN), draw.choice(TO_ONESELF), draw.choice(PLACES)
    many = "men" if man == "man" else plural(man)
    one, other = f"The {man} {verb} {{}} {end} .", f"The {many} {verb} {{}} {end} ."
    return mirror(one, other, "himself", "themselves")


@phenomenon("en")
def en_reflexive_binding(draw: Draw) -> Group:
    man, woman, verb = draw.choice(MEN), draw.choice(WOMEN), draw.choice(TO_ONESELF)
    said = draw.choice(some("said thought believed knew"))
    one = f"The {woman} {said} that the {man} {verb} {{}} ."
    return mirror(one, f"The {man} {said} that the {woman} {verb} {{}} .", "himself", "herself")


@phenomenon("en")
def en_pronoun_case(draw: Draw) -> Group:
    start = f"The {draw.choice(PEOPLE)} {draw.choice(some('said thought believed knew'))} that"
    verb, end = (
        draw.choice(some("saw found liked followed helped asked loved")),
        draw.choice(PLACES),
    )
    (he, him), (she, her) = draw.sample([("he", "him"), ("she", "her"), ("they", "them")], 2)
    return [
        (f"{start} {he} {verb} {her} {end} .", f"{start} {him} {verb} {she} {end} ."),
        (f"{start} {she} {verb} {him} {end} .", f"{start} {her} {verb} {he} {end} ."),
    ]


@phenomenon("en")
def en_possessive(draw: Draw) -> Group:
    her, hers = draw.choice([("her", "hers"), ("their", "theirs"), ("my", "mine"), ("our", "ours")])
    noun, saw = draw.choice(THINGS), draw.choice(SAW)
    person = draw.choice(PEOPLE)
    alone = f"The {person} said that the {noun} was {{}} ."
    return mirror(f"The {person} {saw} {{}} {noun} .", alone, her, hers)


@phenomenon("en")
def en_perfect_and_past(draw: Draw) -> Group:
    _, past, participle, _, thing = draw.choice(VERBS)
    person = draw.choice(PEOPLE)
    one = f"The {person} {draw.choice(some('has had'))} {{}} {thing} ."
    return mirror(one, f"The {person} {{}} {thing} .", participle, past)


@phenomenon("en")
def en_passive_and_past(draw: Draw) -> Group:
    _, past, participle, _, thing = draw.choice(VERBS)
    person = draw.choice(PEOPLE)
    one = f"{thing.capitalize()} was {{}} by the {person} ."
    return mirror(one, f"The {person} {{}} {thing} .", participle, past)


@phenomenon("en")
def en_progressive_and_perfect(draw: Draw) -> Group:
    _, _, participle, going, thing = draw.choice(VERBS)
    person = draw.choice(PEOPLE)
    one, other = f"The {person} was {{}} {thing} .", f"The {person} had {{}} {thing} ."
    return mirror(one, other, going, participle)


@phenomenon("en")
def en_modal_and_verb(draw: Draw) -> Group:
    base, past, _, _, thing = draw.choice(VERBS)
    person, modal = draw.choice(PEOPLE), draw.choice(some("will can must should would could"))
    one, end = f"The {person} {modal} {{}} {thing} .", draw.choice(["yesterday", "last year"])
    return mirror(one, f"The {person} {{}} {thing} {end} .", base, past)


@phenomenon("en")
def en_negation_and_verb(draw: Draw) -> Group:
    base, _, participle, _, thing = draw.choice(VERBS)
    person = draw.choice(PEOPLE)
    one, other = f"The {person} did not {{}} {thing} .", f"The {person} had not {{}} {thing} ."
    return mirror(one, other, base, participle)


@phenomenon("en")
def en_time_and_tense(draw: Draw) -> Group:
    base, past, _, _, thing = draw.choice(VERBS)
    person = draw.choice(PEOPLE)
    before, after = draw.choice([("Yesterday", "Tomorrow"), ("Last week", "Next week")])
    will = f"{{}} the {person} will {base} {thing} ."
    return mirror(f"{{}} the {person} {past} {thing} .", will, before, after)


@phenomenon("en")
def en_complement_of_the_verb(draw: Draw) -> Group:
    base, _, _, going, thing = draw.choice(VERBS)
    person, wants = draw.choice(PEOPLE), draw.choice(some("wanted decided hoped promised refused"))
    one = f"The {person} {wants} {{}} {thing} ."
    enjoys = draw.choice(some("enjoyed avoided finished suggested"))
    return mirror(one, f"The {person} {enjoys} {{}} {thing} .", f"to {base}", going)


@phenomenon("en")
def en_transitive_and_intransitive(draw: Draw) -> Group:
    person, thing = draw.choice(PEOPLE), draw.choice(some("city town village island castle church"))
    came = draw.choice(some("arrived slept laughed disappeared died smiled"))
    saw = draw.choice(some("reached described mentioned destroyed owned captured"))
    place = draw.choice(["yesterday", "last year", "in the morning", "at once"])
    return mirror(f"The {person} {{}} the {thing} .", f"The {person} {{}} {place} .", saw, came)


@phenomenon("en")
def en_who_and_which(draw: Draw) -> Group:
    person, thing, end = draw.choice(PEOPLE), draw.choice(THINGS), draw.choice(ADJECTIVES)
    place = draw.choice(PLACES)
    start = draw.choice(["We saw the", "I know the", "She found the", "They liked the"])
    one = f"{start} {person} {{}} was {place} ."
    return mirror(one, f"{start} {end} {thing} {{}} was {place} .", "who", "which")


@phenomenon("en")
def en_what_and_that(draw: Draw) -> Group:
    person, thing, saw = draw.choice(PEOPLE), draw.choice(THINGS), draw.choice(MADE)
    start = draw.choice(["I know", "They knew", "We heard", "He forgot", "You know"])
    one = f"{start} {{}} the {person} {saw} ."
    return mirror(one, f"{start} {{}} the {person} {saw} the {thing} .", "what", "that")


@phenomenon("en")
def en_question_order(draw: Draw) -> Group:
    person, where = draw.choice(PEOPLE), draw.choice(some("where why when how"))
    end, start = draw.choice(["going", "working", "living", "waiting"]), draw.choice(
        ["I wonder", "They asked me", "We know", "Nobody knows", "Tell me"]
    )  # fmt: skip
    who = f"the {person}"
    return [
        (f"{where.capitalize()} was {who} {end} ?", f"{where.capitalize()} {who} was {end} ?"),
        (f"{start} {where} {who} was {end} .", f"{start} {where} was {who} {end} ."),
    ]


@phenomenon("en")
def en_ever_needs_no(draw: Draw) -> Group:
    noun, other = two(draw, PEOPLE)
    said = draw.choice(["I think", "They say", "We know", "He believed", "She said"])
    saw, been = draw.choice(LIKE), draw.choice(["been happy", "seen the sea", "been there"])
    return [
        (
            f"{said} that no {noun} that the {plural(other)} {saw} has ever {been} .",
            f"{said} that the {noun} that no {plural(other)} {saw} has ever {been} .",
        )
    ]


@phenomenon("en")
def en_any_needs_not(draw: Draw) -> Group:
    person, thing = draw.choice(PEOPLE), draw.choice(THINGS)
    first, second = two(draw, some("sing dance walk swim read write speak"))
    modal = draw.choice(some("could would should"))
    saw = draw.choice(some("see find buy sell open"))
    first = f"{first} or {second}"
    return [
        (
            f"The {plural(person)} who {modal} {first} {modal} not {saw} any {plural(thing)} .",
            f"The {plural(person)} who {modal} not {first} {modal} {saw} any {plural(thing)} .",
        )
    ]


@phenomenon("en")
def en_than_and_as(draw: Draw) -> Group:
    noun, other = two(draw, PEOPLE)
    adjective = draw.choice(some("old young tall small poor rich great strong"))
    more = adjective + "er"
    one = f"The {noun} is {more} {{}} the {other} ."
    return mirror(one, f"The {noun} is as {adjective} {{}} the {other} .", "than", "as")


@phenomenon("en")
def en_comparative_and_superlative(draw: Draw) -> Group:
    noun, other = two(draw, PEOPLE)
    adjective = draw.choice(some("old young tall small poor rich great strong"))
    one = f"The {noun} is {{}} than the {other} ."
    other = f"The {noun} is the {{}} of all the {plural(other)} ."
    return mirror(one, other, adjective + "er", adjective + "est")


@phenomenon("en")
def en_paired_conjunctions(draw: Draw) -> Group:
    noun, other = two(draw, PEOPLE)
    end = draw.choice(["came back", "was there", "knew it", "was happy", "spoke"])
    one = f"Neither the {noun} {{}} the {other} {end} ."
    return mirror(one, f"Either the {noun} {{}} the {other} {end} .", "nor", "or")


@phenomenon("en")
def en_order_of_adjective_and_noun(draw: Draw) -> Group:
    noun, person, place = draw.choice(THINGS), draw.choice(PEOPLE), draw.choice(PLACES)
    saw = draw.choice(some("saw described mentioned remembered forgot visited"))
    adjective, the = draw.choice(THING_ADJECTIVES), draw.choice(some("the this his her"))
    start = f"The {person} {saw} {the}"
    return [(f"{start} {adjective} {noun} {place} .", f"{start} {noun} {adjective} {place} .")]


@phenomenon("en")
def en_order_of_verb_adverb_and_object(draw: Draw) -> Group:
    person, thing, saw = draw.choice(PEOPLE), draw.choice(THINGS), draw.choice(SAW)
    adverb = draw.choice(some("quickly suddenly finally often never soon always slowly"))
    one = f"The {person} {adverb} {saw} the {thing} ."
    return [(one, f"The {person} {saw} {adverb} the {thing} .")]


@phenomenon("en")
def en_order_of_two_objects(draw: Draw) -> Group:
    person, other = two(draw, PEOPLE)
    thing, gave = draw.choice(THINGS), draw.choice(some("gave sent showed offered sold brought"))
    one = f"The {person} {gave} the {other} a {thing} ."
    return [(one, f"The {person} {gave} a {thing} the {other} .")]


@phenomenon("en")
def en_order_of_pronoun_and_particle(draw: Draw) -> Group:
    person, it = draw.choice(PEOPLE), draw.choice(some("it them him her"))
    verb, up = draw.choice(
        rows("picked up\ngave up\nthrew away\ntook off\nput down\nbrought back\nlet in\nset up")
    )
    end = draw.choice(["yesterday", "again", "in the morning", "at once"])
    one = f"The {person} {verb} {it} {up} {end} ."
    return [(one, f"The {person} {verb} {up} {it} {end} .")]


@phenomenon("en")
def en_order_of_determiner_and_preposition(draw: Draw) -> Group:
    person, thing = draw.choice(PEOPLE), draw.choice(some("house garden town church room city"))
    base, _ = draw.choice(WALK)
    link, the = draw.choice(some("in near behind outside")), draw.choice(some("the this his her"))
    one = f"The {plural(person)} {base} {link} {the} {thing} ."
    return [(one, f"The {plural(person)} {base} {the} {link} {thing} .")]


# Chinese

ZH_PEOPLE = some("他 她 我 老师 学生 医生 父亲 母亲 妹妹 哥哥 弟弟 姐姐 同学 朋友 老人 孩子")
ZH_HE = some("他 她 我 父亲 母亲 妹妹 哥哥 弟弟 老师 朋友 我们 他们")
ZH_PAST = some("去年 当时 后来 昨天")
ZH_COUNTED = rows("""
本 书 词典 杂志
辆 车 汽车 自行车 卡车
张 照片 桌子 地图 床 纸
条 河 鱼 路 街道
只 鸟 猫 鸡 羊
件 衣服 事 事情 礼物
座 山 桥 城市 塔
家 公司 企业
场 比赛 战争 大雨
首 歌 诗 歌曲
位 老师 医生 客人 作家
棵 树 大树
把 刀 伞 钥匙
艘 军舰 潜艇
匹 马
""")
ZH_SMALL = rows("""
本 书 词典 杂志
张 照片 地图
只 鸟 猫 鸡
件 衣服 礼物
把 刀 伞 钥匙
封 信
""")
ZH_CAUGHT = rows("""
打破 玻璃 杯子 窗户
拿走 钱 书 照片 钥匙
卖掉 房子 汽车 土地
吃掉 苹果 鱼 面包
送到 医院 机场 学校
关上 门 窗户
打开 门 箱子 窗户
写完 信 作业 文章
""")
ZH_TALL = some("高 大 快 聪明 年轻 漂亮 重 强 老 忙 好")


@phenomenon("zh", "classifier")
def zh_classifier(draw: Draw) -> Group:
    first, second = draw.sample(ZH_COUNTED, 2)
    one, other = draw.choice(first[1:]), draw.choice(second[1:])
    count = draw.choice(some("一 三 几 四 五"))
    start = draw.choice(["他看见了", "我们有", "那里有", "她说的是", "这里只有", "我想起了"])
    start += count
    return mirror(f"{start}{{}}{one}。", f"{start}{{}}{other}。", first[0], second[0])


@phenomenon("zh", "些 and classifier")
def zh_xie(draw: Draw) -> Group:
    classifier, *nouns = draw.choice(ZH_COUNTED)
    noun, this = draw.choice(nouns), draw.choice(some("这 那"))
    end = draw.choice(
        some("都很好 都是新的 都很有名 是他的 是我们的 非常好 不见了 都在这里 很重要 也一样")
    )
    number = draw.choice(some("三 四 五 几"))
    some_, three = f"{this}些", f"{this}{number}"
    return [
        (f"{some_}{noun}{end}。", f"{some_}{classifier}{noun}{end}。"),
        (f"{three}{classifier}{noun}{end}。", f"{three}{noun}{end}。"),
    ]


@phenomenon("zh", "把 or 被")
def zh_ba_or_bei(draw: Draw) -> Group:
    verb, *things = draw.choice(ZH_CAUGHT)
    who, thing = draw.choice(ZH_HE), draw.choice(things)
    if verb == "送到":
        who, verb, thing = draw.choice(ZH_HE), f"送到{thing}", draw.choice(some("药品 食品 行李"))
    end = draw.choice(["了。", "了，大家都知道。", "了，没有人知道。"])
    one = f"{who}{{}}{thing}{verb}{end}"
    return mirror(one, f"{thing}{{}}{who}{verb}{end}", "把", "被")


@phenomenon("zh", "order of 把 and negation")
def zh_ba_and_negation(draw: Draw) -> Group:
    verb, *things = draw.choice([row for row in ZH_CAUGHT if row[0] != "送到"])
    who, thing = draw.choice(ZH_HE), draw.choice(things)
    no, when = draw.choice(["没有", "没", "还没有"]), draw.choice(["", *ZH_PAST])
    return [(f"{when}{who}{no}把{thing}{verb}。", f"{when}{who}把{thing}{no}{verb}。")]


@phenomenon("zh", "order of 被 and agent")
def zh_bei_and_agent(draw: Draw) -> Group:
    verb, *things = draw.choice([row for row in ZH_CAUGHT if row[0] != "送到"])
    who, thing = draw.choice(ZH_HE), draw.choice(things)
    end = draw.choice(["了。", "了，大家都知道。", "了，没有人知道。"])
    return [(f"{thing}被{who}{verb}{end}", f"{thing}{who}被{verb}{end}")]


@phenomenon("zh", "aspect 过 or 着")
def zh_guo_or_zhe(draw: Draw) -> Group:
    verb, thing = draw.choice(
        rows("看 电影\n看 书\n听 歌\n写 信\n唱 歌\n用 手机\n画 画\n学 英语\n喝 酒\n听 音乐\n吃 饭")
    )
    who, before = draw.choice(ZH_HE), draw.choice(some("曾经 曾 从来没有 从未"))
    now = draw.choice(some("正 正在 一直"))
    this = draw.choice(["", "这样的"])
    return mirror(f"{who}{before}{verb}{{}}{this}{thing}。", f"{who}{now}{verb}{{}}{this}{thing}。",
                  "过", "着")  # fmt: skip


@phenomenon("zh", "aspect 了 or 着")
def zh_le_or_zhe(draw: Draw) -> Group:
    verb, thing = draw.choice(
        rows("听 音乐\n画 画\n看 报纸\n喝 茶\n看 电视\n听 广播\n看 比赛\n写 小说\n做 作业\n吃 面包")
    )
    who, already = draw.choice(ZH_HE), draw.choice(some("已经 终于"))
    end, wish = draw.choice(some("回家 走 休息 离开")), draw.choice(some("回家 走 休息 离开"))
    one = f"{who}{already}{verb}{{}}{thing}，然后{end}。"
    return mirror(one, f"{who}正{verb}{{}}{thing}，不想{wish}。", "了", "着")


@phenomenon("zh", "negation 没 or 不")
def zh_mei_or_bu(draw: Draw) -> Group:
    who = draw.choice(ZH_HE)
    act = draw.choice(
        some("来 参加比赛 回家 去北京 来这里 出现 去医院 出门 去学校 来北京 参加会议 上场")
    )
    past, future = draw.choice(some("上次 刚才 去年")), draw.choice(some("明天 明年 后天 下次"))
    return mirror(f"{who}{past}{{}}{act}。", f"{who}{future}{{}}{act}。", "没", "不")


@phenomenon("zh", "question particle 吗 or 呢")
def zh_question_particle(draw: Draw) -> Group:
    who = draw.choice(some("他 她 你 他们 你们 老师 大家"))
    knew = draw.choice(some("不知道 不明白 不想去 没有看见 不喜欢 不认识他 没有听说 不害怕 不累"))
    ask = draw.choice(some("去了哪里 想要什么 是谁 怎么了 看见了什么 想去哪里 要做什么 为什么不来"))
    really = draw.choice(some("到底 究竟"))
    return mirror(f"难道{who}{knew}{{}}？", f"{who}{really}{ask}{{}}？", "吗", "呢")


@phenomenon("zh", "comparison 比 or 跟")
def zh_bi_or_gen(draw: Draw) -> Group:
    who, other = two(draw, ZH_PEOPLE)
    tall = draw.choice(ZH_TALL)
    end = draw.choice(some("一点 得多 多了 一些"))
    return mirror(f"{who}{{}}{other}{tall}{end}。", f"{who}{{}}{other}一样{tall}。", "比", "跟")


@phenomenon("zh", "order of 比 and adjective")
def zh_bi_and_adjective(draw: Draw) -> Group:
    who, other = two(draw, ZH_PEOPLE)
    tall, end = draw.choice(ZH_TALL), draw.choice(some("一点 得多 多了 一些"))
    now = draw.choice(["", "现在", "其实", "当然"])
    return [(f"{now}{who}比{other}{tall}{end}。", f"{now}{who}{tall}{end}比{other}。")]


@phenomenon("zh", "order of verb and result")
def zh_resultative_complement(draw: Draw) -> Group:
    who = draw.choice(ZH_HE)
    verb, result, thing = draw.choice(
        rows("洗 干净 衣服\n打 破 杯子\n写 好 信\n做 完 作业\n修 好 车\n写 完 小说\n找 到 钱\n"
             "喝 完 水\n看 完 书\n打 死 狗\n找 到 工作\n打 破 窗户\n学 会 英语\n看 见 孩子")
    )  # fmt: skip
    when = draw.choice(["", "已经", "终于", *ZH_PAST])
    end = draw.choice(["", "，很高兴", "，然后走了"])
    return [
        (f"{who}{when}{verb}{result}了{thing}{end}。", f"{who}{when}{result}{verb}了{thing}{end}。")
    ]


@phenomenon("zh", "的 or 得")
def zh_de(draw: Draw) -> Group:
    who = draw.choice(ZH_HE)
    verb = draw.choice(some("跑 走 说 唱 学 写 做 来 长 变 飞 睡 吃"))
    how = draw.choice(some("很快 很好 很慢 太快 非常好 太晚 不好 很早"))
    thing = draw.choice(some("书 车 家 学校 手机 名字 声音 作品 公司 衣服"))
    return mirror(f"{who}{verb}{{}}{how}。", f"这是{who}{{}}{thing}。", "得", "的")


@phenomenon("zh", "paired conjunctions")
def zh_paired_conjunctions(draw: Draw) -> Group:
    who = draw.choice(ZH_HE)
    do = draw.choice(some("努力 坚持 学习 工作 合作 相信自己 参加训练 找到他 了解历史 改革 团结"))
    reach = draw.choice(some("成功 胜利 解决问题 成为冠军 活下去 找到工作 实现理想 改变命运 进步"))
    if draw.random() < 0.5:
        return mirror(
            f"只有{do}，{who}{{}}能{reach}。", f"只要{do}，{who}{{}}能{reach}。", "才", "就"
        )
    bad = draw.choice(some("下雨 很累 生病 没有钱 很忙 下雪 天气不好"))
    one = f"虽然{bad}，{{}}{who}还是来了。"
    return mirror(one, f"因为{bad}，{{}}{who}没有来。", "但是", "所以")


@phenomenon("zh", "order of subject and adverb")
def zh_order_of_subject_and_adverb(draw: Draw) -> Group:
    who = draw.choice(some("他们 我们 老师们 孩子们 她们 学生们 你们 人们"))
    adverb = draw.choice(some("都 也"))
    act = draw.choice(
        some("喜欢音乐 来了 是学生 知道 去北京 回家了 参加比赛 同意 学习英语 想回家 认识他")
    )
    when = draw.choice(["", *ZH_PAST, "现在"])
    return [(f"{when}{who}{adverb}{act}。", f"{when}{adverb}{who}{act}。")]


@phenomenon("zh", "order of place and verb")
def zh_order_of_place_and_verb(draw: Draw) -> Group:
    who, when = draw.choice(ZH_HE), draw.choice(["", *ZH_PAST])
    where = draw.choice(some("图书馆 家里 学校 医院 公司 公园 房间里 车站 北京 餐厅 车上"))
    act = draw.choice(
        some("看书 吃饭 学习英语 喝酒 唱歌 看电影 打电话 写信 打球 买东西 听音乐 等人")
    )
    return [(f"{who}{when}在{where}{act}。", f"{who}{when}{act}在{where}。")]


@phenomenon("zh", "order of noun and 上, 里, 下")
def zh_shang(draw: Draw) -> Group:
    on, *things = draw.choice(rows("上 桌子 椅子 墙\n里 房间 箱子 盒子 学校 教室\n下 桌子 床 树"))
    classifier, *nouns = draw.choice(ZH_SMALL)
    thing, what = (
        draw.choice(things),
        f"{draw.choice(some('一 几 三'))}{classifier}{draw.choice(nouns)}",
    )
    if draw.random() < 0.5:
        return [(f"{thing}{on}有{what}。", f"{on}{thing}有{what}。")]
    who = draw.choice(ZH_HE)
    return [(f"{who}在{thing}{on}看见了{what}。", f"{who}在{on}{thing}看见了{what}。")]


@phenomenon("zh", "在 or 有")
def zh_zai_or_you(draw: Draw) -> Group:
    on, *things = draw.choice(rows("上 桌子 床 山 墙 车 船\n里 房间 箱子 盒子 学校 教室"))
    thing = draw.choice(things)
    classifier, *nouns = draw.choice(ZH_SMALL)
    noun = draw.choice(nouns)
    one = f"{thing}{on}{{}}{draw.choice(some('一 几 三'))}{classifier}{noun}。"
    who = draw.choice(ZH_HE)
    return mirror(one, f"{who}的{noun}{{}}{thing}{on}。", "有", "在")


@phenomenon("zh", "reduplication with 了")
def zh_reduplication(draw: Draw) -> Group:
    who = draw.choice(ZH_HE)
    verb, thing = draw.choice(
        rows("看 我\n看 四周\n看 天空\n看 窗外\n看 手机\n想 这个问题\n想 自己的事\n试 新衣服\n"
             "听 外面的声音\n问 老师\n问 价格\n摸 孩子的头\n说 自己的想法\n等 他\n等 孩子\n"
             "看 孩子\n看 地图\n问 路")
    )  # fmt: skip
    end = draw.choice(["", "，然后走了", "，又坐下了"])
    when = draw.choice(["", "又", "只是"])
    return [
        (f"{who}{when}{verb}了{verb}{thing}{end}。", f"{who}{when}{verb}{verb}了{thing}{end}。")
    ]


@phenomenon("zh", "order of 什么 and 都")
def zh_shenme_dou(draw: Draw) -> Group:
    who, when = draw.choice(ZH_HE), draw.choice(["", *ZH_PAST, "现在"])
    what = draw.choice(some("什么 哪里 谁"))
    acts = {
        "什么": "不知道 没有说 没吃 不想吃 不想做 没有看见 不会 没做 不懂 没有",
        "哪里": "不想去 没有去 没去 不能去",
        "谁": "不认识 不相信 没有告诉 不喜欢 没看见",
    }
    act = draw.choice(some(acts[what]))
    also = draw.choice(some("都 也"))
    return [(f"{when}{who}{what}{also}{act}。", f"{when}{who}{also}{what}{act}。")]


@phenomenon("zh", "order of two objects")
def zh_order_of_two_objects(draw: Draw) -> Group:
    who, other = two(draw, ZH_HE)
    gave = draw.choice(some("送给 送 给 还给 借给 卖给 交给"))
    classifier, *nouns = draw.choice(
        rows("本 书 小说\n张 照片 地图\n件 衣服 礼物\n辆 汽车 自行车\n封 信\n笔 钱")
    )
    thing = f"{draw.choice(some('一 三 几 两'))}{classifier}{draw.choice(nouns)}"
    return [(f"{who}{gave}{other}{thing}。", f"{who}{gave}{thing}{other}。")]


def make(language: str, frequent: Set[str]) -> list[dict[str, str]]:
    """All pairs of a language that are made of these words."""
    from elmokit.text.tokens import get_tokenizer

    tokenize = get_tokenizer("jieba" if language == "zh" else "words").tokenize
    suite = []
    for name, template in PHENOMENA[language].items():
        draw, found = random.Random(name), dict[tuple[str, str], None]()
        for _ in range(TRIES):
            group = template(draw)
            tokens = [[tokenize(text) for text in pair] for pair in group]
            words = [Counter(w for pair in tokens for w in pair[side]) for side in (0, 1)]
            equal = name in BY_CHARACTER or words[0] == words[1]
            known = (words[0] | words[1]).keys() <= frequent
            if equal and known and not found.keys() & set(group):
                found.update(dict.fromkeys(group))
            if len(found) >= PAIRS:
                break
        print(
            f"{language}  {len(found):>4}  {name}  {'  '.join(next(iter(found), ()))}",
            file=sys.stderr,
        )
        suite += [{"good": good, "bad": bad, "phenomenon": name} for good, bad in found]
    return suite


def text_of(suite: Sequence[dict[str, str]]) -> str:
    """The suite as JSON lines."""
    return "".join(json.dumps(pair, ensure_ascii=False) + "\n" for pair in suite)


def main() -> None:
    for language, model in MODELS.items():
        path = ROOT / "src" / "elmokit" / "models" / model / "vocab.txt"
        words = path.read_text("utf-8").split("\n")[3 : FREQUENT[language]]
        suite = text_of(make(language, set(words)))
        (FOLDER / f"pairs-{language}.jsonl.gz").write_bytes(gzip.compress(suite.encode(), mtime=0))


if __name__ == "__main__":
    main()
