// What a step costs: programs, the kernels and calls in them, and what passes between them.

const MOST_RUN = 40, MOST_RUN_LINES = 30, MOST_RUN_STEPS = 12;

function runningPage(number) {
  const cost = DATA.running[number];
  if (!cost) return missingPage("record of running code");
  const total = cost.seconds || 1;
  const many = DATA.running.length > 1;
  const gives = cost.bandwidth ? ` On this machine memory gives ${(cost.bandwidth / 1e9).toFixed(1)} GB/s and products of matrices reach ${(cost.arithmetic / 1e9).toFixed(0)} GFLOP/s, both measured.` : "";
  return {
    title: many ? `Running, ${cost.lane}` : "Running",
    crumbs: [["running"], ...(many ? [[cost.lane]] : [])],
    wide: true,
    previous: number > 0 && `#/running/${number - 1}`,
    next: number + 1 < DATA.running.length && `#/running/${number + 1}`,
    body: [
      lead("What a step costs", `${cost.count ? `${runTime(cost.seconds / cost.count)} a step, ${cost.count} steps: ` : ""}${runTime(cost.seconds)} in compiled programs and between them, as far as they follow each other in a thread; compiling is left out, and each call counts as a usual one.${gives}`),
      many && h("p", null, DATA.running.map((one, n) => [n > 0 && " · ", n === number ? h("b", null, one.lane) : h("a", { href: `#/running/${n}` }, one.lane)])),
      runFlame(cost, total),
      runRows(cost, total),
      runLines(cost, total),
      runSteps(cost),
    ],
  };
}

/** A time down to microseconds. */
function runTime(seconds) {
  if (seconds >= 1) return `${seconds.toFixed(2)} s`;
  return seconds >= 1e-3 ? `${(seconds * 1e3).toFixed(2)} ms` : `${(seconds * 1e6).toFixed(1)} µs`;
}

/**
 * A step: programs and what passes between them, end to end, as wide as their shares. Below a
 * program are the user's lines, below a line its kernels; a graph break stands out, with its cost.
 */
function runFlame(cost, total) {
  const each = cost.count || 1;
  const bars = cost.rows.map((row) => (row.between ? gapIce(row, total, each) : programIce(row, total, each)));
  return h("div", null,
    h("div.icicle", null, h("div.bars-of-time", { role: "img", "aria-label": "Share of each program, its lines and kernels; the tables below have the numbers" },
      runIce("a step", total, total, each, "", bars))),
    cost.rows.some((row) => row.broke) && h("p.soft", null, h("span.bar-key.gap-break"), " passes at a graph break, in each step"));
}

function programIce(row, total, each) {
  // Steps are timed in few calls, the program in all: together they may come out a little longer.
  const times = row.calls * Math.min(1, row.steady / (sum(row.steps) * row.calls || 1));
  const lines = linesOf(row).map(([place, steps]) => runIce(place ? basename(place) : "wrapper", sum(steps) * times, total, each, place ? "fn" : "",
    steps.map((step) => runIce(step.name, step.seconds * times, total, each, "", []))));
  return runIce(row.label, row.steady, total, each, "compile", lines, row.slug && link.compile(row.slug));
}

const sum = (steps) => steps.reduce((all, step) => all + step.seconds, 0);

function gapIce(row, total, each) {
  const parts = [["guards", row.guards], ["inputs and results", row.around]].map(([words, seconds]) => runIce(words, Math.min(seconds, row.steady), total, each, "", []));
  const name = row.broke ? `↯ break at ${basename(row.broke)}` : row.label;
  return runIce(name, row.steady, total, each, row.broke ? "gap-break" : "gap", parts, row.finding && link.finding(row.finding));
}

/** A piece of the flame, with its time in one step. */
const runIce = (name, seconds, total, each, kind, parts, href) => ice(name, seconds, total, kind, parts, href, runTime(seconds / each));

/** A program's steps by the first of the user's lines that they compute, the costliest line first. */
function linesOf(row) {
  const lines = new Map();
  for (const step of row.steps) {
    const place = step.places[0] || "";
    lines.set(place, [...(lines.get(place) || []), step]);
  }
  return [...lines].sort((a, b) => sum(b[1]) - sum(a[1]));
}


