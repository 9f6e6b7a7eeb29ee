/** A request as code: Python or a command line. */

export interface Request {
  /** The path behind the address, such as `v1/encode`. */
  readonly route: string;
  readonly body: Record<string, unknown>;
}

/** Positional arguments of `elmokit.server.Client`; the others are named. */
const POSITIONAL: Record<string, readonly string[]> = {
  "v1/encode": ["sentences"],
  "v1/inspect": ["sentence"],
  "v1/substitutes": ["sentence"],
  "v1/predict": ["predictor", "items"],
};

export function asPython(request: Request, address: string, withToken: boolean): string {
  const { model, ...values } = request.body;
  const positional = POSITIONAL[request.route] ?? [];
  const settings = [literal(address)];
  if (model !== undefined) settings.push(`model=${literal(model)}`);
  if (withToken) settings.push('token="YOUR TOKEN"');
  const call = [
    ...positional.map((name) => literal(values[name])),
    ...Object.entries(values)
      .filter(([name]) => !positional.includes(name))
      .map(([name, value]) => `${name}=${literal(value)}`),
  ];
  const method = request.route.replace("v1/", "");
  const last =
    method === "encode" ? "print([vectors.shape for vectors in answer])" : "print(answer)";
  return [
    "from elmokit.server import Client",
    "",
    `with Client(${settings.join(", ")}) as client:`,
    `    answer = client.${method}(${call.join(", ")})`,
    last,
    "",
  ].join("\n");
}

/** The request as Python that needs no service; null for what only a service and the page show. */
export function asLocalPython(request: Request): string | null {
  const { model, ...values } = request.body;
  const call = LOCAL[request.route]?.(values);
  if (call === undefined) return null;
  return ["import elmokit", "", `elmo = elmokit.load(${literal(model)})`, ...call, ""].join("\n");
}

const LOCAL: Record<string, (values: Record<string, unknown>) => string[]> = {
  "v1/encode": ({ sentences, layers }) => [
    `answer = elmo.encode(${literal(sentences)}, layers=${literal(layers)})`,
    "print([vectors.shape for vectors in answer])",
  ],
  "v1/substitutes": ({ sentence, position, k }) => [
    `for found in elmo.substitutes(${literal(sentence)}, ${literal(position)}, k=${literal(k)}):`,
    "    print(found)",
  ],
};

export function asCurl(request: Request, address: string, withToken: boolean): string {
  const token = withToken ? ["-H 'Authorization: Bearer YOUR TOKEN'"] : [];
  return [
    `curl -s ${quoted(`${address}/${request.route}`)}`,
    "-H 'Content-Type: application/json'",
    ...token,
    `-d ${quoted(JSON.stringify(request.body))}`,
  ].join(" ");
}

/** A value as a Python literal. */
export function literal(value: unknown): string {
  if (value === null || value === undefined) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  return JSON.stringify(value);
}

/** One quoted word of a POSIX shell. */
export function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
