/** Principal components of a few points in many dimensions. */

import { at, dot, mean, norm, scaled, unit, type Matrix } from "./vectors.ts";

export interface Components {
  /** One row per point, one column per component. */
  readonly coordinates: number[][];
  /** The share of the variance that each component has. */
  readonly shares: number[];
}

const STEPS = 500;
const CLOSE_ENOUGH = 1e-10;
const NOTHING = 1e-10;

/**
 * Coordinates along the directions in which the points differ most.
 *
 * Works with the points' dot products (n x n), because there are few points and many dimensions.
 * Each component has the sign that makes its largest coordinate positive, so that the same points
 * always give the same map.
 */
export function pca(points: Matrix, count = 2): Components {
  const centre = mean(points);
  const centred = points.map((row) => row.map((value, i) => value - at(centre, i)));
  const products = centred.map((a) => centred.map((b) => dot(a, b)));
  const total = products.reduce((sum, row, i) => sum + at(row, i), 0);
  const found: { value: number; vector: number[] }[] = [];
  for (let c = 0; c < count; c++) {
    const vector = strongest(products, found.map((one) => one.vector), c);
    found.push({ value: Math.max(0, dot(vector, times(products, vector))), vector });
  }
  const columns = found.map(({ value, vector }) => {
    const peak = vector.reduce((a, b) => (Math.abs(b) > Math.abs(a) + 1e-9 ? b : a), 0);
    return scaled(vector, Math.sqrt(value) * (peak < 0 ? -1 : 1));
  });
  return {
    coordinates: points.map((_, i) => columns.map((column) => at(column, i))),
    shares: found.map(({ value }) => (total > 0 ? value / total : 0)),
  };
}

/** The eigenvector of the largest eigenvalue, orthogonal to those before it. */
function strongest(products: Matrix, before: Matrix, seed: number): number[] {
  // No two components share a start, and none is orthogonal to its solution.
  const size = products.reduce((sum, row, i) => sum + at(row, i), 0);
  let vector = unit(products.map((_, i) => Math.sin(1 + i * (1.7 + seed)) + 0.01));
  for (let step = 0; step < STEPS; step++) {
    let next = times(products, vector);
    for (const other of before) {
      const along = dot(next, other);
      next = next.map((value, i) => value - along * at(other, i));
    }
    // What is left of zero variance is rounding error.
    if (norm(next) <= NOTHING * size) return next.map(() => 0);
    next = unit(next);
    const moved = norm(next.map((value, i) => value - at(vector, i)));
    vector = next;
    if (moved < CLOSE_ENOUGH) break;
  }
  return vector;
}

function times(matrix: Matrix, vector: readonly number[]): number[] {
  return matrix.map((row) => dot(row, vector));
}
