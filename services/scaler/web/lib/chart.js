// One chart: uPlot in the page's colours, with a legend that follows the cursor, and the keyboard.
import { html, useEffect, useRef } from "../vendor/preact.js";
import { compact, count, number } from "./format.js";

const { uPlot } = window;
const dark = matchMedia("(prefers-color-scheme: dark)");

/** Return the colour that a style variable has now: a canvas knows no variables. */
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Smooth by a moving average that forgets, corrected for its start; gaps stay gaps. */
export function smoothed(values, weight) {
  if (!weight) return values;
  let sum = 0;
  let share = 0;
  return values.map((value) => {
    if (value === null || value === undefined) return value;
    sum = sum * weight + value * (1 - weight);
    share = share * weight + (1 - weight);
    return sum / share;
  });
}

function seriesOf(line, index, now) {
  const stroke = colour(line.colour || "--c1");
  return {
    label: line.label,
    stroke: line.faint ? `${stroke}55` : stroke,
    width: line.faint || line.thin ? 1 : 1.75,
    dash: line.dash && [6, 5],
    fill: line.fill && stroke + line.fill,
    paths: line.step ? uPlot.paths.stepped({ align: 1 }) : line.dots ? () => null : undefined,
    points: { show: line.dots || undefined, size: 6, fill: stroke },
    spanGaps: true,
    // Without a cursor the latest value is told; a layer of a stack is told as what it adds.
    value: (_, value, __, at) => {
      const { lines, format } = now.current;
      const told = lines[index].shown || lines[index].values;
      return format(at === null ? told.findLast((v) => v !== null && v !== undefined) : told[at]);
    },
  };
}

function options(now, width) {
  const { lines, bands, height, xLabel, xFormat, format, sync, range } = now.current;
  const axis = {
    stroke: colour("--quiet"),
    grid: { stroke: colour("--line"), width: 1 },
    ticks: { show: false },
  };
  const short = (_, ticks) => ticks.map((tick) => format(tick));
  return {
    width,
    height,
    scales: { x: { time: false }, y: { range } },
    cursor: { sync: sync && { key: sync, setSeries: false }, drag: { x: true, y: false } },
    legend: { markers: { width: 3 } },
    axes: [
      {
        ...axis,
        size: 34,
        space: 60,
        values: (_, ticks) =>
          ticks.map((tick) => (xFormat === count ? compact(tick) : xFormat(tick))),
      },
      { ...axis, size: 62, values: short },
    ],
    series: [
      { label: xLabel, value: (u, value) => xFormat(value ?? u.data[0].at(-1)) },
      ...lines.map((line, index) => seriesOf(line, index, now)),
    ],
    bands:
      bands &&
      bands.map(([low, high, name]) => ({ series: [high, low], fill: `${colour(name)}30` })),
  };
}

/**
 * Draw lines over x. `lines` have `values` beside what `seriesOf` reads; `bands` are triples of two
 * lines' numbers, counted from 1, and a colour.
 */
export function Chart({
  title,
  note,
  x,
  xLabel,
  lines,
  bands,
  sync,
  height = 190,
  format = number,
  xFormat = number,
  range,
}) {
  const box = useRef();
  const plot = useRef();
  const drawn = useRef([]);
  const shape = JSON.stringify([
    xLabel,
    lines.map((l) => [l.label, l.colour, l.step, l.dots, l.faint]),
    sync,
    height,
  ]);
  const data = [x, ...lines.map((line) => line.values)];
  // What is drawn and told is always the newest, also by a plot that was made before.
  const now = useRef();
  now.current = { lines, bands, data, height, xLabel, xFormat, format, sync, range };

  useEffect(() => {
    const draw = () => {
      plot.current?.destroy();
      const width = box.current.clientWidth;
      plot.current = new uPlot(options(now, width), now.current.data, box.current);
      now.current.lines.forEach(
        (line, i) =>
          line.unnamed && (box.current.querySelectorAll(".u-series")[i + 1].hidden = true),
      );
      drawn.current = now.current.data;
    };
    draw();
    const resized = new ResizeObserver(() => {
      const width = box.current.clientWidth;
      if (width && width !== plot.current.width) plot.current.setSize({ width, height });
    });
    resized.observe(box.current);
    dark.addEventListener("change", draw);
    return () => {
      resized.disconnect();
      dark.removeEventListener("change", draw);
      plot.current.destroy();
      plot.current = undefined;
    };
  }, [shape]);

  useEffect(() => {
    if (drawn.current === data) return;
    const before = drawn.current[0];
    const { min, max } = plot.current.scales.x;
    const zoomed = before.length > 1 && (min > before[0] || max < before.at(-1));
    drawn.current = data;
    plot.current.setData(data, !zoomed);
    if (zoomed) plot.current.redraw();
    plot.current.setLegend({ idx: plot.current.cursor.idx ?? null });
  }, [x, ...lines.map((line) => line.values)]);

  const move = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const u = plot.current;
    const at = Math.max(0, Math.min(x.length - 1, (u.cursor.idx ?? x.length) + step));
    u.setCursor({ left: u.valToPos(x[at], "x"), top: u.over.clientHeight / 2 }, true, true);
  };
  return html`<figure class="chart" tabindex="0" role="group" aria-label=${`${title}; arrow keys move the cursor`} onKeyDown=${move}>
    <figcaption><b>${title}</b>${note && html` <span class="quiet">${note}</span>`}</figcaption>
    <div ref=${box}></div>
  </figure>`;
}
