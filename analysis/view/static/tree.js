// A match and its branches as a tree. Each is a line from the turn at which it leaves its parent to its end.
import { html, matchAt, number, short } from "./lib.js";

const ROW = 26, LEFT = 150, STEP = 22;

export function Tree({ run, family, at }) {
  if (family.length < 2) return null;
  const below = new Map(family.map((one) => [one.match, []]));
  family.forEach((one) => below.get(one.parent)?.push(one));
  const rows = [], walk = (one, depth) => { rows.push({ ...one, depth }); below.get(one.match).forEach((next) => walk(next, depth + 1)); };
  walk(family.find((one) => !below.has(one.parent)) || family[0], 0);
  const line = new Map(rows.map((one, k) => [one.match, k])), longest = Math.max(...rows.map((one) => one.turns));
  const x = (turn) => LEFT + turn * STEP, y = (k) => 16 + k * ROW;
  return html`<section class="tree" aria-label="Branches"><h2>Branches</h2><div class="scroll">
    <svg viewBox="0 0 ${x(longest) + 130} ${rows.length * ROW + 10}" width=${x(longest) + 130} height=${rows.length * ROW + 10} role="img" aria-label="${rows.length} matches that share a beginning">
    ${rows.map((one, k) => {
      const start = one.parent && line.has(one.parent) ? one.parent_turn : 0;
      return html`<g class="branch ${one.match === at ? "at" : ""}">
        ${start > 0 || (one.parent && line.has(one.parent)) ? html`<path d="M${x(start)} ${y(line.get(one.parent))}V${y(k)}" />` : null}
        <path d="M${x(start)} ${y(k)}H${x(Math.max(one.turns, start))}" />
        ${Array.from({ length: Math.max(0, one.turns - start) }, (_, n) => html`<circle cx=${x(start + n + 1)} cy=${y(k)} r="3.5" />`)}
        <a href=${matchAt(run, one.match)}><text x="4" y=${y(k) + 4}>${short(one.match, 20)}</text></a>
        <text class="quiet" x=${x(one.turns) + 12} y=${y(k) + 4}>${one.status === "failed" ? "failed" : `paid ${number(one.paid)}`}</text></g>`;
    })}</svg></div></section>`;
}
