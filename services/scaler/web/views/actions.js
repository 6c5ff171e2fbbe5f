// What one can do to a job. Whatever may cost money says how much, and is confirmed.
import { html, useState } from "../vendor/preact.js";
import { lookAgain, post, usePoll } from "../lib/api.js";
import { count, usd } from "../lib/format.js";
import { roundsLeft, usdPerRound } from "../lib/rounds.js";
import { Dialog, isCap, isLive, useBillName } from "../lib/ui.js";
import { POLICIES, scalingOf } from "./scaling.js";

const path = (job, verb) => `v1/jobs/${encodeURIComponent(job.job_id)}/${verb}`;
const act = async (job, verb, body) => {
  await post(path(job, verb), body);
  lookAgain();
};
const reached = ({ spec: { stop }, progress: { last_return: last } }) =>
  stop.target_return !== null && last !== null && last >= stop.target_return;
const canGoOn = (job) =>
  ["stopped", "failed"].includes(job.status) ||
  (job.status === "succeeded" &&
    ["max_rounds", "max_env_steps"].includes(job.stop_reason) &&
    !reached(job));
const field = (label, value, set, more) =>
  html`<label class="choice"><span>${label}</span><input type="number" required value=${value} onInput=${(event) => set(event.target.value)} ...${more} /></label>`;

function Stop({ job, close }) {
  return html`<${Dialog} title="Stop this job?" verb="Stop the job" danger act=${() => act(job, "stop")} close=${close}>
    <p>It ends after the update in hand, and keeps its checkpoint. It can be resumed.</p>
    <p>It has cost ${usd(job.spent_usd)}. The round in hand is still paid.</p><//>`;
}

function Resume({ job, rounds, close }) {
  const { stop } = job.spec;
  const { rounds: done, env_steps: steps } = job.progress;
  const [limit, made, name] = stop.max_env_steps
    ? ["max_env_steps", steps, "Steps in all"]
    : ["max_rounds", done, "Rounds in all"];
  const [most, setMost] = useState(
    Math.max(
      stop[limit],
      made >= stop[limit] ? made + Math.max(10, Math.round(made / 2)) : 0,
    ),
  );
  const [budget, setBudget] = useState(stop.budget_usd);
  const each = usdPerRound(rounds);
  const expected = each && made && (each * done * Math.max(0, most - made)) / made;
  const left = Math.max(0, budget - job.spent_usd);
  const send = () => act(job, "resume", { [limit]: +most, budget_usd: +budget });
  const capped = isCap(stop.budget_usd);
  const bill = useBillName();
  const verb = capped ? `Resume for at most ${usd(left)}` : "Resume";
  const more = expected && `about ${usd(Math.min(expected, left))} more if rounds cost what the newest did`;
  return html`<${Dialog} title="Resume this job" verb=${verb} act=${send} close=${close}>
    <p>It goes on from its last checkpoint, after round ${count(done)}. Limits can only rise.</p>
    <div class="bar">${field(name, most, setMost, { min: stop[limit], step: 1 })}${capped && field("Budget in all, $", budget, setBudget, { min: stop.budget_usd, step: "any" })}</div>
    <p>${bill}: ${usd(job.spent_usd)} so far${capped && html`, <b>at most ${usd(left)}</b> more`}${more && `, ${more}`}.</p><//>`;
}

function Scale({ job, rounds, close }) {
  const now = scalingOf(job, job.progress.rounds);
  const { actors, stop } = job.spec;
  const [policy, setPolicy] = useState("fixed");
  const [number, setNumber] = useState(rounds?.columns.actors?.at(-1) || actors.min);
  const each = usdPerRound(rounds);
  const left = roundsLeft(job);
  const open = Math.max(0, stop.budget_usd - job.spent_usd);
  const capped = isCap(stop.budget_usd);
  const send = () =>
    act(job, "scaling", {
      scaling: policy === "fixed" ? { policy, num_actors: +number } : { policy },
    });
  return html`<${Dialog} title="Scaling of the next rounds" verb=${capped ? `Switch, for at most ${usd(open)}` : "Switch"} act=${send} close=${close}>
    <p>Now: ${now.policy}${now.num_actors && !Array.isArray(now.num_actors) ? ` at ${now.num_actors}` : ""}. The switch holds from the next round that is not decided yet.</p>
    <div class="bar"><label class="choice"><span>Policy</span><select value=${policy} onChange=${(e) => setPolicy(e.target.value)}>${POLICIES.map(([key, name]) => html`<option value=${key} selected=${key === policy}>${name}</option>`)}</select></label>
      ${policy === "fixed" && field("Actors", number, setNumber, { min: actors.min, max: actors.max, step: 1 })}</div>
    <p>${count(left)} rounds are left.${capped && html` The budget lets them cost <b>at most ${usd(open)}</b>.`}${each && ` At the cost of the newest rounds it is about ${usd(Math.min(open, each * left))}.`} More actors make a round dearer.</p><//>`;
}

export function Actions({ job, rounds }) {
  const [open, set] = useState(null);
  const { data: session } = usePoll("v1/session", 0);
  if (session?.role !== "operator")
    return session && html`<span class="quiet">This token may only look.</span>`;
  const Open = open;
  return html`<div><div class="buttons tight">
      ${isLive(job.status) && html`<button onClick=${() => set(() => Scale)}>Scaling …</button>`}
      ${isLive(job.status) && job.status !== "stopping" && html`<button class="danger" onClick=${() => set(() => Stop)}>Stop …</button>`}
      ${canGoOn(job) && html`<button class="main" onClick=${() => set(() => Resume)}>Resume …</button>`}</div>
    ${Open && html`<${Open} job=${job} rounds=${rounds} close=${() => set(null)} />`}</div>`;
}
