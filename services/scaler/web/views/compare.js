// Any number of runs together: those of one setting, a seed each, are a mean with a band.
import { html, useMemo, useRef, useState } from "../vendor/preact.js";
import { call, useRepeated, usePoll } from "../lib/api.js";
import { Chart, smoothed } from "../lib/chart.js";
import { count, number, seconds, usd, words } from "../lib/format.js";
import { AXES, follow, nothing, placesOf } from "../lib/rounds.js";
import { Choice, Heading, Status, Table, Waiting, isLive, link, useBillName } from "../lib/ui.js";
import { flat } from "./files.js";

const POINTS = 200;
const MOST_NAMED = 3;
const COLOURS = 8;
const SHOWN_EVERY_MS = 500;
/** Requests that a browser sends to one server side by side. */
const AT_ONCE = 6;
const MOST_LISTED = 8;
const APART = ["seed", "name", "tags", "note"];
/** A sweep gives each of its jobs a cap of its own. */
const CAP = "stop.budget_usd";

/** Return a run as it is now: of one that is known, only what is new is fetched. */
async function refreshed(run, id, signal) {
  if (run && !isLive(run.job.status)) return run;
  const job = (await call(`v1/jobs/${encodeURIComponent(id)}`, { signal })).data;
  const kept = run?.kept || nothing(id);
  await follow(kept, signal);
  return { job, kept, rounds: { ...kept } };
}

function useRuns(ids) {
  const [seen, set] = useState({});
  const known = useRef({});
  const key = ids.join();
  useRepeated(
    async (signal) => {
      try {
        const waiting = [...ids];
        let shownAt = Date.now();
        const follower = async () => {
          for (let id; (id = waiting.shift());) {
            known.current[id] = await refreshed(known.current[id], id, signal);
            if (Date.now() - shownAt < SHOWN_EVERY_MS) continue;
            shownAt = Date.now();
            set({ key, runs: ids.map((one) => known.current[one]).filter(Boolean) });
          }
        };
        await Promise.all(Array.from({ length: AT_ONCE }, follower));
        const runs = ids.map((id) => known.current[id]);
        set({ key, runs });
        return runs.every((run) => !isLive(run.job.status));
      } catch (error) {
        if (!signal.aborted) set((old) => ({ ...(old.key === key && old), key, error }));
        return error.status === 404;
      }
    },
    10000,
    [key],
  );
  return seen.key === key ? seen : {};
}

/** Return what a run was asked to do, switches of its scaling included. */
const asked = ({ spec, switches }) => ({
  ...spec,
  switches: switches.map(({ round, scaling }) => ({ round, scaling })),
});

/** Return runs by setting: by what they were asked to do, seeds, names and caps apart. */
function settingsOf(runs) {
  const groups = new Map();
  for (const run of runs) {
    const whole = asked(run.job);
    const apart = Object.fromEntries(APART.map((field) => [field, null]));
    // By the values themselves: a long list is told by its length alone.
    const key = JSON.stringify({ ...whole, ...apart, stop: { ...whole.stop, budget_usd: null } });
    const fields = flat(whole).filter(([field]) => !isApart(field));
    if (!groups.has(key)) groups.set(key, { fields: new Map(fields), members: [] });
    groups.get(key).members.push(run);
  }
  const all = [...groups.values()];
  const fields = differing(all.map((group) => group.fields));
  return all.map(({ members }, i) => ({
    members,
    label: labelOf(members, fields, i),
    differs: fields.map(([field, texts]) => [field, texts[i]]),
  }));
}

const isApart = (field) => field === CAP || APART.includes(field.split(".")[0]);

/** Name a group by the values in which it differs from the others, or by its environment. */
function labelOf(members, fields, index) {
  const { spec, job_id } = members[0].job;
  if (members.length === 1 && (spec.name || !fields.length)) return spec.name || job_id;
  const set = fields.filter(([, texts]) => texts[index] !== "–");
  const values = set
    .slice(0, MOST_NAMED)
    .map(([field, texts]) => `${words(field.split(".").at(-1))} ${texts[index]}`);
  const more = set.length > MOST_NAMED ? ", …" : "";
  const name = values.join(", ") + more || spec.env_id;
  return members.length > 1 ? `${name}, ${members.length} seeds` : name;
}

