// `elmokit serve` from Node.js 18 or newer, without packages.
//
//   elmokit serve &
//   node examples/service.mjs [ADDRESS]
//
// ADDRESS is http://127.0.0.1:8000 when left out. A server with tokens: set ELMOKIT_TOKEN.

const address = (process.argv[2] ?? "http://127.0.0.1:8000").replace(/\/+$/, "");
const token = process.env.ELMOKIT_TOKEN;
const ATTEMPTS = 4;

/** POST a JSON body; while the server is busy (429, 503), wait as long as it says. */
async function post(route, body) {
  const headers = { "Content-Type": "application/json" };
  if (token) headers.Authorization = `Bearer ${token}`;
  for (let attempt = 1; ; attempt++) {
    const answer = await fetch(address + route, { method: "POST", headers, body: JSON.stringify(body) });
    if (answer.ok) return answer.json();
    const after = Number(answer.headers.get("Retry-After"));
    if (!after || attempt === ATTEMPTS) {
      throw new Error(`${route}: ${answer.status} ${await answer.text()}`);
    }
    await answer.arrayBuffer();
    await new Promise((done) => setTimeout(done, 1000 * after));
  }
}

/** The numbers of an embedding in base64: float32, little endian. */
function numbers(base64) {
  const bytes = Buffer.from(base64, "base64");
  return Float32Array.from({ length: bytes.length / 4 }, (_, i) => bytes.readFloatLE(4 * i));
}

// Texts, the nearest to the first one on top. Vectors have length 1: the dot product is the cosine.
const texts = [
  "the bank raised its interest rates",
  "the lender put up the cost of loans",
  "they sat on the bank of the river",
  "the children fed the ducks by the water",
];
const { data, usage } = await post("/v1/embeddings", { input: texts, encoding_format: "base64" });
const vectors = data.map((one) => numbers(one.embedding));
const cosine = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);
console.log(`${usage.total_tokens} tokens, vectors of ${vectors[0].length} numbers`);
texts
  .map((text, i) => ({ text, cosine: cosine(vectors[0], vectors[i]) }))
  .sort((a, b) => b.cosine - a.cosine)
  .forEach((one) => console.log(one.cosine.toFixed(3), one.text));

// An n-best list of a speech recogniser, sorted again.
const hypotheses = [
  { text: "It is hard to wreck a nice beach .", score: -10.1 },
  { text: "It is hard to recognise speech .", score: -10.4 },
];
const { utterances } = await post("/v1/rerank", { utterances: [{ hypotheses }], weight: 0.5 });
for (const one of utterances[0].hypotheses) {
  console.log(one.combined.toFixed(2), one.text);
}
