// Where the time went, as an icicle: everything, by function, by compile, by phase, by step. A span
// of it can be chosen, by dragging or with the two sliders; the tables then show that span alone.

const LEAST_SHARE = 0.004; // narrower pieces are left blank
const DRAG = 5; // pixels: less is a click
const SLIDER_STEPS = 200;
const SETTLED = 150; // ms without a change, before the address is changed: browsers allow few changes

function timePage(chosen) {
  const total = DATA.totals.seconds;
  const functions = [...DATA.functions].filter((fn) => fn.seconds > 0).sort((a, b) => b.seconds - a.seconds);
  const range = total > 0 ? timeRange(functions, total, chosen) : null;
  return {
    title: "Time",
    crumbs: [["time"]],
    wide: true,
    escape: () => range && range.clear(),
    body: [
      lead("Where the time went", total ? `${duration(total)} of compiling${DATA.laneCount > 1 ? `, all ${DATA.laneCount} processes together` : ""}` : "The trace records no time."),
      range && range.body,
    ],
  };
}

/** The icicle with its sliders, and the tables that follow them. */
function timeRange(functions, total, chosen) {
  const pieces = piecesOfTime(functions);
  const shade = [h("div.shade"), h("div.shade")];
  const said = h("p.chosen", { role: "status" });
  const tables = h("div");
  const slider = (name) => h("input", { type: "range", min: "0", max: String(SLIDER_STEPS), step: "1", "aria-label": name, input: () => fromSliders(name) });
  const first = slider("Begin of the span"), last = slider("End of the span");
  let span = [0, total], pending = 0;

  const show = () => {
    const [from, to] = span, whole = from <= 0 && to >= total;
    shade[0].style.width = `${(100 * from) / total}%`;
    shade[1].style.width = `${100 - (100 * to) / total}%`;
    first.value = String(Math.round((SLIDER_STEPS * from) / total));
    last.value = String(Math.round((SLIDER_STEPS * to) / total));
    first.setAttribute("aria-valuetext", duration(from));
    last.setAttribute("aria-valuetext", duration(to));
    said.replaceChildren(...(whole ? [h("span.soft", null, "Drag over the bars, or move the ends of the line, to look at a span of the time.")]
      : [h("b", null, `${duration(to - from)} of ${duration(total)}`), ` (${percent(to - from, total)}), from ${duration(from)} to ${duration(to)} `,
        h("button.copy", { type: "button", click: () => clear() }, "Show all")]));
    tables.replaceChildren(fragment(timeTables(timeWithin(pieces, from, to), total)));
    clearTimeout(pending);
    pending = setTimeout(() => {
      if (icicle.isConnected) history.replaceState(null, "", whole ? "#/time" : `#/time/${from.toFixed(3)}-${to.toFixed(3)}`);
    }, SETTLED);
  };
  const choose = (from, to) => {
    const [low, high] = [Math.max(0, Math.min(from, to)), Math.min(total, Math.max(from, to))];
    span = high > low ? [low, high] : [0, total];
    show();
  };
  const clear = () => {
    const some = span[0] > 0 || span[1] < total;
    if (some) choose(0, total);
    return some;
  };
  const fromSliders = (name) => {
    const least = total / SLIDER_STEPS;
    const ends = [first, last].map((one) => (total * Number(one.value)) / SLIDER_STEPS);
    if (name === first.getAttribute("aria-label")) choose(Math.min(ends[0], span[1] - least), span[1]);
    else choose(span[0], Math.max(ends[1], span[0] + least));
  };
  const bars = h("div.bars-of-time", { role: "group", "aria-label": "Time by function, compile, phase and step; the tables below have the numbers" },
    ice("all", total, total, "", functions.map((fn) => functionIce(fn, total))));
  const icicle = h("div.icicle", null, bars, shade);
  dragOver(icicle, total, choose);
  choose(...(chosen || [0, total]));
  clearTimeout(pending); // the address has it already
  return { clear, body: [h("div.ends", null, first, last), icicle, said, tables] };
}

