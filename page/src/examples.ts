/** Initial values of the fields. */

import type { Model } from "./api.ts";

export interface Examples {
  readonly uses: { readonly sentences: readonly string[]; readonly word: string };
  readonly layers: string;
  readonly inspect: { readonly sentence: string; readonly word: string };
  readonly gap: { readonly sentence: string; readonly word: string };
}

const ENGLISH: Examples = {
  uses: {
    word: "bank",
    sentences: [
      "the bank lent money to the farmer",
      "she opened an account at the bank",
      "the bank raised its interest rates again",
      "he works for a large bank in the city",
      "the bank refused to pay the money back",
      "they sat on the bank of the river",
      "the boat lay by the bank of the stream",
      "we walked along the bank under the trees",
      "the river broke its bank after the rain",
      "grass grew on the bank near the water",
    ],
  },
  layers: "the bank of the river is far from the bank that lent the money",
  inspect: { sentence: "the bank lent money to the farmer", word: "bank" },
  gap: { sentence: "The team won the final match of the season .", word: "match" },
};

const CHINESE: Examples = {
  uses: {
    word: "苹果",
    sentences: [
      "他每天吃一个苹果",
      "树上的苹果红了",
      "她买了苹果和香蕉",
      "这个苹果又大又甜",
      "苹果发布了新手机",
      "他在苹果上班",
      "苹果的股票上涨",
      "我买了苹果的电脑",
    ],
  },
  layers: "他在苹果上班，每天吃一个苹果",
  inspect: { sentence: "他在银行工作", word: "银行" },
  gap: { sentence: "这部电影讲述了一个爱情故事", word: "电影" },
};

export function examplesFor(model: Model): Examples {
  return model.tokenizer === "jieba" ? CHINESE : ENGLISH;
}