function runRows(cost, total) {
  const rows = cost.rows.slice(0, MOST_RUN).map((row) => h("tr", null,
    h("td.num", null, percent(row.steady, total)), h("td.num", null, runTime(row.steady)), h("td.num", null, runTime(row.each)), h("td.num", null, row.calls),
    h("td", null, row.slug && !row.between ? h("a.row", { href: link.compile(row.slug) }, row.label) : row.label),
    h("td", null, row.between ? gapWords(row) : row.eager ? `${row.verdict}; eager takes ${runTime(row.eager)}` : row.verdict)));
  return section("Programs, and what is between", cost.rows.length > MOST_RUN && `the ${MOST_RUN} that take longest of ${cost.rows.length}`,
    table([["share", "num"], ["all", "num"], ["a call", "num"], ["calls", "num"], "what", "what bounds it"], rows, { wide: "Programs, and what is between" }));
}

function gapWords(row) {
  const guards = [row.guards > 0 ? `guards (${runTime(row.guards / row.calls)})` : "guards", row.around > 0 && `, inputs and results (${runTime(row.around / row.calls)})`];
  const broke = row.broke && (row.finding ? h("a", { href: link.finding(row.finding) }, `graph break at ${basename(row.broke)}`) : `graph break at ${basename(row.broke)}`);
  return [broke, broke && ": ", guards, ", dispatch, autograd, Python"];
}

function runLines(cost, total) {
  if (!cost.lines.length) return null;
  const broke = new Set(cost.rows.map((row) => row.broke));
  const rows = cost.lines.slice(0, MOST_RUN_LINES).map(([place, seconds]) => h("tr", null,
    h("td.num", null, percent(seconds, total)), h("td.num", null, runTime(seconds / (cost.count || 1))), h("td.num", null, runTime(seconds)), h("td.mono", { title: place }, broke.has(place) && "↯ ", placeLink(place)), h("td", null, h("code", null, coloured(sourceAt(place), "python")))));
  return section("Your lines", "measured in one call of many; what one kernel computes for several lines is shared out evenly; ↯ has what passes at the graph break, too",
    table([["share", "num"], ["a step", "num"], ["all", "num"], "line", "source"], rows, { wide: "Your lines, running" }));
}

const fileAndLine = (place) => {
  const at = place.lastIndexOf(":"), path = place.slice(0, at);
  return [DATA.files.find((one) => one.file === path), Number(place.slice(at + 1))];
};

/** The text of a line, as far as the trace quotes it. */
function sourceAt(place) {
  const [file, line] = fileAndLine(place);
  const row = file && file.lines.find(([number]) => number === line);
  return row ? row[1].trim() : "";
}

function placeLink(place) {
  const [file, line] = fileAndLine(place);
  return file ? h("a.row", { href: link.src(file.name, line) }, `${file.name}:${line}`) : place;
}

function runSteps(cost) {
  return cost.rows.filter((row) => row.steps.length).slice(0, MOST_RUN).map((row) => {
    const all = row.steps.reduce((sum, step) => sum + step.seconds, 0);
    const rows = row.steps.slice(0, MOST_RUN_STEPS).map((step) => h("tr", null,
      h("td.num", null, percent(step.seconds, all)), h("td.num", null, runTime(step.seconds)), h("td.mono", null, step.name),
      h("td", null, step.reached ? `${(100 * step.reached).toFixed(0)} % of ${step.limit}` : step.limit === "calls" ? "as short as a call" : "–"),
      h("td.mono", null, step.places.map((place, n) => [n > 0 && ", ", placeLink(place)]))));
    return section(`Steps of ${row.label}`, row.steps.length > MOST_RUN_STEPS && `the ${MOST_RUN_STEPS} longest of ${row.steps.length}`,
      table([["share", "num"], ["a call", "num"], "kernel or call", "of its limit", "lines"], rows, { wide: `Steps of ${row.label}` }));
  });
}
