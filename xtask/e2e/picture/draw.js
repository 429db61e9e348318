// Draws panels of a dashboard, or a trace, as SVG:
//
//     node draw.js dashboard INPUT OUTPUT
//     node draw.js trace INPUT OUTPUT
//
// INPUT is JSON from `cargo xtask e2e picture`: panels of Grafana's JSON with the answers of Prometheus, or a trace of Jaeger's API.

import { readFileSync, writeFileSync } from "node:fs";
import * as echarts from "echarts";

const COLORS = ["#73bf69", "#f2cc0c", "#5794f2", "#ff9830", "#f2495c", "#b877d9"];
const BACKGROUND = "#111217", TEXT = "#ccccdc", FAINT = "#2c3036", QUIET = "#8e8e9e";
const FONT = { color: TEXT, fontFamily: "sans-serif", fontSize: 12 };
const WIDTH = 1120, HEIGHT = 250, GAP = 20, HEAD = 56;

/** Formats a number with a prefix of its unit. */
function scaled(value, unit) {
  if (value === 0) return `0${unit ? ` ${unit}` : ""}`;
  const steps = [[1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]];
  const [factor, prefix] = steps.find(([factor]) => Math.abs(value) >= factor * 0.9999) ?? steps.at(-1);
  return `${Number((value / factor).toPrecision(3))} ${prefix}${unit}`.trim();
}

/** Formats a value in a unit of Grafana. */
function formatted(unit) {
  const units = { s: "s", watt: "W", Bps: "B/s", pps: "p/s", cps: "/s" };
  if (unit === "percentunit") return (value) => `${Number((value * 100).toPrecision(3))}%`;
  return (value) => scaled(value, units[unit] ?? "");
}

/** Fills the labels of a series into a legend of Grafana. */
function legend(format, labels) {
  return format.replace(/{{\s*(\w+)\s*}}/g, (_, label) => labels[label] ?? "").trim();
}

/** Returns the lines of a panel. */
function lines(panel, answers, index) {
  const stack = panel.fieldConfig?.defaults?.custom?.stacking?.mode === "normal" ? `stack ${index}` : undefined;
  const series = answers.flatMap(({ legendFormat, data }) => data.result.map(({ metric, values }) => ({
    name: `${index}|${legend(legendFormat, metric) || panel.title}`,
    values: values ?? [],
  })));
  // A stack needs a point of every series at every time.
  const times = [...new Set(series.flatMap(({ values }) => values.map(([time]) => time)))].sort((one, other) => one - other);
  const points = (values) => {
    const known = new Map(values);
    return (stack ? times : [...known.keys()]).map((time) => [time * 1000, Number(known.get(time) ?? 0)]);
  };
  return series.map(({ name, values }, nth) => ({
    name, stack, type: "line", xAxisIndex: index, yAxisIndex: index, showSymbol: false, animation: false,
    color: COLORS[nth % COLORS.length], lineStyle: { width: 1.5 }, areaStyle: stack && { opacity: 0.4 },
    data: points(values),
  }));
}

/** Returns the cells of a heat map from native histograms, and the exemplars as points. */
function cells(panel, answers, exemplars, index) {
  const samples = answers.flatMap(({ data }) => data.result).flatMap(({ histograms }) => histograms ?? []);
  const step = samples.length > 1 ? (samples[1][0] - samples[0][0]) * 1000 : 1000;
  const rows = samples.flatMap(([time, { buckets }]) => (buckets ?? []).map(([, lower, upper, count]) =>
    [time * 1000, Number(lower), Number(upper), Number(count)])).filter(([, lower, , count]) => lower > 0 && count > 0);
  const most = Math.log1p(Math.max(...rows.map((row) => row[3])) * 100);
  const draw = (_, api) => {
    const [left, top] = api.coord([api.value(0) - step, api.value(2)]);
    const [right, bottom] = api.coord([api.value(0), api.value(1)]);
    const share = Math.log1p(api.value(3) * 100) / most;
    const fill = echarts.color.lerp(share, ["#20264a", "#4b2991", "#b0327a", "#f2711c", "#fcde9c"]);
    return { type: "rect", shape: { x: left, y: top, width: right - left + 0.3, height: bottom - top + 0.3 }, style: { fill } };
  };
  const points = exemplars.flatMap((series) => series.exemplars).map(({ timestamp, value }) => [timestamp * 1000, Number(value)]);
  const common = { xAxisIndex: index, yAxisIndex: index, animation: false };
  return [
    { ...common, name: `${index}|packets`, type: "custom", renderItem: draw, data: rows, clip: true, encode: { x: 0, y: [1, 2] } },
    {
      ...common, name: `${index}|exemplars: packets with a trace`, type: "scatter", data: points, symbol: "diamond", symbolSize: 9, z: 5,
      color: "#56ff8f", itemStyle: { borderColor: BACKGROUND, borderWidth: 1 },
    },
  ];
}

/** Returns the range of the vertical axis of a heat map: whole decades with cells. */
function decades(series) {
  const bounds = series[0].data.flatMap(([, lower, upper]) => [lower, upper]);
  return [10 ** Math.floor(Math.log10(Math.min(...bounds))), 10 ** Math.ceil(Math.log10(Math.max(...bounds)))];
}

