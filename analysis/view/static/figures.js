// Results of a run: a sentence, figures of the first and last iteration, and the payoffs of two sides.
import { api, Complaint, count, html, number, short, useData } from "./lib.js";
import { Trail } from "./runs.js";

const WIDE = 360, TALL = 280, EDGE = 44;

const Verdict = ({ row }) => html`<span class="verdict ${row.verdict}">${row.arrow}${row.word && ` ${row.word}`}</span>`;

const Tile = ({ row }) => html`<section class="card tile ${row.verdict}"><h2 title=${row.key}>${row.name}</h2>
  <p class="big"><span class="quiet">${row.first} →</span> ${row.last}</p>
  <p><${Verdict} row=${row} /> <b>${row.moved}</b>${row.moved_spread && html` <span class="quiet">95 %: ${row.moved_spread}</span>`}</p></section>`;

function Table({ rows, label }) {
  const spread = (text) => text && html`<small>${text}</small>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${label}><table class="figures">
    <thead><tr><th>Figure</th><th class="way">By iteration</th><th class="n">First</th><th class="n">Last</th>${rows[0].moved !== undefined && html`<th class="n">Difference</th>`}</tr></thead>
    <tbody>${rows.map((row) => html`<tr><th scope="row" title=${row.key}>${row.name}</th><td class="way"><${Trail} values=${row.trail} width=${90} height=${24} /></td>
      <td class="n">${row.first}${spread(row.first_spread)}</td><td class="n">${row.last}${spread(row.last_spread)}</td>
      ${row.moved !== undefined && html`<td class="n"><${Verdict} row=${row} /> ${row.moved}${spread(row.moved_spread)}</td>`}</tr>`)}</tbody></table></div>`;
}

/** Scale of one axis: positions of values, with a margin at both ends, and round numbers as ticks. */
function side(values, from, to) {
  const low = Math.min(...values), high = Math.max(...values), pad = (high - low || Math.abs(high) || 1) * 0.1;
  const [a, b] = [low - pad, high + pad], power = 10 ** Math.floor(Math.log10((b - a) / 5));
  const step = [1, 2, 5, 10].map((f) => f * power).find((s) => (b - a) / s <= 6), ticks = [];
  for (let k = Math.ceil(a / step); k * step <= b; k += 1) ticks.push(k * step);
  return { at: (v) => from + ((v - a) / (b - a)) * (to - from), ticks };
}

/** Outcomes of the first iteration (rings) and the last (discs); larger ones stand for more matches. */
function Outcomes({ told }) {
  const every = [...told.clouds.flatMap((c) => c.places), ...told.front, ...told.theory.map((t) => t.slice(1))];
  const x = side(every.map((p) => p[0]), EDGE, WIDE - 10), y = side(every.map((p) => p[1]), TALL - EDGE, 10);
  const kinds = told.clouds.length > 1 ? ["ring", "disc"] : ["disc"];
  return html`<figure class="chart"><figcaption><b>Outcomes</b></figcaption><svg class="drawing" viewBox="0 0 ${WIDE} ${TALL}" role="img" aria-label="what both sides were paid">
    <path class="grid" d=${y.ticks.map((v) => `M${EDGE} ${y.at(v)}H${WIDE - 10}`).join("") + x.ticks.map((v) => `M${x.at(v)} 10V${TALL - EDGE}`).join("")} />
    ${y.ticks.map((v) => html`<text x=${EDGE - 6} y=${y.at(v) + 4} text-anchor="end">${number(v)}</text>`)}
    ${x.ticks.map((v) => html`<text x=${x.at(v)} y=${TALL - EDGE + 16} text-anchor="middle">${number(v)}</text>`)}
    ${told.front.length > 1 && html`<path class="front" d=${`M${told.front.map(([a, b]) => `${x.at(a)} ${y.at(b)}`).join("L")}`} />`}
    ${told.clouds.map((cloud, k) => cloud.places.map(([a, b, share]) => html`<circle class=${kinds[k]} cx=${x.at(a)} cy=${y.at(b)} r=${3 + 16 * Math.sqrt(share)}>
      <title>${`iteration ${cloud.iteration}: ${number(a)} and ${number(b)}, ${number(share, true)} of the matches`}</title></circle>`))}
    ${told.theory.map(([label, a, b]) => html`<path class="cross" d=${`M${x.at(a) - 5} ${y.at(b)}h10M${x.at(a)} ${y.at(b) - 5}v10`} />
      <text class="over" x=${x.at(a) + (x.at(a) > WIDE / 2 ? -9 : 9)} y=${y.at(b) - 4} text-anchor=${x.at(a) > WIDE / 2 ? "end" : "start"}>${label}</text>`)}
    <text x=${WIDE / 2} y=${TALL - 8} text-anchor="middle">payoff of ${short(told.sides[0], 30)}</text>
    <text transform="translate(11 ${(TALL - EDGE) / 2}) rotate(-90)" text-anchor="middle">payoff of ${short(told.sides[1], 30)}</text></svg>
    <p class="quiet">${kinds.length > 1 ? `Rings: iteration ${told.clouds[0].iteration}; discs` : "Discs"}: iteration ${told.clouds[told.clouds.length - 1].iteration}; larger ones stand for more matches.</p></figure>`;
}

export function Figures({ run, version }) {
  const { data, error } = useData(`${api(run)}/summary`, version);
  if (!data) return html`<${Complaint} line=${error} />${!error && html`<p class="quiet" role="status">reading …</p>`}`;
  const rows = data.rows.slice(0, data.shown), more = data.rows.slice(data.shown);
  return html`<p class="lead">${data.sentence}</p>
    <p class="quiet">${count(data.iterations)} iterations, ${count(data.matches)} matches (${count(data.failed)} failed), ${count(data.turns)} turns${data.games.length ? ` of ${data.games.join(", ")}` : ""}.</p>
    ${rows.length > 0 && html`<div class="tiles">${rows.slice(0, data.tiles).map((row) => html`<${Tile} key=${row.key} row=${row} />`)}</div>
      <${Table} rows=${rows} label="figures, first and last iteration" />
      <p class="quiet">Means of the first and the last iteration with 95 % intervals; panel figures are of the first and the last evaluation. ▲ up, ▼ down, ≈ within noise. Point at a name for its key.</p>`}
    ${more.length > 0 && html`<details><summary>${count(data.rows_in_all - rows.length)} more figures of the matches${data.rows_in_all > data.rows.length ? `, the first ${more.length} of them` : ""}</summary><${Table} rows=${more} label="more figures" /></details>`}
    ${data.learning.length > 0 && html`<details><summary>${count(data.learning_in_all)} metrics of learning, league and speed${data.learning_in_all > data.learning.length ? `, the first ${data.learning.length} of them` : ""}</summary>
      <${Table} rows=${data.learning} label="metrics of learning, league and speed" /></details>`}
    ${data.outcomes && html`<${Outcomes} told=${data.outcomes} />`}`;
}