/** Return a run's value at each x, between its rounds on a line; null where it has none. */
function resampled(xs, values, grid) {
  const known = values
    .map((value, i) => [xs[i], value])
    .filter(([, value]) => value !== null && value !== undefined);
  let i = 0;
  return grid.map((x) => {
    while (i + 1 < known.length && known[i + 1][0] < x) i += 1;
    const [a, b] = [known[i], known[Math.min(i + 1, known.length - 1)]];
    if (!a || x < known[0][0] || x > known.at(-1)[0]) return null;
    return b[0] === a[0] ? a[1] : a[1] + ((b[1] - a[1]) * (x - a[0])) / (b[0] - a[0]);
  });
}

/** Return `{x, lines, bands}` of a column over an axis. */
function together(groups, column, axis, smoothing) {
  const runOf = (places, { columns }) => ({
    xs: places[axis],
    values: smoothed(places[column] || columns[column] || [], smoothing),
  });
  const placed = groups.map(({ members, label }) => ({
    label,
    runs: members.map(({ job, rounds }) => runOf(placesOf(rounds, job), rounds)),
  }));
  const most = Math.max(...placed.flatMap(({ runs }) => runs.map(({ xs }) => xs.at(-1) ?? 0)));
  const x = Array.from({ length: POINTS + 1 }, (_, i) => (most * i) / POINTS);
  const lines = [];
  const bands = [];
  placed.forEach(({ label, runs }, index) => {
    const colour = `--c${(index % COLOURS) + 1}`;
    const dash = Math.floor(index / COLOURS) % 2 === 1;
    const each = runs.map(({ xs, values }) => resampled(xs, values, x));
    const some = each.filter((values) => values.some((value) => value !== null));
    // A mean over fewer and fewer seeds would jump where one ends: it ends with the first.
    const of = (make) =>
      x.map((_, i) =>
        some.length && some.every((values) => values[i] !== null)
          ? make(some.map((values) => values[i]))
          : null,
      );
    lines.push({ label, colour, dash, values: of(mean) });
    if (runs.length < 2) return;
    lines.push({
      label: `${label} lowest`,
      colour,
      faint: true,
      unnamed: true,
      values: of((all) => Math.min(...all)),
    });
    lines.push({
      label: `${label} highest`,
      colour,
      faint: true,
      unnamed: true,
      values: of((all) => Math.max(...all)),
    });
    bands.push([lines.length - 1, lines.length, colour]);
  });
  return { x, lines, bands };
}

const mean = (values) => values.reduce((a, b) => a + b, 0) / values.length;

/** Return the fields, and their values in each of some maps, that are not the same in all. */
function differing(columns) {
  const fields = [...new Set(columns.flatMap((column) => [...column.keys()]))];
  return fields
    .map((field) => [field, columns.map((column) => column.get(field) ?? "–")])
    .filter(([, values]) => new Set(values).size > 1);
}

function Chosen({ ids, runs }) {
  const { data } = usePoll("v1/jobs?limit=200", 10000);
  const others = (data?.jobs || []).filter((job) => !ids.includes(job.job_id));
  const names = new Map(runs?.map(({ job }) => [job.job_id, job.spec.name]));
  const named = (id) => names.get(id) || id;
  const add = (id) => id && (location.hash = link("compare", ...ids, id));
  const tags = html`<div class="bar">${ids.map((id) => html`<a class="tag" href=${link("compare", ...ids.filter((one) => one !== id))} title=${id} aria-label=${`Leave out ${named(id)}`}>${named(id)} ×</a>`)}</div>`;
  return html`<div>${ids.length > MOST_LISTED ? html`<details><summary>${ids.length} runs</summary>${tags}</details>` : tags}
    ${others.length > 0 && html`<div class="bar"><${Choice} label="Add a run" value="" options=${[["", "choose …"], ...others.map((job) => [job.job_id, `${job.name || job.job_id} (${job.env_id}, seed ${job.seed})`])]} onChange=${add} /></div>`}</div>`;
}