function dashboard({ title, subtitle, start, end, panels }) {
  const option = { backgroundColor: BACKGROUND, title: [], grid: [], xAxis: [], yAxis: [], legend: [], series: [] };
  option.title.push({ text: title, subtext: subtitle, left: GAP, top: 8, textStyle: { ...FONT, fontSize: 16 }, subtextStyle: { color: QUIET } });
  const width = (WIDTH - 3 * GAP) / 2;
  panels.forEach(({ panel, answers, exemplars }, index) => {
    const left = GAP + (index % 2) * (width + GAP), top = HEAD + 10 + Math.floor(index / 2) * (HEIGHT + GAP);
    const isHeatmap = panel.type === "heatmap";
    const series = isHeatmap ? cells(panel, answers, exemplars, index) : lines(panel, answers, index);
    const format = formatted(panel.fieldConfig.defaults.unit);
    const [min, max] = isHeatmap ? decades(series) : [0, undefined];
    option.title.push({ text: panel.title, left, top, textStyle: { ...FONT, fontWeight: "bold" } });
    option.grid.push({ left: left + 62, top: top + 28, width: width - 74, height: HEIGHT - 86 });
    const axis = { gridIndex: index, axisLabel: { color: QUIET, hideOverlap: true }, axisLine: { lineStyle: { color: FAINT } } };
    option.xAxis.push({ ...axis, type: "time", min: start * 1000, max: end * 1000, splitLine: { show: false }, splitNumber: 4 });
    option.xAxis.at(-1).axisLabel.formatter = "{HH}:{mm}:{ss}";
    option.yAxis.push({
      ...axis, type: isHeatmap ? "log" : "value", min, max, splitNumber: 4, splitLine: { lineStyle: { color: FAINT } },
      axisLabel: { color: QUIET, formatter: format },
    });
    option.legend.push({
      data: series.map(({ name }) => name), formatter: (name) => name.split("|")[1], left: left + 56, top: top + HEIGHT - 30,
      width: width - 60, itemWidth: 14, itemHeight: 8, itemGap: 26, textStyle: { ...FONT, fontSize: 11 }, icon: isHeatmap ? undefined : "roundRect",
    });
    option.series.push(...series);
  });
  return render(option, HEAD + 10 + Math.ceil(panels.length / 2) * (HEIGHT + GAP));
}

/** Returns the spans of a trace in the order of the tree, with their depth. */
function ordered(spans) {
  const parent = (span) => span.references.find(({ refType }) => refType === "CHILD_OF")?.spanID;
  const ids = new Set(spans.map((span) => span.spanID));
  const below = (id, depth) => spans
    .filter((span) => (ids.has(parent(span)) ? parent(span) : undefined) === id)
    .sort((one, other) => one.startTime - other.startTime)
    .flatMap((span) => [{ span, depth }, ...below(span.spanID, depth + 1)]);
  return below(undefined, 0);
}

function trace({ spans, processes, traceID }) {
  const rows = ordered(spans), start = Math.min(...spans.map((span) => span.startTime));
  const services = [...new Set(rows.map(({ span }) => processes[span.processID].serviceName))];
  const color = (span) => span.operationName.startsWith("network ") ? "#f2711c" : COLORS[2 + services.indexOf(processes[span.processID].serviceName) * 3 % 4];
  const text = ({ span, depth }) => `${"    ".repeat(depth)}${processes[span.processID].serviceName}: ${span.operationName}`;
  const rowHeight = 30, left = 330, top = HEAD + 20, height = rows.length * rowHeight;
  const draw = (_, api) => {
    const [x, y] = api.coord([api.value(0), api.value(2)]), [end] = api.coord([api.value(1), api.value(2)]);
    const { span } = rows[api.value(2)], width = Math.max(end - x, 2), isWide = width > 300;
    const label = { text: span.duration ? scaled(span.duration / 1e6, "s") : "< 1 µs", fill: isWide ? BACKGROUND : TEXT, fontSize: 12, fontFamily: "sans-serif", y, verticalAlign: "middle" };
    return {
      type: "group",
      children: [
        { type: "rect", shape: { x, y: y - 8, width, height: 16 }, style: { fill: color(span) } },
        { type: "text", style: { ...label, x: isWide ? x + 8 : x + width + 6 } },
      ],
    };
  };
  const option = {
    backgroundColor: BACKGROUND,
    title: [{
      text: `Trace ${traceID}`, subtext: "Spans of the services by OpenTelemetry's SDK, and of the packet by Undercurrent (orange), as Jaeger has them",
      left: GAP, top: 8, textStyle: { ...FONT, fontSize: 16 }, subtextStyle: { color: QUIET },
    }],
    grid: { left, top, width: WIDTH - left - 90, height },
    xAxis: {
      type: "value", min: 0, position: "top", max: Math.max(...spans.map((span) => span.startTime + span.duration)) - start,
      axisLabel: { color: QUIET, formatter: (value) => scaled(value / 1e6, "s"), hideOverlap: true, showMaxLabel: false },
      splitLine: { lineStyle: { color: FAINT } },
    },
    yAxis: {
      type: "category", inverse: true, data: rows.map(text), axisTick: { show: false }, axisLine: { lineStyle: { color: FAINT } },
      axisLabel: { ...FONT, align: "left", margin: left - GAP, interval: 0 },
    },
    series: [{ type: "custom", animation: false, renderItem: draw, data: rows.map(({ span }, nth) => [span.startTime - start, span.startTime - start + span.duration, nth]), encode: { x: [0, 1], y: 2 } }],
  };
  return render(option, top + height + GAP);
}

function render(option, height) {
  const chart = echarts.init(null, null, { renderer: "svg", ssr: true, width: WIDTH, height });
  chart.setOption(option);
  const svg = chart.renderToSVGString();
  chart.dispose();
  return svg;
}

const [kind, input, output] = process.argv.slice(2);
const data = JSON.parse(readFileSync(input, "utf8"));
writeFileSync(output, ({ dashboard, trace })[kind](data));
