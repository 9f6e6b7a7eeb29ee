/** Which words a view starts with. */

/** As the package's list of stop words for corpora (`ENGLISH_STOP_WORDS`); a test compares them. */
const ENGLISH =
  "a about above after again against all am an and any are as at be because been before being" +
  " below between both but by can could did do does doing down during each few for from further" +
  " had has have having he her here hers herself him himself his how i if in into is it its" +
  " itself just me more most my myself no nor not now of off on once only or other our ours" +
  " ourselves out over own same she should so some such than that the their theirs them" +
  " themselves then there these they this those through to too under until up very was we were" +
  " what when where which while who whom why will with would you your yours yourself yourselves" +
  " 's 'm 'd 'll 're 've n't ’s ’m ’d ’ll ’re ’ve n’t";
const CHINESE =
  "的 地 得 了 着 过 之 所 是 在 有 没 没有 不 不是 也 都 就 才 又 再 还 还是 更 最 太 很 非常 已 已经 正在 将 曾" +
  " 我 你 您 他 她 它 我们 你们 他们 她们 它们 咱们 自己 大家 谁 什么 怎么 哪 哪里 这 那 这个 那个 这些 那些 这里 那里 每 每个 各 某" +
  " 一 一个 一些 一种 个 些 和 与 及 以及 或 或者 但 但是 而 而且 并 并且 因为 所以 如果 虽然 然后 因此 于是" +
  " 把 被 让 使 给 对 对于 从 到 向 往 为 为了 以 于 由 用 跟 同 比 按 在于 上 下 里 中 内 外 前 后 时 吗 呢 吧 啊 呀 嘛" +
  " 会 能 可以 可 要 应该 必须 只 只有 其 此 该 等";

const FUNCTION_WORDS: ReadonlySet<string> = new Set(`${ENGLISH} ${CHINESE}`.split(" "));

/**
 * Words that occur more than once, the best to look at first: content words before function words,
 * then by the number of sentences, of uses and of letters. Case is ignored.
 */
export function repeatedWords(sentences: readonly (readonly string[])[]): [word: string, count: number][] {
  const found = new Map<string, { count: number; sentences: Set<number> }>();
  sentences.forEach((tokens, number) => {
    for (const token of tokens) {
      const word = token.toLowerCase();
      const entry = found.get(word) ?? { count: 0, sentences: new Set() };
      entry.count += 1;
      entry.sentences.add(number);
      found.set(word, entry);
    }
  });
  return [...found]
    .filter(([word, { count }]) => count > 1 && /[\p{L}\p{N}]/u.test(word))
    .sort(
      ([a, x], [b, y]) =>
        Number(FUNCTION_WORDS.has(a)) - Number(FUNCTION_WORDS.has(b)) ||
        y.sentences.size - x.sentences.size ||
        y.count - x.count ||
        b.length - a.length,
    )
    .map(([word, { count }]) => [word, count]);
}

/** The position of a sentence's first content word; of its first token where it has none. */
export function contentWord(tokens: readonly string[]): number {
  return Math.max(
    0,
    tokens.findIndex((token) => /\p{L}/u.test(token) && !FUNCTION_WORDS.has(token.toLowerCase())),
  );
}

export const GAP = "____";

/** A gap that was typed as two or more underscores, as a token of its own. */
export function withGap(sentence: string): string {
  return sentence.replace(/[_＿]{2,}/g, ` ${GAP} `).trim();
}

/** The position of a typed gap, or -1. */
export function typedGap(tokens: readonly string[]): number {
  return tokens.indexOf(GAP);
}