/** Return the columns of a table of settings: what each came to, and the fields that set it apart. */
function settingColumns(settings, bill) {
  const returns = ({ members }) =>
    members.map(({ job }) => job.progress.last_return).filter((value) => value !== null);
  const of = (make) => (setting) => (returns(setting).length ? make(returns(setting)) : null);
  const spent = ({ members }) => members.reduce((sum, { job }) => sum + job.spent_usd, 0);
  const column = (name, make) => ({ name, number: true, of: (s) => number(make(s)), sort: make });
  return [
    {
      name: "Setting",
      of: ({ label }) => html`<div class="setting">${label}</div>`,
      sort: ({ label }) => label,
    },
    { name: "Runs", number: true, of: ({ members }) => members.length },
    column("Mean last return", of(mean)),
    column(
      "Lowest",
      of((all) => Math.min(...all)),
    ),
    column(
      "Highest",
      of((all) => Math.max(...all)),
    ),
    { name: bill, number: true, of: (setting) => usd(spent(setting)), sort: spent },
    ...(settings[0]?.differs || []).map(([field], i) => ({
      name: field,
      of: ({ differs }) => differs[i][1],
    })),
  ];
}

export function Compare({ parts }) {
  const ids = [...new Set(parts.filter(Boolean))];
  const [axis, setAxis] = useState("steps");
  const bill = useBillName();
  const [smoothing, setSmoothing] = useState(0.6);
  const { runs, error } = useRuns(ids);
  const settings = useMemo(() => settingsOf(runs || []), [runs]);
  const charts = useMemo(() => {
    const begun = settings.map((setting) => ({
      ...setting,
      members: setting.members.filter((run) => run.rounds.columns.round.length),
    }));
    const groups = begun.filter(({ members }) => members.length);
    if (!groups.length) return [];
    return [
      ["Return in training", "train_return", number, smoothing],
      ["Return in evaluations", "eval_return", number, 0],
      ["Actors per round", "actors", number, smoothing],
      ["Dollars", "usd", usd, 0],
    ]
      .map(([title, column, format, weight]) => ({
        title,
        format,
        ...together(groups, column, axis, weight),
      }))
      .filter(({ lines }) => lines.some((line) => line.values.some((value) => value !== null)));
  }, [settings, axis, smoothing]);
  return html`<div><${Heading} name="Compare" /><${Chosen} ids=${ids} runs=${runs} />
    ${ids.length === 0 ? html`<div class="card empty">Choose runs here, or tick them in the list of jobs.</div>` : html`<${Waiting} data=${runs?.length === ids.length && runs} error=${error}>Loading … ${runs?.length || 0} of ${ids.length} runs</${Waiting}>`}
    ${
      runs?.length > 0 &&
      html`<div class="bar"><${Choice} label="Along" value=${axis} options=${AXES} onChange=${setAxis} />
      <label class="choice"><span>Smoothing ${smoothing}</span><input type="range" min="0" max="0.95" step="0.05" value=${smoothing} onInput=${(e) => setSmoothing(+e.target.value)} /></label>
      <span class="quiet">Lines are means over seeds, as far as all of them are; bands go from the lowest seed to the highest.</span></div>
    <div class="grid">${charts.map((chart) => html`<${Chart} key=${chart.title} ...${chart} sync="compare" xLabel=${AXES.find(([key]) => key === axis)[1]} xFormat=${axis === "usd" ? usd : count} />`)}</div>
    <h2>Settings</h2>
    <${Table} caption="Settings" rows=${settings} keyOf=${({ members }) => members[0].job.job_id} columns=${settingColumns(settings, bill)} />
    <h2>Runs</h2>
    <${Table} caption="Results of the runs" rows=${runs} keyOf=${({ job }) => job.job_id} columns=${[
      {
        name: "Run",
        of: ({ job }) =>
          html`<a href=${link("jobs", job.job_id)}>${job.spec.name || job.job_id}</a>`,
      },
      { name: "State", of: ({ job }) => html`<${Status} job=${job} />` },
      { name: "Seed", number: true, of: ({ job }) => job.spec.seed },
      {
        name: "Last return",
        number: true,
        of: ({ job }) => number(job.progress.last_return),
        sort: ({ job }) => job.progress.last_return,
      },
      {
        name: "Best return",
        number: true,
        of: ({ job }) => number(job.progress.best_return),
        sort: ({ job }) => job.progress.best_return,
      },
      { name: "Steps", number: true, of: ({ job }) => count(job.progress.env_steps) },
      {
        name: bill,
        number: true,
        of: ({ job }) => usd(job.spent_usd),
        sort: ({ job }) => job.spent_usd,
      },
      {
        name: "In rounds",
        number: true,
        of: ({ job, rounds }) => seconds(placesOf(rounds, job).seconds.at(-1) ?? null),
      },
    ]} />`
    }</div>`;
}
