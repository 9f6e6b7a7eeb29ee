/** Initial values of the fields. */

import type { FormField, Model, PredictorFacts } from "./api.ts";

export interface Examples {
  /** Sentences that share a word with several meanings. */
  readonly uses: readonly string[];
  readonly layers: string;
  readonly inspect: { readonly sentence: string; readonly word: string };
  readonly gap: { readonly sentence: string; readonly word: string };
}

const ENGLISH: Examples = {
  uses: [
    "The bank lent money to the farmer.",
    "The bank raised its interest rates again.",
    "The bank refused to pay the money back.",
    "He works for a large bank in the city.",
    "A bank in London bought the company.",
    "They sat on the bank of the river.",
    "The boat lay by the bank of the stream.",
    "We walked along the bank under the trees.",
    "The river broke its bank after the rain.",
    "Grass grew on the bank near the water.",
  ],
  layers: "The bank lent money to a man on the bank of the river.",
  inspect: { sentence: "The bank lent money to the farmer.", word: "bank" },
  gap: { sentence: "Paris is the capital of France.", word: "capital" },
};

const CHINESE: Examples = {
  uses: [
    "警察穿着制服。",
    "学生必须穿制服上学。",
    "他脱下制服。",
    "军队换了新的制服。",
    "警察制服了歹徒。",
    "他很快制服了对手。",
    "三名保安制服了小偷。",
    "士兵制服了敌人。",
  ],
  layers: "他在苹果上班，每天吃一个苹果",
  inspect: { sentence: "他在银行工作", word: "银行" },
  gap: { sentence: "这部电影讲述了一个爱情故事。", word: "电影" },
};

/** What the fields of a task's form hold, by task and by the name of the field. */
type TaskExamples = Readonly<Record<string, Readonly<Record<string, string>>>>;

const ENGLISH_TASKS: TaskExamples = {
  classify: { texts: "a charming and often moving film\nthe plot is dull and far too long" },
  tag: {
    texts: "Anna Brown lives in Paris .\nThe bank in Vienna lent money to Thomas .",
    text: "The bank lent money to the farmer .",
    predicate: "lent",
  },
  pair: {
    first: "A man plays the guitar in the street .",
    second: "A musician performs outdoors .",
  },
  relation: { marked: "The <e1>fire</e1> was caused by a <e2>candle</e2> ." },
  coref: {
    text: "Anna told Maria that she had won the prize .",
    pronoun: "she",
    nameA: "Anna",
    nameB: "Maria",
  },
  qa: {
    text: "The Amazon flows through Peru and Brazil . It is about 6,400 kilometres long .",
    question: "Which countries does the Amazon flow through ?",
  },
  dialogue: { texts: "book a table for two in Paris tomorrow" },
  seq2seq: { texts: "the bank lent money to the farmer" },
};

const CHINESE_TASKS: TaskExamples = {
  classify: { texts: "这部电影非常感人\n剧情太长，很无聊" },
  tag: {
    texts: "王芳住在北京。\n李明在上海的一家银行工作。",
    text: "银行把钱借给了农民。",
    predicate: "借",
  },
  pair: { first: "一个男人在街上弹吉他。", second: "一位音乐家在户外表演。" },
  relation: { marked: "<e1>火灾</e1>是由一支<e2>蜡烛</e2>引起的。" },
  coref: { text: "王芳告诉李娜，她得奖了。", pronoun: "她", nameA: "王芳", nameB: "李娜" },
  qa: { text: "长江发源于青藏高原，在上海注入东海。", question: "长江在哪里注入东海？" },
  dialogue: { texts: "明天在北京订一张两人的餐桌" },
  seq2seq: { texts: "银行把钱借给了农民" },
};

const isChinese = (tokenizer: string) => tokenizer === "jieba";

export function examplesFor(model: Model): Examples {
  return isChinese(model.tokenizer) ? CHINESE : ENGLISH;
}

/** An example for each field of a predictor's form: the page's own, or the task's. */
export function taskExample({ task, form, tokenizer }: PredictorFacts): string[] {
  const examples = isChinese(tokenizer) ? CHINESE_TASKS : ENGLISH_TASKS;
  return form.map(({ name, example }: FormField) => examples[task]?.[name] ?? example);
}
