// The system behind the jobs: what is in use of what there is, and what is not as it should be.
import { html } from "../vendor/preact.js";
import { usePoll } from "../lib/api.js";
import { count, number, seconds, words } from "../lib/format.js";
import { Heading, Table, Tile, Waiting } from "../lib/ui.js";

const Share = ({ used, most, unit = "", label }) =>
  html`${count(used)}${most ? html` <small class="quiet">of ${count(most)}${unit}</small><br /><meter min="0" max=${most} value=${used} high=${most * 0.8} optimum="0" aria-label=${label}></meter>` : html`<small class="quiet">${unit}</small>`}`;

/** What is known where finished runs alone are shown: what they are, and that nothing else is. */
const Folders = ({ data }) => html`<p class="note">Finished runs are shown, from their folders. No system is behind this page: nothing runs, and of actors, environments and the cache nothing is known. <code>nitro up</code> starts one on this machine.</p>
  <${Jobs} jobs=${Object.fromEntries(Object.entries(data.jobs).filter(([, n]) => n))} />
  <${About} rows=${[...common(data), ["Folder of the runs", data.artifacts]]} />`;

const Jobs = ({ jobs }) => html`<h2>Jobs</h2>
  <dl class="tiles">${Object.entries(jobs).map(([status, n]) => html`<${Tile} name=${status}>${count(n)}<//>`)}</dl>`;

const About = ({ rows }) => html`<h2>What it is</h2>
  <${Table} caption="The system" pairs rows=${rows} columns=${[
    { name: "What", of: ([name]) => name },
    { name: "Is", of: ([, value]) => value },
  ]} />`;

const common = (data) => [
  ["Version", data.version],
  ["Up for", seconds(Math.round(data.now - data.started_at))],
  ["This token may", data.role === "operator" ? "look and act" : "only look"],
];

const Processes = ({ rows }) => html`<h2>Processes on this machine</h2>
  <${Table} caption="Processes" rows=${rows} keyOf=${({ name }) => name} columns=${[
    { name: "Program", of: ({ name }) => name, sort: ({ name }) => name },
    { name: "Processes", number: true, of: (row) => count(row.count), sort: (row) => row.count },
    {
      name: "Cores in use",
      number: true,
      of: (row) => number(row.cpu_cores),
      sort: (row) => row.cpu_cores,
    },
    {
      name: "Memory",
      number: true,
      of: (row) => `${count(row.memory_mb)} MB`,
      sort: (row) => row.memory_mb,
    },
  ]} />`;

function Running({ data }) {
  const { concurrency, warm, cache } = data;
  const problems = Object.entries(data.problems);
  const about = [
    ...common(data),
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
  return html`${problems.length ? html`<div class="note bad" role="alert">${problems.map(([name, why]) => html`<div>${words(name)}: ${why}</div>`)}</div>` : html`<p class="note"><span class="status succeeded">ready</span> Everything the scaler needs is there.</p>`}
    <dl class="tiles">
      <${Tile} name="Invocations in flight"><${Share} used=${concurrency.in_flight} most=${concurrency.limit} label="share of the concurrency in use" /><//>
      <${Tile} name="Warm environments"><${Share} used=${warm.ready} most=${warm.most} label="share of the most warm environments" /><//>
      <${Tile} name="Cache memory">${cache ? html`<${Share} used=${cache.used_mb} most=${cache.most_mb} unit=" MB" label="share of the cache in use" />` : "away"}<//>
    </dl>
    <${Jobs} jobs=${data.jobs} />
    ${data.processes?.length > 0 && html`<${Processes} rows=${data.processes} />`}
    <${About} rows=${about} />`;
}

export function System() {
  const { data, error } = usePoll("v1/system", 5000);
  const View = data?.live === false ? Folders : Running;
  return html`<div><${Heading} name="System" /><${Waiting} data=${data} error=${error} />
    ${data && html`<${View} data=${data} />`}</div>`;
}
