// The league as a graph: an arrow from a policy to one that it beats significantly, else a thin line.
import { api, Complaint, count, html, number, short, signed, to, useData, useState } from "./lib.js";
import { shade } from "./charts.js";

const SIZE = 460, MARGIN = 88;

function places(nodes) {
  const radius = (SIZE - 2 * MARGIN) / 2, around = nodes.length;
  return new Map(nodes.map((node, k) => {
    const angle = (2 * Math.PI * k) / around - Math.PI / 2;
    return [node.name, around === 1 ? [SIZE / 2, SIZE / 2] : [SIZE / 2 + radius * Math.cos(angle), SIZE / 2 + radius * Math.sin(angle)]];
  }));
}

function Arrow({ edge, at, size, focus }) {
  const sure = edge.ahead[1] > 0 || edge.ahead[2] < 0, forth = edge.ahead[0] >= 0;
  const [winner, loser] = forth ? [edge.one, edge.other] : [edge.other, edge.one];
  const [x1, y1] = at.get(winner), [x2, y2] = at.get(loser), d = Math.hypot(x2 - x1, y2 - y1) || 1;
  const cut = (name) => size(name) + 5, ux = (x2 - x1) / d, uy = (y2 - y1) / d;
  const dim = focus && focus !== edge.one && focus !== edge.other;
  return html`<line class="edge ${sure ? "sure" : ""} ${dim ? "dim" : ""}" x1=${x1 + ux * cut(winner)} y1=${y1 + uy * cut(winner)}
    x2=${x2 - ux * cut(loser)} y2=${y2 - uy * cut(loser)} marker-end=${sure ? "url(#arrow)" : undefined}>
    <title>${`${winner} is ${number(Math.abs(edge.ahead[0]))} ahead of ${loser} (${number(edge.ahead[1])} to ${number(edge.ahead[2])}), ${edge.matches} matches`}</title></line>`;
}

/** Table of the row policy's mean payoff with the column policy, sorted by α-rank. */
function Matrix({ told }) {
  const bound = Math.max(0, ...told.cells.flat().map((v) => Math.abs(v ?? 0)));
  return html`<div class="scroll" tabindex="0" role="region" aria-label="mean payoff of row with column"><table class="matrix">
    <caption>Mean payoff of row with column${told.shares ? "; α is the row policy's share under α-rank" : ""}${told.left_out ? `; ${told.left_out} more left out` : ""}</caption>
    <thead><tr><td></td>${told.shares && html`<th class="n">α</th>`}${told.names.map((name, k) => html`<th class="n" title=${name}>${k + 1}</th>`)}</tr></thead>
    <tbody>${told.names.map((name, k) => html`<tr><th scope="row">${k + 1} ${short(name, 30)}</th>${told.shares && html`<td class="n">${told.shares[k].toFixed(2)}</td>`}
      ${told.cells[k].map((value) => html`<td class="n ${shade(value, bound)}">${value === null ? "" : number(value)}</td>`)}</tr>`)}</tbody></table></div>`;
}

export function League({ run, version }) {
  const { data, error } = useData(`${api(run)}/league`, version);
  const [focus, setFocus] = useState("");
  if (!data) return html`<${Complaint} line=${error} /><p class="quiet">reading …</p>`;
  const nodes = [...data.nodes].sort((a, b) => (b.rating?.[0] ?? -1e9) - (a.rating?.[0] ?? -1e9));
  const most = Math.max(1, ...nodes.map((n) => n.matches)), at = places(nodes);
  const by = new Map(nodes.map((node) => [node.name, node])), size = (name) => 7 + 13 * Math.sqrt(by.get(name).matches / most);
  const edges = data.edges.filter((edge) => at.has(edge.one) && at.has(edge.other));
  return html`<div class="pairwise">
    <svg class="graph" viewBox="0 0 ${SIZE} ${SIZE}" role="img" aria-label="Who is ahead of whom">
      <defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8Z" class="tip" /></marker></defs>
      ${edges.map((edge) => html`<${Arrow} edge=${edge} at=${at} size=${size} focus=${focus} />`)}
      ${nodes.map((node) => {
        const [x, y] = at.get(node.name), left = x < SIZE / 2 - 5, middle = Math.abs(x - SIZE / 2) <= 5;
        const out = size(node.name) + 7;
        return html`<g tabindex="0" class="node ${node.learns ? "learns" : ""}" onFocus=${() => setFocus(node.name)} onBlur=${() => setFocus("")}
          onMouseEnter=${() => setFocus(node.name)} onMouseLeave=${() => setFocus("")}>
          <circle cx=${x} cy=${y} r=${size(node.name)}><title>${`${node.name}: ${count(node.matches)} matches`}</title></circle>
          <text x=${middle ? x : left ? x - out : x + out} y=${middle ? (y < SIZE / 2 ? y - out : y + out + 9) : y + 4}
            text-anchor=${middle ? "middle" : left ? "end" : "start"}>${short(node.name, 16)}</text></g>`;
      })}
    </svg>
    <div>
      <p>An arrow leads from a policy to one that it beats significantly (95 %); a grey line joins two policies without a significant difference. Discs are larger with more matches${
        nodes.some((n) => n.learns) ? ", and filled for learners" : ""}. Of ${count(data.matches)} matches, from iteration ${data.since} on.</p>
      ${data.rings.length > 0 && html`<p><b>A cycle:</b> ${data.rings[0].map((n) => short(n, 24)).join(" beats ")} beats ${short(data.rings[0][0], 24)}.</p>`}
      ${data.left_out > 0 && html`<p class="quiet">${count(data.left_out)} more with fewer matches are left out.</p>`}
      <div class="scroll"><table><thead><tr><th>Policy</th><th class="n">Matches</th><th class="n">Rating</th></tr></thead><tbody>
        ${nodes.map((node) => html`<tr class=${focus === node.name ? "at" : ""}><th scope="row"><a href=${to(["run", run, "matches"], { policy: node.name })}>${short(node.name, 30)}</a></th>
          <td class="n">${count(node.matches)}</td><td class="n">${node.rating ? html`${number(node.rating[0])} <span class="quiet">± ${number(node.rating[1])}</span>` : "–"}</td></tr>`)}</tbody></table></div>
      ${edges.length > 0 && html`<details><summary>All pairs</summary><div class="scroll"><table><thead><tr><th>Pair</th><th class="n">Ahead by</th><th class="n">95 %</th><th class="n">Matches</th></tr></thead>
        <tbody>${edges.map((e) => html`<tr><td>${short(e.one, 24)} – ${short(e.other, 24)}</td><td class="n">${signed(e.ahead[0])}</td>
          <td class="n">${number(e.ahead[1])} to ${number(e.ahead[2])}</td><td class="n">${count(e.matches)}</td></tr>`)}</tbody></table></div></details>`}
    </div></div>
    ${data.matrix && html`<${Matrix} told=${data.matrix} />`}`;
}