/** Call `choose` with the seconds between which somebody drags. */
function dragOver(icicle, total, choose) {
  let begun = null, moved = false, frame = 0;
  const second = (event) => {
    const box = icicle.getBoundingClientRect();
    return (total * (event.clientX - box.left)) / box.width;
  };
  icicle.addEventListener("pointerdown", (event) => { if (event.button === 0) [begun, moved] = [event, false]; });
  icicle.addEventListener("pointermove", (event) => {
    if (!begun || (!moved && Math.abs(event.clientX - begun.clientX) < DRAG)) return;
    if (!moved) icicle.setPointerCapture(event.pointerId);
    moved = true;
    cancelAnimationFrame(frame);
    const ends = [second(begun), second(event)];
    frame = requestAnimationFrame(() => choose(...ends));
  });
  for (const end of ["pointerup", "pointercancel"]) icicle.addEventListener(end, () => { begun = null; });
  icicle.addEventListener("dragstart", (event) => event.preventDefault()); // of a link
  icicle.addEventListener("click", (event) => { if (moved) { event.preventDefault(); moved = false; } }, true);
}

/** All time, end to end as the icicle draws it: [seconds, function, compile, phase, step]. */
function piecesOfTime(functions) {
  const pieces = [];
  for (const fn of functions) {
    const elsewhere = new Map(fn.phases); // compiles that this page does not hold
    for (const slug of fn.compiles) {
      const one = compileBySlug.get(slug);
      for (const [phase, seconds] of one.phases) {
        let rest = seconds;
        for (const [name, part] of one.steps.filter((step) => step[2] === phase)) { pieces.push([part, fn, one, phase, name]); rest -= part; }
        pieces.push([Math.max(rest, 0), fn, one, phase, ""]);
        elsewhere.set(phase, (elsewhere.get(phase) || 0) - seconds);
      }
    }
    for (const [phase, seconds] of elsewhere) pieces.push([Math.max(seconds, 0), fn, null, phase, ""]);
  }
  return pieces;
}

/** Sum what lies between two instants. */
function timeWithin(pieces, from, to) {
  const found = { functions: new Map(), compiles: new Map(), phases: new Map(), steps: new Map() };
  const add = (sums, key, part) => sums.set(key, (sums.get(key) || 0) + part);
  let at = 0;
  for (const [seconds, fn, one, phase, step] of pieces) {
    const part = Math.min(at + seconds, to) - Math.max(at, from);
    at += seconds;
    if (!(part > 1e-9)) continue;
    if (!found.functions.has(fn)) found.functions.set(fn, new Map());
    add(found.functions.get(fn), phase, part);
    add(found.phases, phase, part);
    if (one) add(found.compiles, one, part);
    if (one && step) add(found.steps, `${step}\n${phase}`, part);
  }
  return found;
}

const sumOf = (sums) => [...sums.values()].reduce((sum, part) => sum + part, 0);

function timeTables(found, total) {
  const spent = sumOf(found.phases);
  const functions = [...found.functions].map(([fn, phases]) => [fn, phases, sumOf(phases)]).sort((a, b) => b[2] - a[2]);
  const rows = functions.slice(0, MOST_TIMED).map(([fn, phases, all]) => h("tr", null,
    h("td", null, h("a.row", { href: link.fn(fn.name) }, fn.name)),
    DATA.phaseOrder.map((phase) => h("td.num", null, phases.has(phase) ? duration(phases.get(phase)) : "–")),
    h("td.num", null, h("b", null, duration(all)))));
  const columns = ["function", ...DATA.phaseOrder.map((phase) => [phase, "num"]), ["all", "num"]];
  return [
    legend(DATA.phaseOrder.filter((phase) => found.phases.has(phase)).map((phase) => [phase, found.phases.get(phase)])),
    linesPart(found, spent),
    section("Functions and phases", "wall time, no instant counted twice", table(columns, rows, { wide: "Functions and phases" }), more(functions, MOST_TIMED, "#/functions", "function")),
    stepsPart(found, spent),
  ];
}

const MOST_STEPS = 20, MOST_TIMED = 50;

function stepsPart(found, spent) {
  if (!found.steps.size) return null;
  const rows = [...found.steps].sort((a, b) => b[1] - a[1]).slice(0, MOST_STEPS).map(([key, seconds]) => h("tr", null,
    key.split("\n").map((words, n) => h(n ? "td" : "td.mono", null, words)), h("td.num", null, duration(seconds)), h("td.num", null, percent(seconds, spent))));
  return section("Steps", "own time: without the steps inside", table(["step", "phase", ["own time", "num"], ["share", "num"]], rows, { wide: "Steps" }));
}

