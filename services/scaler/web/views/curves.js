// A job's curves over rounds, steps, seconds or dollars, with one cursor for all of them.
import { html, useMemo, useState } from "../vendor/preact.js";
import { Chart, smoothed } from "../lib/chart.js";
import { count, number, usd } from "../lib/format.js";
import { AXES, useAxes } from "../lib/rounds.js";
import { Choice, Waiting } from "../lib/ui.js";

const LOSSES = [
  ["policy_loss", "policy"],
  ["value_loss", "value"],
];
const LAGS = [
  ["policy_lag_max", "largest"],
  ["policy_lag", "mean"],
];
const last = (values = []) => values.findLast((value) => value !== null && value !== undefined);

/** Return a line and, where it is smoothed, the raw one faintly behind it. */
function pair(label, values, smoothing, more = {}) {
  if (!smoothing) return [{ label, values, ...more }];
  return [
    { label: `${label}, raw`, values, faint: true, ...more },
    { label, values: smoothed(values, smoothing), ...more },
  ];
}

/** Return the lines and the band of a search's returns: the mean plus and minus one deviation. */
function spread({ columns, stats }, smoothing) {
  const deviations = stats.return_std;
  if (!deviations) return {};
  const known = (value) => value !== null && value !== undefined;
  const edge = (label, sign) => ({
    label,
    faint: true,
    unnamed: true,
    values: smoothed(
      columns.train_return.map((mean, i) =>
        known(mean) && known(deviations[i]) ? mean + sign * deviations[i] : null,
      ),
      smoothing,
    ),
  });
  return {
    lines: [edge("training, mean − deviation", -1), edge("training, mean + deviation", 1)],
    bands: [[1, 2, "--c1"]],
  };
}

/** Return the charts of a job as properties of `Chart`. */
function charts(job, rounds, at, smoothing) {
  const { stop } = job.spec;
  const { columns, stats } = rounds;
  const named = (names) =>
    names.filter(([key]) => stats[key]?.some((v) => v !== null && v !== undefined));
  const constant = (value) => columns.round.map(() => value);
  const target =
    stop.target_return === null
      ? []
      : [{ label: "target", values: constant(stop.target_return), dash: true, colour: "--quiet" }];
  const of = (title, names) => ({
    title,
    lines: named(names).flatMap(([key, label], i) =>
      pair(label, stats[key], smoothing, { colour: `--c${i + 1}` }),
    ),
  });
  const population = spread(rounds, smoothing);
  const all = [
    {
      title: "Return",
      note: `best evaluation ${number(job.progress.best_return)}`,
      bands: population.bands,
      lines: [
        ...(population.lines || []),
        ...pair("training", columns.train_return, smoothing),
        { label: "evaluation", values: columns.eval_return, dots: true, colour: "--c2" },
        ...target,
      ],
    },
    {
      title: "Actors per round",
      note: `mean ${number(columns.actors.reduce((a, b) => a + b, 0) / columns.actors.length)}`,
      format: count,
      lines: [
        { label: "asked for", values: columns.requested, step: true, faint: true, colour: "--c4" },
        { label: "launched", values: columns.actors, step: true },
        ...(columns.own?.some((own) => own)
          ? [{ label: "on own cores", values: columns.own, step: true, fill: "22", colour: "--c3" }]
          : []),
      ],
    },
    {
      title: "Dollars",
      note: `budget ${usd(stop.budget_usd)}`,
      format: usd,
      lines: [
        { label: "spent", values: at.usd, fill: "22", colour: "--c3" },
        ...(last(at.usd) > stop.budget_usd / 10
          ? [{ label: "budget", values: constant(stop.budget_usd), dash: true, colour: "--bad" }]
          : []),
      ],
    },
    {
      title: "Curvature ratio R",
      note: "−λmax/λmin",
      lines: pair("R", columns.ratio, smoothing, { colour: "--c4" }),
    },
    {
      title: "Boosting score S",
      range: [0, 1],
      lines: [{ label: "S", values: columns.score, step: true, colour: "--c4" }],
    },
    of("Noise scale in directions", [["noise_scale", "noise scale"]]),
    of("KL divergence", [
      ["kl", "KL"],
      ["approx_kl", "KL"],
    ]),
    of("Entropy", [["entropy", "entropy"]]),
    of("Losses", LOSSES),
    of("Staleness of trajectories", LAGS),
    of("Staleness of gradients", [
      ["staleness_mean", "mean"],
      ["staleness_max", "largest"],
      ["staleness_bound", "bound"],
      ["gradient_queue_mean", "queue at a step"],
    ]),
  ];
  return all.filter((chart) => chart.lines.some((line) => last(line.values) !== undefined));
}

export function Curves({ job, rounds, error }) {
  const [axis, setAxis] = useState("round");
  const [smoothing, setSmoothing] = useState(0.6);
  const at = useAxes(rounds, job);
  const drawn = useMemo(
    () => (rounds?.columns.round.length ? charts(job, rounds, at, smoothing) : []),
    [rounds, at, smoothing, job.spec],
  );
  if (!drawn.length)
    return html`<${Waiting} data=${rounds} error=${error} empty=${html`<p class="note">No round has been made yet. Curves appear with the first one.</p>`} />`;
  const xFormat = axis === "usd" ? usd : count;
  return html`<div><div class="bar">
      <${Choice} label="Along" value=${axis} options=${AXES} onChange=${setAxis} />
      <label class="choice"><span>Smoothing ${smoothing}</span><input type="range" min="0" max="0.95" step="0.05" value=${smoothing} onInput=${(event) => setSmoothing(+event.target.value)} /></label>
      <span class="quiet">Drag across a chart to zoom in, double-click to zoom out.</span></div>
    <div class="grid">${drawn.map((chart) => html`<${Chart} key=${chart.title} ...${chart} x=${at[axis]} xLabel=${AXES.find(([key]) => key === axis)[1]} xFormat=${xFormat} sync=${`job-${job.job_id}`} />`)}</div></div>`;
}
