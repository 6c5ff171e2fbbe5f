// The system behind the jobs: what is in use of what there is, and what is not as it should be.
import { html } from "../vendor/preact.js";
import { usePoll } from "../lib/api.js";
import { ago, count, seconds } from "../lib/format.js";
import { Heading, Table, Tile, Waiting } from "../lib/ui.js";

const Share = ({ used, most, unit = "", label }) =>
  html`${count(used)}${most ? html` <small class="quiet">of ${count(most)}${unit}</small><br /><meter min="0" max=${most} value=${used} high=${most * 0.8} optimum="0" aria-label=${label}></meter>` : html`<small class="quiet">${unit}</small>`}`;

export function System() {
  const { data, error } = usePoll("v1/system", 5000);
  if (!data) return html`<div><${Heading} name="System" /><${Waiting} error=${error} /></div>`;
  const { concurrency, warm, cache } = data;
  const problems = Object.entries(data.problems);
  const about = [
    ["Version", data.version],
    ["Up for", ago(data.started_at, data.now)],
    ["This token may", data.role === "operator" ? "look and act" : "only look"],
    [
      "Actor function",
      `${data.function.name}, ${data.function.memory_mb} MB, at most ${seconds(data.function.timeout_s)} a call`,
    ],
    [
      "Kept warm",
      [
        warm.most ? `at most ${count(warm.most)} are provisioned` : "",
        warm.pinged ? "idle ones are pinged" : "",
      ]
        .filter(Boolean)
        .join("; ") || "nothing",
    ],
    ["Reserved concurrency", concurrency.reserved === null ? "none" : count(concurrency.reserved)],
    ["Cache", cache ? `version ${cache.version}` : "does not answer"],
    ["Learner is billed as", data.learner_instance],
    ["Prices", data.price_table],
    [
      "Bill goes by",
      data.clock === "wall" ? "time that passes" : "time that the rounds would take on AWS",
    ],
    ["Files", data.artifacts],
  ];
  return html`<div><${Heading} name="System" /><${Waiting} data=${data} error=${error} />
    ${problems.length ? html`<div class="note bad" role="alert">${problems.map(([name, why]) => html`<div>${name}: ${why}</div>`)}</div>` : html`<p class="note"><span class="status succeeded">ready</span> Everything the scaler needs is there.</p>`}
    <dl class="tiles">
      <${Tile} name="Invocations in flight"><${Share} used=${concurrency.in_flight} most=${concurrency.limit} label="share of the concurrency in use" /><//>
      <${Tile} name="Warm environments"><${Share} used=${warm.ready} most=${warm.most} label="share of the most warm environments" /><//>
      <${Tile} name="Cache memory">${cache ? html`<${Share} used=${cache.used_mb} most=${cache.most_mb} unit=" MB" label="share of the cache in use" />` : "away"}<//>
      ${Object.entries(data.jobs).map(([status, n]) => html`<${Tile} name=${`Jobs ${status}`}>${count(n)}<//>`)}
    </dl>
    <${Table} caption="The system" rows=${about} columns=${[
      { name: "What", of: ([name]) => name },
      { name: "Is", of: ([, value]) => value },
    ]} /></div>`;
}