function functionIce(fn, total) {
  return ice(fn.title, fn.seconds, total, "fn", fn.compiles.map((slug) => compileIce(compileBySlug.get(slug), total)), link.fn(fn.name));
}

function compileIce(one, total) {
  const phases = one.phases.map(([phase, seconds]) => ice(phase, seconds, total, phaseClass(phase),
    one.steps.filter((step) => step[2] === phase).map(([name, part]) => ice(name, part, total, `${phaseClass(phase)}.step`, []))));
  return ice(bracket(one.slug), one.seconds, total, "compile", phases, link.compile(one.slug));
}

/** One piece: a bar as wide as its share, above its parts. `time` is how its seconds are written. */
function ice(name, seconds, total, kind, parts, href, time = duration(seconds)) {
  const share = seconds / total;
  if (!(share > 0)) return null;
  const words = `${name} ${time}`;
  const about = { title: `${name}: ${time} (${percent(seconds, total)})` };
  const wide = share > 0.03 ? words : "";
  const bar = h(`${href ? "a" : "span"}.bar-piece${kind ? `.${kind}` : ""}`, { ...about, href, tabindex: href ? "-1" : null, "aria-hidden": "true" }, wide);
  return h("div.ice", { grow: share * 100 }, bar, kidsOf(parts, share * 100));
}

/** The parts that can be seen, each where its time is; what is too narrow leaves a gap. */
function kidsOf(parts, width) {
  const kids = [];
  let gap = 0, grown = 0;
  const close = () => { if (gap > 0.01) kids.push(h("div.ice", { grow: gap })); gap = 0; };
  for (const one of parts.filter(Boolean)) {
    const grow = Number(one.style.flexGrow);
    grown += grow;
    if (grow < LEAST_SHARE * 100) { gap += grow; continue; }
    close();
    kids.push(one);
  }
  if (!kids.length) return null;
  gap += width - grown;
  close();
  return h("div.kids", null, kids);
}

/** The icicle as Chrome trace events (microseconds), laid end to end: for Perfetto and speedscope. */
function chromeTrace() {
  const events = [];
  let at = 0;
  const put = (name, cat, begin, seconds) => events.push({ name, cat, ph: "X", pid: 0, tid: 0, ts: Math.round(begin * 1e6), dur: Math.round(seconds * 1e6) });
  for (const fn of DATA.functions) {
    put(fn.name, "function", at, fn.seconds);
    for (const slug of fn.compiles) {
      const one = compileBySlug.get(slug);
      put(bracket(slug), "compile", at, one.seconds);
      for (const [phase, seconds] of one.phases) {
        put(phase, "phase", at, seconds);
        let inner = at;
        for (const [name, part] of one.steps.filter((step) => step[2] === phase)) { put(name, "step", inner, part); inner += part; }
        at += seconds;
      }
    }
  }
  return { traceEvents: events, displayTimeUnit: "ms" };
}

const MOST_LINES_OF_TIME = 15;

/** The lines of the user whose operations took longest to compile. */
function linesPart(found, spent) {
  const secondsOf = (line) => line[9].reduce((sum, [number, seconds]) => {
    const one = DATA.compiles[number], part = found.compiles.get(one);
    return part ? sum + (seconds * part) / one.seconds : sum;
  }, 0);
  const all = DATA.files.flatMap((file) => file.lines.filter((line) => line[9].length).map((line) => [file, line, secondsOf(line)]));
  const most = all.filter((row) => row[2] > 0.002 * spent).sort((a, b) => b[2] - a[2]).slice(0, MOST_LINES_OF_TIME);
  if (!most.length) return null;
  const rows = most.map(([file, line, seconds]) => h("tr", null,
    h("td.mono", null, h("a.row", { href: link.src(file.name, line[0]) }, `${file.name}:${line[0]}`)), h("td", null, h("code", null, coloured(line[1].trim(), "python"))),
    h("td.num", null, line[3]), h("td.num", null, duration(seconds)), h("td.num", null, percent(seconds, spent))));
  return section("Your lines", "estimated, not measured: the time of a compile, shared out by the number of operations that each line became", table(["line", "source", ["ops", "num"], ["estimate", "num"], ["share", "num"]], rows, { wide: "Your lines" }));
}
