// The pages below the first: a finding, a function, a compile, the raw trace.

function findingPage(id) {
  const finding = findingById.get(id);
  if (!finding) return missingPage(`finding ${id}`);
  const kind = family(finding.code);
  const where = finding.where;
  const index = DATA.findings.indexOf(finding);
  const causes = finding.causes.map((one) => [one.source, one.old, one.new, false]);
  const seen = finding.occurrences.map((one) => h("tr", null,
    h("td", null, one.compile ? compileChip(one.compile) : "–"),
    h("td", null, one.lane || "–"), h("td.mono.soft", null, one.time ? one.time.slice(6, 18) : "–"),
    h("td", null, h("span.plain", null, one.detail || "–")),
    h("td.mono", null, one.artifact >= 0 ? h("a", { href: link.artifact(one.compile, one.artifact) }, "record") : "", " ", h("span.soft", null, one.record))));
  return {
    title: `${finding.code} ${finding.title}`,
    crumbs: [[finding.id]],
    previous: siblingLink(DATA.findings, index - 1, (one) => link.finding(one.id)),
    next: siblingLink(DATA.findings, index + 1, (one) => link.finding(one.id)),
    body: [
      lead(titleOf(finding), null, [codeChip(finding), finding.reference && h("span.code", null, finding.reference), h("span.soft", null, `${finding.count}×`, finding.cost && ` · ${finding.cost}`)]),
      finding.place && h("p", null, h("span.mono", { title: where.file }, finding.place)),
      sourceLine(where),
      section("Why", null, h("p", null, whyOf(finding))),
      section(finding.fix.length > 1 ? "Ways to fix it" : "Fix", null, h(`div.card.${kind}`, null, fixes(finding.fix))),
      causes.length > 0 && kind === "recompile" && section("What changed", "between compiles", causesTable(causes)),
      finding.forecast.length > 0 && section("What would help", "predicted, by playing the recorded guards through; each line on top of the ones above",
        table(["if this no longer changed", ["recompiles", "num"]], finding.forecast.map((text) => {
          const [, sources, change] = /^(.*): (.*)$/.exec(text);
          return h("tr", null, h("td", null, sources.split(", ").map((one) => [h("code.inline", null, one), " "])), h("td.num", null, change));
        }))),
      section("Seen", count(finding.occurrences.length, "time"), table(["compile", "where", "time", "detail", "trace"], seen.slice(0, 200)),
        seen.length > 200 && h("p.soft", null, `and ${seen.length - 200} more`)),
      finding.stack.length > 0 && section("How the program got there", "innermost last", stackTable(finding.stack.map((f) => [f.file, f.line, f.function, f.source]))),
      finding.evidence && h("section", null, h("details", null, h("summary", null, "In the compiler's words"), h("pre.words", null, finding.evidence))),
      h("p.soft.terminal", null, "In a terminal: ", h("code", null, finding.next), " ", copyButton(finding.next, "the command")),
    ],
  };
}

function siblingLink(list, index, make) {
  return index >= 0 && index < list.length ? make(list[index]) : null;
}

function stackTable(frames) {
  return table(["where", "function", "line"], frames.map(([file, line, name, code]) =>
    h("tr", { class: /site-packages|lib\/python\d/.test(file) ? "soft" : "" },
      h("td.mono", { title: file }, place(file, line)), h("td.mono", null, name), h("td", null, h("code", null, code || "")))));
}

function ledgerTable(fn) {
  const book = fn.ledger;
  if (!book) return null;
  const rows = book.rows.map((row) => {
    const compiled = compileBySlug.get(row.compile);
    const changed = book.columns.filter((_, n) => row.changed[n]);
    return h("tr", null,
      h("th", { scope: "row" }, row.refused ? h("a", { href: link.compile(row.compile) }, "refused") : compileChip(row.compile)),
      row.cells.map((cell, n) => h(`td.mono${row.changed[n] ? ".changed" : ""}`, { "aria-label": row.changed[n] ? `${cell}, changed` : null }, cell)),
      h("td", null, row.refused ? "limit reached: runs in Python" : changed.length ? changed.join(", ") : row.of ? "" : "first call"),
      h("td.mono.soft", null, row.of ? bracket(row.of) : ""),
      h("td.num", null, compiled ? duration(compiled.seconds) : ""),
      h("td.soft", null, compiled ? compiled.cache || "–" : ""));
  });
  const columns = ["compile", ...book.columns.map((one) => [one, "src"]), "what changed", "nearest", ["time", "num"], "cache"];
  return section("Ledger", "each compile, and the inputs it was made for; ◂ marks what differs from the nearest earlier one",
    table(columns, rows, { class: ".ledger", wide: "Ledger of compiles" }));
}

