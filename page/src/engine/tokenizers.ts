/** Tokens of a text, by the names and rules of `elmokit.text.tokens`: `space`, `words`, `chars`. */

export type Tokenize = (text: string) => string[];

/** The tokenizer of that name; null if there is none here. */
export function tokenizer(name: string): Tokenize | null {
  switch (name) {
    case "space":
      return (text) => text.match(NO_SPACES) ?? [];
    case "chars":
      return (text) => text.match(NO_SPACE) ?? [];
    case "words":
      return (text) => [...text.replace(TRAILING, "").matchAll(WORD)].map((match) => match[1] ?? "");
    default:
      return null;
  }
}

// Python's white space, which is not JavaScript's; \w and \d there are Unicode's.
const SPACE = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const NO_SPACES = new RegExp(`[^${SPACE}]+`, "gu");
const NO_SPACE = new RegExp(`[^${SPACE}]`, "gu");
const TRAILING = new RegExp(`[${SPACE}]+$`, "u");

const TITLES =
  "Adm Capt Cmdr Col Cpl Dr Dra Drs Fr Gen Gov Hon Hr Lt Maj Messrs Mlle Mme Mr Mrs Ms Mt Mx Pres" +
  " Prof Rep Rev Sen Sgt Sra Srta St Ste approx bzw cf dept eds esp vgl viz vs г-н г-жа им см ул";
const SHORT_FORMS =
  "Apr Assn Aug Ave Bldg Blvd Bros Co Corp Dec Feb Inc Intl Jan Jr Jul Jun Ltd Mar Mfg Mon Nov" +
  " Oct Pty Rd Sep Sept Sr Univ al ca млн млрд руб тыс";
const LIST_ENDS = "etc usw др пр";
const NUMBERED = "art ch fig figs no nos nr pp sec vol";

const WORD = wordPattern();

/** The words as they may be written, longest first: as given, with a capital, in capitals. */
function alternatives(words: string): string {
  const forms = words.split(" ").flatMap((word) => {
    const capital = word.slice(0, 1).toUpperCase() + word.slice(1).toLowerCase();
    return [word, capital, word.toUpperCase()];
  });
  return [...new Set(forms)].sort((a, b) => b.length - a.length).join("|");
}

/** Each letter in any case, as Python's IGNORECASE has it. */
function anyCase(letters: string): string {
  const more: Record<string, string> = { i: "İı", s: "ſ", k: "\u212a" };
  return [...letters].map((c) => `[${c}${c.toUpperCase()}${more[c] ?? ""}]`).join("");
}

/** The expression of `words`; the comments of its original in Python are the rules. */
function wordPattern(): RegExp {
  let groups = 0;
  // JavaScript has no possessive quantifiers; a lookahead is never entered again either.
  const once = (pattern: string) => `(?=(?<g${++groups}>${pattern}))\\k<g${groups}>`;
  const any = anyCase;
  const w = "[\\p{L}\\p{N}_]";
  const letter = "[\\p{L}\\p{Nl}\\p{No}]";
  const digit = "\\p{Nd}";
  const space = `[${SPACE}]`;
  const char = "[\\p{L}\\p{N}_\\p{M}\\u00ad\\u200c\\u200d\\u2060]";
  const chars = () => once(`${char}+`);
  const apostrophe = "['’]";
  const joiner = "[-‐‑./+&@·・‧״׳]";
  const clitic = `${apostrophe}(?:${any("s")}|${any("m")}|${any("d")}|${any("ll")}|${any("re")}|${any("ve")})`;
  const noPart = `(?!${char}|${joiner}${char}|${apostrophe}${char})`;
  const cliticEnd = () => `(?=${once(`(?:${clitic}){0,2}`)}${noPart})`;
  const end = () => `(?=${once(`(?:${clitic}){0,3}`)}${noPart})`;
  const not = `${any("n")}${apostrophe}${any("t")}`;
  const verbEnd = () => `${once(`(?:${not})?`)}${end()}`;
  const notInWord = `(?!\\.|${char}|-${char})`;
  const closing = "[\"'”’»›)\\]}」』）]";
  const urlChar = `[^${SPACE}()<>"'“”‘’«»，。；：！？、（）「」『』《》]`;
  const emoji = "[\\u2190-\\u2bff\\u3030\\u303d\\u3297\\u3299\\u{1f000}-\\u{1faff}]";
  const suffix = () => once("[\\p{M}\\u{1f3fb}-\\u{1f3ff}\\u{e0020}-\\u{e007f}]*");
  const marks = () => once("\\p{M}*");
  const signs = [".", "-", "–", "—", "―", "…", "=", "+", "*", "~", "#"];
  const alternativesInOrder = [
    `(?:${any("http")}${any("s")}?://|${any("ftp")}://|${any("www")}\\.)` +
      `(?:${urlChar}*(?:\\(${urlChar}*\\)|[\\p{L}\\p{N}_/&=#+~%$\\-]))+`,
    `${any("can")}(?=${any("not")}${verbEnd()})`,
    `(?:${any("gim")}|${any("lem")})(?=${any("me")}${verbEnd()})`,
    `(?:${any("gon")}|${any("wan")})(?=${any("na")}${verbEnd()})`,
    `${any("got")}(?=${any("ta")}${verbEnd()})`,
    `${chars()}(?!${joiner}|${apostrophe}|(?<=${digit})[,:٫٬]${digit})`,
    `(?:${alternatives(`${TITLES} ${SHORT_FORMS} ${LIST_ENDS}`)})\\.${notInWord}`,
    `(?:${alternatives(NUMBERED)})\\.(?=${once(`${space}+`)}${digit})`,
    `${letter}\\.${notInWord}(?!${once(`${closing}*`)}${once(`${space}*`)}$)`,
    `${char}+?(?=${not}${end()})`,
    `(?:[#@](?=[\\p{L}\\p{Nl}\\p{No}_])|(?<!${w})[-+−]\\.?(?=${digit})|\\.(?=${digit}))?${chars()}` +
      once(
        `(?:(?:${joiner}|\\.-)${chars()}` +
          `|(?<=${digit})[,:٫٬](?=${digit})${chars()}` +
          `|(?!${clitic}${cliticEnd()})(?:${once(`(?:${clitic}(?!${char}))+`)}|${apostrophe}${chars()}))*`,
      ) +
      `(?:(?<=${w}\\.${letter})\\.${notInWord}|-(?!-))?`,
    `${clitic}${cliticEnd()}`,
    `${apostrophe}(?:${any("t")}(?=(?:${any("is")}|${any("was")})${end()})` +
      `|(?:${any("t")}|${any("em")}|${any("til")}|${any("cause")}` +
      `|${any("n")}${apostrophe}?|${digit}${digit}${any("s")}?)${end()})`,
    "[\\u{1f1e6}-\\u{1f1ff}]{2}",
    `${emoji}${suffix()}${once(`(?:\\u200d${emoji}${suffix()})*`)}`,
    `(?:${signs.map((sign) => once(`\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}+`)).join("|")})${marks()}`,
    `[^${SPACE}]${marks()}`,
  ];
  return new RegExp(`[${SPACE}]*(${alternativesInOrder.join("|")})`, "gu");
}
