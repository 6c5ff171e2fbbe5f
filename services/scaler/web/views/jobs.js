// All jobs: filter, sort, group, and a choice to compare, one by one or a whole group.
import { html, useMemo, useState } from "../vendor/preact.js";
import { call, useRepeated } from "../lib/api.js";
import { ago, count, number, words } from "../lib/format.js";
import { Budget, Choice, Heading, Status, Table, Waiting, isLive, link, useBillName } from "../lib/ui.js";

const PAGE = 200;
const STATES = ["", "running", "queued", "checking", "stopping", "succeeded", "stopped", "failed"];
const GROUPS = [
  ["", "no groups"],
  ["env_id", "environment"],
  ["algorithm", "algorithm"],
  ["scaling", "scaling policy"],
  ["name", "name"],
  ["tag", "tag"],
];

const groupsOf = (job, group) =>
  group === "tag"
    ? job.tags.length
      ? job.tags
      : ["no tag"]
    : [group ? job[group] || "no name" : ""];

const MOST_SETTINGS = 6;
const shown = (value) => (typeof value === "number" ? number(value) : String(value ?? "–"));

/** Return a column for each hyper-parameter that some jobs set otherwise than others do. */
function settings(jobs) {
  const names = [...new Set(jobs.flatMap((job) => Object.keys(job.hyperparameters)))].sort();
  return names
    .filter((name) => new Set(jobs.map((job) => String(job.hyperparameters[name]))).size > 1)
    .slice(0, MOST_SETTINGS)
    .map((name) => ({
      name: words(name),
      number: true,
      of: (job) => shown(job.hyperparameters[name]),
      sort: (job) => job.hyperparameters[name],
    }));
}

function columns(chosen, choose, bill, jobs) {
  const box = (
    job,
  ) => html`<input type="checkbox" aria-label=${`compare ${job.job_id}`} checked=${chosen.includes(job.job_id)} onChange=${() => choose(job.job_id)} />`;
  return [
    { name: "Pick", of: box },
    {
      name: "Job",
      of: (job) =>
        html`<a href=${link("jobs", job.job_id)}>${job.name || job.job_id}</a>${job.name && html`<br /><small class="quiet">${job.job_id}</small>`}${job.tags.map((tag) => html` <span class="tag">${tag}</span>`)}`,
      sort: (job) => job.name || job.job_id,
    },
    { name: "State", of: (job) => html`<${Status} job=${job} />`, sort: (job) => job.status },
    {
      name: "Task",
      of: (job) =>
        html`${job.env_id}<br /><small class="quiet">${job.algorithm}, ${job.scaling}, seed ${job.seed}</small>`,
      sort: (job) => job.env_id,
    },
    {
      name: "Round",
      number: true,
      of: (job) =>
        job.ending_steps
          ? html`${count(job.round)}<br /><small class="quiet">${count(job.env_steps)}/${count(job.ending_steps)} steps</small>`
          : html`${count(job.round)}<span class="quiet">/${count(job.max_rounds)}</span>`,
      sort: (job) => job.round,
    },
    {
      name: "Return",
      number: true,
      of: (job) => number(job.last_return),
      sort: (job) => job.last_return,
    },
    ...settings(jobs),
    {
      name: bill,
      of: (job) => html`<${Budget} spent=${job.spent_usd} budget=${job.budget_usd} />`,
      sort: (job) => job.spent_usd,
    },
    {
      name: "Actors",
      number: true,
      of: (job) => (isLive(job.status) ? count(job.actors_now) : "–"),
      sort: (job) => job.actors_now,
    },
    { name: "Age", number: true, of: (job) => ago(job.created_at), sort: (job) => job.created_at },
  ];
}

/** Return `{jobs, more, error, fits}` of so many pages, kept up to date; the old ones stay until others are here. */
function useJobs({ text, status }, pages) {
  const [seen, set] = useState({});
  let known = new Map();
  useRepeated(
    async (signal) => {
      try {
        const asked = { limit: PAGE, ...(text && { q: text }), ...(status && { status }) };
        const answers = new Map();
        let cursor;
        do {
          const path = `v1/jobs?${new URLSearchParams({ ...asked, ...(cursor && { cursor }) })}`;
          const { data = known.get(path).data, etag } = await call(path, {
            etag: known.get(path)?.etag,
            signal,
          });
          answers.set(path, { data, etag });
          cursor = data.next_cursor;
        } while (cursor && answers.size < pages);
        known = answers;
        set({
          jobs: [...answers.values()].flatMap(({ data }) => data.jobs),
          more: Boolean(cursor),
          filtered: Boolean(text || status),
        });
      } catch (error) {
        if (!signal.aborted) set((old) => ({ ...old, error }));
      }
      return false;
    },
    5000,
    [text, status, pages],
  );
  return seen;
}

export function Jobs() {
  const [filter, setFilter] = useState({ text: "", status: "", group: "" });
  const [chosen, setChosen] = useState([]);
  const [pages, setPages] = useState(1);
  const { jobs, more, filtered, error } = useJobs(filter, pages);
  const set = (field) => (value) => {
    setFilter((old) => ({ ...old, [field]: value }));
    if (field !== "group") setPages(1);
  };
  const choose = (id) =>
    setChosen((old) => (old.includes(id) ? old.filter((one) => one !== id) : [...old, id]));
  const bill = useBillName();
  const groups = useMemo(() => grouped(jobs || [], filter.group), [jobs, filter.group]);
  return html`<div><${Heading} name="Jobs" />
    <div class="bar">
      <label class="choice"><span>Filter</span><input type="search" value=${filter.text} placeholder="name, task, tag" maxlength="80" onInput=${(e) => set("text")(e.target.value)} /></label>
      <${Choice} label="State" value=${filter.status} options=${STATES.map((s) => [s, s || "all"])} onChange=${set("status")} />
      <${Choice} label="Group by" value=${filter.group} options=${GROUPS} onChange=${set("group")} />
      <a class=${`button ${chosen.length < 2 ? "off" : "main"}`} role="link" aria-disabled=${chosen.length < 2} href=${chosen.length < 2 ? undefined : link("compare", ...chosen)}>Compare ${chosen.length || ""}</a>
    </div>
    <${Waiting} data=${jobs} error=${error} />
    ${jobs?.length === 0 && !filtered && html`<div class="card empty"><p>No job yet. Start one:</p><pre>nitro train CartPole-v1 --total-steps 50_000</pre></div>`}
    ${jobs?.length === 0 && filtered && html`<p class="note">No job fits the filter.</p>`}
    ${groups.map(
      ([
        name,
        members,
      ]) => html`<section key=${name}>${
        name &&
        html`<div class="bar spread"><h2>${words(name)} <span class="quiet">${members.length}</span></h2>
      ${members.length > 1 && html`<a class="button" href=${link("compare", ...members.map((job) => job.job_id))} aria-label=${`Compare all of ${words(name)}`}>Compare all</a>`}</div>`
      }
      <${Table} caption="Jobs" cards rows=${members} columns=${columns(chosen, choose, bill, jobs)} keyOf=${(job) => job.job_id} /></section>`,
    )}
    ${more && html`<p class="bar quiet">The newest ${count(jobs.length)} jobs are shown. <button onClick=${() => setPages(pages + 1)}>Show more</button></p>`}</div>`;
}

function grouped(jobs, group) {
  const groups = new Map();
  for (const job of jobs) {
    for (const name of groupsOf(job, group)) groups.set(name, [...(groups.get(name) || []), job]);
  }
  return [...groups];
}
