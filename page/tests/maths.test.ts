import { describe, expect, it } from "vitest";

import { bestCount, clusters, silhouette } from "../src/maths/clusters.ts";
import { pca } from "../src/maths/pca.ts";
import { perplexityFor, tsne } from "../src/maths/tsne.ts";
import { cosine, mix, norm, pairs, shares } from "../src/maths/vectors.ts";

/** Numbers without order and always the same (Park and Miller, 1988). */
function noise(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 48271) % 2147483647;
    return state / 2147483647 - 0.5;
  };
}

/** Three groups of points around the first three axes. */
function groups(each: number, dimensions = 20): number[][] {
  const next = noise(7);
  return Array.from({ length: 3 * each }, (_, i) =>
    Array.from({ length: dimensions }, (_, d) => (d === i % 3 ? 10 : 0) + next()),
  );
}

describe("vectors", () => {
  it("measures angles", () => {
    expect(cosine([1, 0], [0, 2])).toBe(0);
    expect(cosine([1, 1], [3, 3])).toBeCloseTo(1, 12);
    expect(cosine([1, 2], [-1, -2])).toBeCloseTo(-1, 12);
    expect(cosine([3, 4], [4, 3])).toBeCloseTo(24 / 25, 12);
    expect(cosine([0, 0], [1, 1])).toBe(0);
  });

  it("does not care about lengths", () => {
    const next = noise(3);
    const [a, b] = [0, 1].map(() => Array.from({ length: 9 }, next)) as [number[], number[]];
    expect(cosine(a.map((v) => v * 7), b)).toBeCloseTo(cosine(a, b), 12);
  });

  it("mixes layers as the formula says", () => {
    const layers = [[[1, 2]], [[10, 20]], [[100, 200]]];
    expect(mix(layers, [1, 0.5, 0.25])).toEqual([[31, 62]]);
  });

  it("makes shares", () => {
    expect(shares([1, 3])).toEqual([0.25, 0.75]);
    expect(shares([0, 0])).toEqual([0.5, 0.5]);
  });

  it("compares all pairs", () => {
    expect(pairs([[1, 0]], [[2, 0], [0, 2]], cosine)).toEqual([[1, 0]]);
  });
});

describe("principal components", () => {
  it("of points on a line are their positions on it", () => {
    const found = pca([[0, 0, 0], [1, 2, 2], [2, 4, 4], [5, 10, 10]]);
    const x = found.coordinates.map(([first]) => first as number);
    expect(x.map((value) => value - (x[0] as number))).toEqual([
      expect.closeTo(0, 9), expect.closeTo(3, 9), expect.closeTo(6, 9), expect.closeTo(15, 9),
    ]);
    expect(found.shares[0]).toBeCloseTo(1, 9);
    expect(found.shares[1]).toBeCloseTo(0, 9);
  });

  it("keep distances of points in a plane", () => {
    const points = [[0, 0, 5], [3, 0, 5], [0, 4, 5], [3, 4, 5]];
    const { coordinates } = pca(points);
    const side = (i: number, j: number) =>
      norm([0, 1].map((d) => (coordinates[i]?.[d] ?? 0) - (coordinates[j]?.[d] ?? 0)));
    expect([side(0, 1), side(0, 2), side(0, 3)]).toEqual([
      expect.closeTo(3, 6), expect.closeTo(4, 6), expect.closeTo(5, 6),
    ]);
  });

  it("of one point, or of equal ones, are zero", () => {
    expect(pca([[1, 2]]).coordinates).toEqual([[0, 0]]);
    expect(pca([[1, 2], [1, 2]]).coordinates.flat().map(Math.abs)).toEqual([0, 0, 0, 0]);
  });
});

describe("t-SNE", () => {
  it("gives the same map again", () => {
    const points = groups(5);
    expect(tsne(points)).toEqual(tsne(points.map((row) => [...row])));
  });

  it("keeps groups together", () => {
    const map = tsne(groups(8));
    const distance = (i: number, j: number) =>
      Math.hypot(...[0, 1].map((d) => (map[i]?.[d] ?? 0) - (map[j]?.[d] ?? 0)));
    map.forEach((_, i) => {
      const order = map.map((_, j) => j).filter((j) => j !== i);
      order.sort((a, b) => distance(i, a) - distance(i, b));
      expect(order.slice(0, 4).every((j) => j % 3 === i % 3)).toBe(true);
    });
  });

  it("takes any number of points", () => {
    for (const count of [1, 2, 3, 4]) {
      const map = tsne(groups(2).slice(0, count));
      expect(map).toHaveLength(count);
      expect(map.flat().every(Number.isFinite)).toBe(true);
    }
    expect(tsne([[1, 1], [1, 1], [1, 1], [1, 1]]).flat().every(Number.isFinite)).toBe(true);
    expect([perplexityFor(3), perplexityFor(1000)]).toEqual([1, 30]);
  });
});

describe("clusters", () => {
  it("are the groups that the points were made of", () => {
    expect(clusters(groups(4), 3)).toEqual(Array.from({ length: 12 }, (_, i) => i % 3));
  });

  it("are as many as there are groups", () => {
    expect(bestCount(groups(6))).toBe(3);
    expect(bestCount([[1, 0], [0, 1]])).toBe(1);
    expect(bestCount([])).toBe(1);
  });

  it("have a silhouette", () => {
    const score = (vectors: number[][], found: number[]) =>
      silhouette(pairs(vectors, vectors, cosine), found);
    expect(score([[1, 0], [1, 0], [0, 1], [0, 1]], [0, 0, 1, 1])).toBeCloseTo(1, 12);
    expect(score([[1, 0], [0, 1], [1, 0], [0, 1]], [0, 0, 1, 1])).toBeLessThan(0);
    expect(score([[1, 0], [1, 0]], [0, 0])).toBe(0);
  });
});