function functionPage(name) {
  const fn = functionByName.get(name);
  if (!fn) return missingPage(`function ${name}`);
  const index = DATA.functions.indexOf(fn);
  const mine = DATA.findings.filter((one) => one.occurrences.some((seen) => fn.compiles.includes(seen.compile) || (compileBySlug.get(seen.compile) || {}).function === name));
  const rows = fn.compiles.map((slug) => {
    const one = compileBySlug.get(slug);
    return h("tr", null, h("td", null, h("a.chip.row", { href: link.compile(slug) }, bracket(slug))), h("td", null, state(one.status)),
      h("td.soft", null, one.lane), h("td.num", null, duration(one.seconds)), h("td", null, one.phases.length ? splitBar(one.phases, true) : ""),
      h("td.soft", null, one.cache || "–"), h("td.num", null, one.artifacts.length));
  });
  return {
    title: fn.name,
    crumbs: [[fn.name]],
    previous: siblingLink(DATA.functions, index - 1, (one) => link.fn(one.name)),
    next: siblingLink(DATA.functions, index + 1, (one) => link.fn(one.name)),
    body: [
      lead(fn.name, null, [state(fn.refused ? "refused" : fn.status), h("span.mono.soft", { title: `${fn.file}:${fn.line}` }, place(fn.file, fn.line)),
        h("span.soft", null, `${count(fn.compiles.length, "compile")} · ${duration(fn.seconds)}`)]),
      mine.length > 0 && section("Needs attention", null, h("div.cards", null, mine.map(findingCard))),
      ledgerTable(fn),
      section("Compiles", null, table(["compile", "status", "process", ["time", "num"], "phases", "cache", ["artifacts", "num"]], rows)),
    ],
  };
}

function compilePage(slug, number) {
  const one = compileBySlug.get(slug);
  if (!one) return missingPage(`compile ${bracket(slug)}`);
  const list = one.real ? realCompiles : DATA.compiles.filter((other) => !other.real);
  const index = list.indexOf(one);
  const wanted = number === null ? defaultArtifact(one) : number;
  const findings = one.findings.map((id) => findingById.get(id)).filter(Boolean);
  const facts = [one.lane, `${duration(one.seconds)}`, count(one.attempts, "attempt"), one.cache && `cache ${one.cache}`];
  return {
    title: `${bracket(slug)} ${one.title}`,
    crumbs: [one.function && [one.function, link.fn(one.function)], [bracket(slug)]].filter(Boolean),
    previous: siblingLink(list, index - 1, (other) => link.compile(other.slug)),
    next: siblingLink(list, index + 1, (other) => link.compile(other.slug)),
    keep: `c/${slug}`,
    body: [
      lead([h("span.soft", null, bracket(slug)), " ", one.title], null,
        [state(one.status), one.file && h("span.mono.soft", { title: `${one.file}:${one.line}` }, place(one.file, one.line)), h("span.soft", null, facts.filter(Boolean).join(" · "))]),
      one.phases.length > 0 && [splitBar(one.phases), legend(one.phases)],
      findings.length > 0 && section("Found here", null, h("div.cards", null, findings.map(findingCard))),
      one.causes.length > 0 && section("Why it was compiled again", one.of && `compared with ${bracket(one.of)}, the nearest earlier compile`, causesTable(one.causes)),
      section("Artifacts", `${one.artifacts.length}, in the order they were made`, viewer(one, wanted)),
      compileDetails(one),
    ],
  };
}

function compileDetails(one) {
  const parts = [];
  if (one.reasons.length) parts.push(h("details", null, h("summary", null, "What each earlier compile refused, in the compiler's words"),
    h("pre.words", null, one.reasons.map(([of, text]) => `[${of}] ${text}`).join("\n\n"))));
  if (one.steps.length) parts.push(h("details", null, h("summary", null, "Time by step"),
    table(["step", "phase", ["own time", "num"]], one.steps.map(([name, seconds, phase]) => h("tr", null, h("td.mono", null, name), h("td", null, phase), h("td.num", null, duration(seconds)))))));
  if (one.metrics.length) parts.push(h("details", null, h("summary", null, "Numbers"),
    h("dl.pair", null, one.metrics.map(([name, value]) => [h("dt", null, name.replaceAll("_", " ")), h("dd.mono", null, value)]))));
  if (one.stack.length) parts.push(h("details", null, h("summary", null, "Called from"), stackTable(one.stack)));
  return parts.length ? h("section", null, h("div.head", null, h("h2", null, "Details")), parts) : null;
}

function defaultArtifact(one) {
  for (const name of ["tc_error", "dynamo_error", "dynamo_output_graph", "inductor_output_code"]) {
    const found = one.artifacts.find((artifact) => artifact[1] === name);
    if (found) return found[0];
  }
  return one.artifacts.length ? one.artifacts[0][0] : null;
}

