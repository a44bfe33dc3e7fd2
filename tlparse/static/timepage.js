// Where the time went, as an icicle: everything, by function, by compile, by phase, by step.

const LEAST_SHARE = 0.004; // narrower pieces are gathered

function timePage() {
  const total = DATA.totals.seconds;
  const functions = [...DATA.functions].filter((fn) => fn.seconds > 0).sort((a, b) => b.seconds - a.seconds);
  const rows = functions.map((fn) => h("tr", null,
    h("td", null, h("a.row", { href: link.fn(fn.name) }, fn.name)),
    DATA.phaseOrder.map((phase) => h("td.num", null, phaseSeconds(fn, phase))),
    h("td.num", null, h("b", null, duration(fn.seconds)))));
  const columns = ["function", ...DATA.phaseOrder.map((phase) => [phase, "num"]), ["all", "num"]];
  return {
    title: "Time",
    crumbs: [["time"]],
    wide: true,
    body: [
      lead("Where the time went", total ? `${duration(total)} of compiling${DATA.laneCount > 1 ? `, all ${DATA.laneCount} processes together` : ""}` : "The trace records no time."),
      total > 0 && [
        legend(DATA.phases),
        h("div.icicle", { role: "group", "aria-label": "Time by function, compile, phase and step; the table below has the numbers" },
          ice("all", total, total, "", functions.map((fn) => functionIce(fn, total)))),
        linesPart(total),
        section("Functions and phases", "wall time, no instant counted twice", table(columns, rows, { wide: "Functions and phases" })),
      ],
    ],
  };
}

function phaseSeconds(fn, name) {
  const found = phasesOf(fn).find(([phase]) => phase === name);
  return found ? duration(found[1]) : "–";
}

function functionIce(fn, total) {
  return ice(fn.title, fn.seconds, total, "fn", fn.compiles.map((slug) => compileIce(compileBySlug.get(slug), total)), link.fn(fn.name));
}

function compileIce(one, total) {
  const phases = one.phases.map(([phase, seconds]) => ice(phase, seconds, total, phaseClass(phase),
    one.steps.filter((step) => step[2] === phase).map(([name, part]) => ice(name, part, total, `${phaseClass(phase)}.step`, []))));
  return ice(bracket(one.slug), one.seconds, total, "compile", phases, link.compile(one.slug));
}

/** One piece: a bar as wide as its share, above its parts. */
function ice(name, seconds, total, kind, parts, href) {
  const share = seconds / total;
  if (!(share > 0)) return null;
  const words = `${name} ${duration(seconds)}`;
  const about = { title: `${name}: ${duration(seconds)} (${percent(seconds, total)})` };
  const wide = share > 0.03 ? words : "";
  const bar = h(`${href ? "a" : "span"}.bar-piece${kind ? `.${kind}` : ""}`, { ...about, href, tabindex: href ? "-1" : null, "aria-hidden": "true" }, wide);
  const shown = parts.filter((one) => one && Number(one.style.flexGrow) >= LEAST_SHARE * 100);
  const told = shown.reduce((sum, one) => sum + Number(one.style.flexGrow), 0);
  const rest = share * 100 - told;
  return h("div.ice", { grow: share * 100 }, bar,
    shown.length > 0 && h("div.kids", null, shown, rest > 0.01 && h("div.ice", { grow: rest })));
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
function linesPart(total) {
  const all = DATA.files.flatMap((file) => file.lines.filter((line) => line[9] > 0.002 * total).map((line) => [file, line]));
  if (!all.length) return null;
  const rows = all.sort((a, b) => b[1][9] - a[1][9]).slice(0, MOST_LINES_OF_TIME).map(([file, line]) => h("tr", null,
    h("td.mono", null, h("a.row", { href: link.src(file.name, line[0]) }, `${file.name}:${line[0]}`)), h("td", null, h("code", null, coloured(line[1].trim(), "python"))),
    h("td.num", null, line[3]), h("td.num", null, duration(line[9])), h("td.num", null, percent(line[9], total))));
  return section("Your lines", "the time of a compile, shared out by the operations that each line became", table(["line", "source", ["ops", "num"], ["time", "num"], ["share", "num"]], rows, { wide: "Your lines" }));
}
