// The matches in progress, with the last speech of each; refreshed every second while the run is live.
import { api, count, html, matchAt, short, useData } from "./lib.js";

const EVERY = 1000;

export function Flight({ run, version, most = 12 }) {
  const { data } = useData(`${api(run)}/flight`, version, (told) => (told.live ? EVERY : 0));
  if (!data || !data.total) return null;
  return html`<section class="flight" aria-label="Matches in flight"><h2>In flight <span class="live">${count(data.total)}</span></h2>
    <ul>${data.matches.slice(0, most).map((one) => html`<li key=${one.match}>
      <a href=${matchAt(run, one.match)}>${one.match}</a> <span class="quiet">turn ${one.turns}</span>
      ${one.turns > 0 && html`<p><span class="quiet"><bdi>${short(one.seat, 20)}</bdi></span> <bdi>${short(one.said, 90)}</bdi></p>`}</li>`)}</ul>
    ${data.total > most && html`<p class="quiet">and ${count(data.total - most)} more</p>`}</section>`;
}