function viewer(one, wanted) {
  const sheet = h("div.sheet");
  const groups = DATA.stages.map((stage, number) => [stage, one.artifacts.filter((artifact) => artifact[3] === number)]);
  const list = h("nav.list", { "aria-label": "Artifacts" }, groups.filter(([, items]) => items.length).map(([stage, items]) => [
    h("h3", null, stage),
    items.map(([number, name, words, , , attempt, , size]) => h("a.row", { href: link.artifact(one.slug, number), title: name, "data-artifact": number },
      h("span", null, words, attempt > 0 && ` (attempt ${attempt + 1})`), h("small", null, bytes(size))))]));
  const pane = h("div.viewer", null, list, sheet);
  if (wanted !== null) showArtifact(one, wanted, list, sheet);
  pane.show = (number) => showArtifact(one, number, list, sheet);
  pane.id = "viewer";
  return pane;
}

const FIRST_LINES = 1500;

async function showArtifact(one, number, list, sheet) {
  const artifact = one.artifacts[number];
  for (const item of list.querySelectorAll("a")) {
    if (item.dataset.artifact === String(number)) item.setAttribute("aria-current", "true");
    else item.removeAttribute("aria-current");
  }
  if (!artifact) {
    sheet.replaceChildren(h("header", null, h("b", null, `There is no artifact ${number} here`)));
    return;
  }
  const [, name, words, , kind, , note, , record] = artifact;
  const lines = h("div.lines", { tabindex: "0", role: "region", "aria-label": words });
  sheet.replaceChildren(h("header", null, h("b", null, words), h("span.soft", null, [name, note, record].filter(Boolean).join(" · "))), lines);
  let text;
  try {
    text = (await textsOf(one))[number];
  } catch {
    lines.append(h("div.more", null, "This browser cannot unpack the text (it lacks DecompressionStream)."));
    return;
  }
  if (!sheet.contains(lines)) return;
  const shown = kind === "json" ? pretty(text) : text;
  sheet.firstChild.append(
    h("button.copy", { type: "button", "aria-pressed": "false", click: (event) => event.target.setAttribute("aria-pressed", String(lines.classList.toggle("wrap"))) }, "Wrap"),
    copyButton(text, words));
  const rows = shown.replace(/\n$/, "").split("\n");
  fillLines(lines, rows, kind, 0);
}

function fillLines(lines, rows, kind, from) {
  const until = Math.min(rows.length, from + FIRST_LINES);
  lines.append(fragment(rows.slice(from, until).map((row) => h("div", null, coloured(row.length > 20000 ? `${row.slice(0, 20000)} …` : row, kind)))));
  if (until < rows.length) {
    const more = h("div.more", null, h("button.copy", { type: "button", click: () => { more.remove(); fillLines(lines, rows, kind, until); } }, `Show more (${rows.length - until} lines)`));
    lines.append(more);
  }
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

const DEFECT_WORDS = {
  truncated: "cut off at the end", bad_json: "JSON that cannot be parsed", payload_md5: "contents that do not match their checksum",
  payload_missing: "contents that are announced and missing", no_header: "lines that are no records", orphan_payload: "contents without a record",
  bad_utf8: "bytes that are no UTF-8", bad_record: "records of an unexpected form", no_event: "records without an event",
  many_events: "records with several events", unknown_string: "strings defined in another log",
};

function rawPage() {
  const raw = DATA.raw;
  const loose = DATA.compiles.filter((one) => !one.real && one.artifacts.length);
  return {
    title: "The trace",
    crumbs: [["trace"]],
    body: [
      lead("The trace", `${count(raw.records, "record")}, ${count(raw.strings, "interned string")}, ${count(raw.sources.length, "log")}`),
      section("Damage", null, raw.defects.length
        ? table(["kind", ["count", "num"], "where"], raw.defects.map(([kind, n, places]) => h("tr", null, h("td", null, DEFECT_WORDS[kind] || kind), h("td.num", null, n), h("td.mono", null, h("span.plain", null, places.join("  "))))))
        : h("div.calm", null, "✓ Every record could be read, and every checksum matches.")),
      section("Records by event", null, table(["event", ["count", "num"], ""], raw.events.map(([name, n, known]) => h("tr", null, h("td.mono", null, name), h("td.num", null, n), h("td.soft", null, known ? "" : "not known to this version: shown as it is"))))),
      section("Logs", null, table(["file", ["size", "num"]], raw.sources.map(([name, size]) => h("tr", null, h("td.mono", null, name), h("td.num", null, bytes(size)))))),
      loose.length > 0 && section("Outside of any compile", "records that belong to no compile, or to one that was refused", h("p", null, loose.map((one) => [h("a.chip.row", { href: link.compile(one.slug) }, bracket(one.slug)), ` ${count(one.artifacts.length, "artifact")} `]))),
      section("Environment", null, DATA.environment.length ? h("dl.pair", null, DATA.environment.map(([name, value]) => [h("dt", null, name), h("dd.mono", null, value)])) : h("p.soft", null, "The trace does not say.")),
    ],
  };
}

function missingPage(what) {
  return {
    title: "Not in this report", crumbs: [["not found"]],
    body: [lead("Not in this report", `There is no ${what} here. It may come from another run.`), h("p", null, h("a.row", { href: "#/" }, "To the overview"))],
  };
}
