/** Vectors as plain arrays: the few operations that the views need. */

export type Vector = readonly number[];
/** Rows of equal length. */
export type Matrix = readonly Vector[];

/** The value at an index that is known to be inside. */
export function at<T>(values: ArrayLike<T>, index: number): T {
  return values[index] as T;
}

export function dot(a: Vector, b: Vector): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += at(a, i) * at(b, i);
  return sum;
}

export function norm(a: Vector): number {
  return Math.sqrt(dot(a, a));
}

/** Cosine of two vectors; 0 if one of them is zero. */
export function cosine(a: Vector, b: Vector): number {
  const lengths = norm(a) * norm(b);
  return lengths === 0 ? 0 : Math.max(-1, Math.min(1, dot(a, b) / lengths));
}

export function scaled(a: Vector, factor: number): number[] {
  return a.map((value) => value * factor);
}

export function unit(a: Vector): number[] {
  const length = norm(a);
  return length === 0 ? [...a] : scaled(a, 1 / length);
}

export function mean(rows: Matrix): number[] {
  const sum = new Array<number>(rows[0]?.length ?? 0).fill(0);
  for (const row of rows) row.forEach((value, i) => (sum[i] = at(sum, i) + value));
  return scaled(sum, 1 / Math.max(1, rows.length));
}

/** Weighted sum of layers, token by token: (layers, tokens, width) to (tokens, width). */
export function mix(layers: readonly Matrix[], weights: Vector): number[][] {
  const first = at(layers, 0);
  return first.map((row, token) =>
    row.map((_, i) => {
      let sum = 0;
      for (let layer = 0; layer < layers.length; layer++) {
        sum += at(weights, layer) * at(at(at(layers, layer), token), i);
      }
      return sum;
    }),
  );
}

/** Numbers that are not negative, as shares that sum to 1; equal shares if all are 0. */
export function shares(values: Vector): number[] {
  const sum = values.reduce((a, b) => a + b, 0);
  return values.map((value) => (sum === 0 ? 1 / values.length : value / sum));
}

/** A number for each pair of rows. */
export function pairs(a: Matrix, b: Matrix, measure: (a: Vector, b: Vector) => number): number[][] {
  return a.map((row) => b.map((other) => measure(row, other)));
}
