// The actors of one round as lanes: when each was sent, started, played and pushed, and what went wrong.
import { html, useState } from "../vendor/preact.js";
import { usePoll } from "../lib/api.js";
import { count, number, seconds } from "../lib/format.js";
import { RoundChoice, Tile, Waiting } from "../lib/ui.js";

const PARTS = [
  ["start_s", "start", "--c8"],
  ["fetch_s", "fetch policy", "--c4"],
  ["rollout_s", "roll out", "--c1"],
  ["push_s", "push", "--c3"],
];
const SHOWN = 128;
const EARLY = { stored: 1, running: 1, duplicate: 1 };

const quantile = (values, share) => {
  const sorted = values.filter((v) => v !== null).sort((a, b) => a - b);
  return sorted.length
    ? sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))]
    : null;
};

/** Return an actor's time as pieces `[name, colour, from, to]`. */
function pieces(actor, now) {
  const end = actor.ended_s ?? now;
  let from = actor.sent_s ?? 0;
  const known = PARTS.filter(([key]) => actor[key] !== null && actor[key] !== undefined);
  const found = known.map(([key, name, colour]) => [name, colour, from, (from += actor[key])]);
  if (from < end) found.push([actor.ended_s === null ? "running" : "answer", "--line", from, end]);
  return found;
}

function Lane({ actor, whole }) {
  const name = `${actor.mode === "evaluate" ? "evaluation" : "actor"} ${actor.index}`;
  const parts = pieces(actor, whole);
  const told = parts.map(([part, , from, to]) => `${part} ${seconds(to - from)}`).join(", ");
  const marks = [
    EARLY[actor.state] ? "" : actor.state,
    actor.cold_start ? "cold" : "",
    actor.tries > 1 || actor.attempt ? "tried again" : "",
  ].filter(Boolean);
  return html`<li title=${`${name}: ${told}${actor.reason && `\n${actor.reason}`}`}>
    <span class="who">${name}</span>
    <span class="lane" role="img" aria-label=${`${actor.state}; ${told}`}>${parts.map(([part, colour, from, to]) => html`<i style=${{ left: `${(100 * from) / whole}%`, width: `${(100 * (to - from)) / whole}%`, background: `var(${colour})` }}></i>`)}</span>
    <span class=${EARLY[actor.state] ? "quiet" : "bad"}>${[seconds(actor.ended_s), ...marks].join(", ")}</span></li>`;
}

export function Actors({ job, rounds, live }) {
  const [chosen, choose] = useState(null);
  const [all, setAll] = useState(false);
  const query = chosen === null ? "" : `?round=${chosen}`;
  const { data, error } = usePoll(`v1/jobs/${job.job_id}/actors${query}`, live ? 3000 : 0);
  const last = rounds?.columns.round.at(-1) ?? 0;
  const round = chosen ?? data?.round ?? last;
  const of = (name) => rounds?.columns[name]?.[rounds.columns.round.indexOf(round)];
  const own = of("own") || 0;
  const busy = of("own_busy_s");
  const go = (to) => choose(Math.max(0, Math.min(last, to)));
  const actors = data?.actors || [];
  const whole = Math.max(
    0.001,
    ...actors.map((a) => Math.max(a.ended_s ?? 0, ...pieces(a, 0).map(([, , , to]) => to))),
  );
  const took = actors.map((a) => (a.ended_s === null ? null : a.ended_s - (a.sent_s ?? 0)));
  const number_ = (test) => count(actors.filter(test).length);
  return html`<div><div class="bar">
      <button onClick=${() => go(round - 1)} disabled=${round <= 0} aria-label="Round before">←</button>
      <${RoundChoice} value=${round} last=${last} onChange=${choose} />
      <button onClick=${() => go(round + 1)} disabled=${round >= last} aria-label="Next round">→</button>
      <button onClick=${() => choose(null)} disabled=${chosen === null}>Newest</button>
      <span class="legend">${PARTS.map(([, name, colour]) => html`<span><i style=${{ background: `var(${colour})` }}></i>${name}</span>`)}</span></div>
    <${Waiting} data=${data} error=${error} />
    ${own > 0 && html`<p class="note">${count(own)} of ${count(of("actors"))} actors ran on the learner's own cores${busy !== null && ` and kept them busy for ${seconds(busy)}`}.</p>`}
    ${data && !actors.length && own < of("actors") && html`<p class="note">The times of this round's actors are not kept${data.rounds_kept ? html`: rounds ${data.rounds_kept[0]} to ${data.rounds_kept[1]} are` : " any more: the scaler keeps those of the newest rounds, while it runs"}.</p>`}
    ${
      actors.length > 0 &&
      html`<dl class="tiles">
      <${Tile} name="Half of them took">${seconds(quantile(took, 0.5))}<//><${Tile} name="95 % took at most">${seconds(quantile(took, 0.95))}<//>
      <${Tile} name="Cold starts">${number_((a) => a.cold_start)} <small class="quiet">of ${count(actors.length)}</small><//>
      <${Tile} name="Late">${number_((a) => a.state === "late")}<//><${Tile} name="Tried again">${number_((a) => a.tries > 1 || a.attempt > 0)}<//>
      <${Tile} name="Failed">${number_((a) => a.state === "failed")}<//></dl>
      <ol class="lanes card" aria-label=${`Actors of round ${round}, from 0 to ${number(whole)} s`}>${actors.slice(0, all ? undefined : SHOWN).map((actor) => html`<${Lane} key=${`${actor.mode}${actor.index}.${actor.attempt}`} actor=${actor} whole=${whole} />`)}
        <li class="scale quiet"><span class="who"></span><span class="lane"><span>0</span><span>${seconds(whole / 2)}</span><span>${seconds(whole)}</span></span><span></span></li></ol>
      ${actors.length > SHOWN && !all && html`<p><button onClick=${() => setAll(true)}>Show all ${count(actors.length)}</button></p>`}`
    }</div>`;
}
