// Two matches side by side, of one run or of two.
import { html, matchAt } from "./lib.js";
import { MatchView } from "./match.js";

export function Pair({ route, versions }) {
  const [, runA, a, runB, b] = route.parts;
  return html`<div class="head"><h1>Two matches</h1></div><div class="two">${[[runA, a], [runB, b]].map(([run, id]) => html`<section>
    <h2><a href=${matchAt(run, id)}>${id}</a> <span class="quiet">${run}</span></h2>
    <${MatchView} key=${`${run}/${id}`} run=${run} id=${id} version=${versions[run]} single=${true} alone=${false} /></section>`)}</div>`;
}
