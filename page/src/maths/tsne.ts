/**
 * t-SNE (van der Maaten and Hinton, 2008), exact, for a few hundred points.
 *
 * It starts from the principal components instead of random positions, so that the same points always
 * give the same map.
 */

import { pca } from "./pca.ts";
import { at, dot, type Matrix } from "./vectors.ts";

const STEPS = 500;
const EXAGGERATED_STEPS = 100;
const EXAGGERATION = 4;
const SMALLEST = 1e-12;

/** The perplexity for so many points. */
export function perplexityFor(points: number): number {
  return Math.max(1, Math.min(30, (points - 1) / 3));
}

/** A map, given where the points start: their first two principal components. */
export function tsne(points: Matrix, start = pca(points).coordinates): number[][] {
  const n = points.length;
  if (n < 3) return start;
  const p = joint(points, perplexityFor(n));
  const spread = Math.max(...start.map(([x = 0]) => Math.abs(x))) || 1;
  const y = Float64Array.from(start.flat(), (value) => (value / spread) * 1e-2);
  const speed = new Float64Array(2 * n);
  const gains = new Float64Array(2 * n).fill(1);
  const near = new Float64Array(n * n);
  const slope = new Float64Array(2 * n);
  const rate = Math.max(10, n / EXAGGERATION);
  for (let step = 0; step < STEPS; step++) {
    const exaggeration = step < EXAGGERATED_STEPS ? EXAGGERATION : 1;
    const momentum = step < EXAGGERATED_STEPS ? 0.5 : 0.8;
    gradient(p, y, near, slope, exaggeration);
    for (let i = 0; i < 2 * n; i++) {
      const same = Math.sign(at(slope, i)) === Math.sign(at(speed, i));
      gains[i] = Math.max(0.01, same ? at(gains, i) * 0.8 : at(gains, i) + 0.2);
      speed[i] = momentum * at(speed, i) - rate * at(gains, i) * at(slope, i);
      y[i] = at(y, i) + at(speed, i);
    }
  }
  return points.map((_, i) => [at(y, 2 * i), at(y, 2 * i + 1)]);
}

function gradient(
  p: Float64Array,
  y: Float64Array,
  near: Float64Array,
  slope: Float64Array,
  exaggeration: number,
): void {
  const n = y.length / 2;
  let total = 0;
  for (let i = 0; i < n; i++) {
    for (let j = i + 1; j < n; j++) {
      const dx = at(y, 2 * i) - at(y, 2 * j);
      const dy = at(y, 2 * i + 1) - at(y, 2 * j + 1);
      const value = 1 / (1 + dx * dx + dy * dy);
      near[i * n + j] = near[j * n + i] = value;
      total += 2 * value;
    }
  }
  slope.fill(0);
  for (let i = 0; i < n; i++) {
    for (let j = 0; j < n; j++) {
      if (i === j) continue;
      const value = at(near, i * n + j);
      const q = Math.max(SMALLEST, value / total);
      const pull = 4 * (exaggeration * at(p, i * n + j) - q) * value;
      slope[2 * i] = at(slope, 2 * i) + pull * (at(y, 2 * i) - at(y, 2 * j));
      slope[2 * i + 1] = at(slope, 2 * i + 1) + pull * (at(y, 2 * i + 1) - at(y, 2 * j + 1));
    }
  }
}

/** Probabilities that two points are neighbours, symmetric, with the wanted perplexity. */
function joint(points: Matrix, perplexity: number): Float64Array {
  const n = points.length;
  const p = new Float64Array(n * n);
  const squares = points.map((point) => dot(point, point));
  points.forEach((a, i) => {
    const distances = points.map((b, j) =>
      Math.max(0, at(squares, i) + at(squares, j) - 2 * dot(a, b)),
    );
    neighbours(distances, i, Math.log(perplexity)).forEach((value, j) => (p[i * n + j] = value));
  });
  const both = new Float64Array(n * n);
  for (let i = 0; i < n; i++) {
    for (let j = 0; j < n; j++) {
      both[i * n + j] = Math.max(SMALLEST, (at(p, i * n + j) + at(p, j * n + i)) / (2 * n));
    }
  }
  return both;
}

/** One point's probabilities; the width of its Gaussian is found by bisection. */
function neighbours(distances: number[], self: number, entropy: number): number[] {
  const nearest = Math.min(...distances.filter((_, j) => j !== self));
  let low = 0;
  let high = Infinity;
  let beta = 1 / Math.max(SMALLEST, distances.reduce((a, b) => a + b, 0) / distances.length);
  let row: number[] = [];
  for (let turn = 0; turn < 60; turn++) {
    row = distances.map((d, j) => (j === self ? 0 : Math.exp(-(d - nearest) * beta)));
    const sum = row.reduce((a, b) => a + b, 0);
    row = row.map((value) => value / sum);
    const found = row.reduce((h, value) => (value > 0 ? h - value * Math.log(value) : h), 0);
    if (Math.abs(found - entropy) < 1e-6) break;
    if (found > entropy) {
      low = beta;
      beta = high === Infinity ? beta * 2 : (beta + high) / 2;
    } else {
      high = beta;
      beta = (beta + low) / 2;
    }
  }
  return row;
}
