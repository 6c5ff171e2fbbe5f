// Why a round has as many actors as it has.
import { html, useMemo, useState } from "../vendor/preact.js";
import { usePoll } from "../lib/api.js";
import { Chart } from "../lib/chart.js";
import { count, number, words } from "../lib/format.js";
import { RoundChoice, Tile, Waiting } from "../lib/ui.js";
import { scalingOf } from "./scaling.js";

const values = (column) => (column || []).filter((v) => v !== null && v !== undefined);

export function Detector({ job, rounds, error }) {
  const [chosen, choose] = useState(null);
  const last = rounds?.columns.round.at(-1);
  const round = Math.min(chosen ?? last, last);
  const found = usePoll(
    round === undefined ? null : `v1/jobs/${job.job_id}/rounds?after=${round - 1}&limit=1`,
    0,
  );
  const lines = useMemo(
    () => [{ label: "actors", values: rounds?.columns.requested, step: true }],
    [rounds],
  );
  if (last === undefined)
    return html`<${Waiting} data=${rounds} error=${error} empty=${html`<p class="note">No round has been decided yet.</p>`} />`;
  const plan = found.data?.rounds[0]?.plan;
  const { policy, ...parameters } = scalingOf(job, round);
  const at = rounds.columns.round.indexOf(round);
  const window = parameters.window || 6;
  const ratios = values(rounds.columns.ratio?.slice(Math.max(0, at - window + 1), at + 1));
  return html`<div><div class="bar"><${RoundChoice} value=${round} last=${last} onChange=${choose} />
      <button onClick=${() => choose(null)} disabled=${chosen === null}>Newest</button></div>
    <div class="card reason"><h2>Round ${round}: ${count(rounds.columns.actors[at])} actors</h2>
      <p>${plan ? plan.reason : found.error ? found.error.message : "…"}</p>
      <p class="quiet">Policy ${policy}${Object.entries(parameters)
        .filter(([, v]) => typeof v !== "object")
        .map(([key, value]) => `, ${words(key)} ${value}`)
        .join(
          "",
        )}. ${policy === "nitro" ? `The detector (${job.spec.detector.name}) measures the curvature of the objective. R = −λmax/λmin is compared with the last ${window} rounds and decayed, which gives the score S. S = 0 asks for ${job.spec.actors.min} actors, S = 1 for ${job.spec.actors.max}.` : "It does not use the curvature ratio R; the detector still measures it."}</p></div>
    <dl class="tiles">
      <${Tile} name="Ratio R">${number(rounds.columns.ratio?.[at])}<//><${Tile} name=${`Window of ${window}`}>${ratios.length ? `${number(Math.min(...ratios))} to ${number(Math.max(...ratios))}` : "–"}<//>
      <${Tile} name="Score S">${number(rounds.columns.score?.[at])}<//><${Tile} name="Decay">${number(parameters.decay ?? null)}<//>
      <${Tile} name="Fewest actors">${job.spec.actors.min}<//><${Tile} name="Asked for">${count(rounds.columns.requested?.[at])}<//></dl>
    <${Chart} title="Actors that the policy asked for" x=${rounds.columns.round} xLabel="Round" xFormat=${count} format=${count} height=${250} lines=${lines} /></div>`;
}
