/** Groups of vectors by direction: deterministic spherical k-means, and how many groups to make. */

import { at, cosine, dot, mean, pairs, unit, type Matrix } from "./vectors.ts";

const TURNS = 50;
export const MOST_CLUSTERS = 6;

/** The group of each vector, numbered in the order in which they first appear. */
export function clusters(vectors: Matrix, count: number): number[] {
  const points = vectors.map(unit);
  if (count <= 1 || points.length <= 1) return points.map(() => 0);
  let centres = farthest(points, Math.min(count, points.length));
  let groups: number[] = [];
  for (let turn = 0; turn < TURNS; turn++) {
    const next = points.map((point) => closest(point, centres));
    if (next.every((group, i) => group === groups[i])) break;
    groups = next;
    centres = centres.map((centre, c) => {
      const members = points.filter((_, i) => groups[i] === c);
      return members.length === 0 ? centre : unit(mean(members));
    });
  }
  return inOrder(groups);
}

/** The number of groups whose members are most alike, compared with the next group. */
export function bestCount(vectors: Matrix): number {
  const cosines = pairs(vectors, vectors, cosine);
  let best = { count: 1, score: 0 };
  for (let count = 2; count <= Math.min(MOST_CLUSTERS, vectors.length - 1); count++) {
    const score = silhouette(cosines, clusters(vectors, count));
    if (score > best.score + 1e-9) best = { count, score };
  }
  return best.count;
}

/** Mean silhouette, given the cosine of each pair of vectors: 1 for clear groups, 0 for none. */
export function silhouette(cosines: Matrix, groups: readonly number[]): number {
  const names = [...new Set(groups)];
  if (names.length < 2) return 0;
  const scores = cosines.map((row, i) => {
    const distances = names.map((name) => {
      const others = row.filter((_, j) => j !== i && groups[j] === name);
      const sum = others.reduce((total, other) => total + 1 - other, 0);
      return { own: groups[i] === name, alone: others.length === 0, value: sum / others.length };
    });
    const own = distances.find((distance) => distance.own);
    if (own === undefined || own.alone) return 0;
    const next = Math.min(...distances.filter((d) => !d.own).map((d) => d.value));
    const larger = Math.max(own.value, next);
    return larger === 0 ? 0 : (next - own.value) / larger;
  });
  return scores.reduce((a, b) => a + b, 0) / scores.length;
}

/** Initial centres: the point farthest from the mean, then repeatedly the one farthest from all. */
function farthest(points: Matrix, count: number): number[][] {
  const chosen: number[][] = [];
  let references: Matrix = [mean(points)];
  while (chosen.length < count) {
    const likeness = points.map((p) => Math.max(...references.map((other) => cosine(p, other))));
    chosen.push([...at(points, likeness.indexOf(Math.min(...likeness)))]);
    references = chosen;
  }
  return chosen;
}

function closest(point: readonly number[], centres: Matrix): number {
  const likeness = centres.map((centre) => dot(point, centre));
  return likeness.indexOf(Math.max(...likeness));
}

function inOrder(groups: readonly number[]): number[] {
  const names = [...new Set(groups)];
  return groups.map((group) => names.indexOf(group));
}
