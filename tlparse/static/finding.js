// A finding: what, where, why, how to fix it, and where it was seen.

function findingPage(id) {
  const finding = findingById.get(id);
  if (!finding) return missingPage(`finding ${id}`);
  const index = DATA.findings.indexOf(finding);
  const badges = [
    codeChip(finding),
    finding.reference && h("span.code", null, finding.reference),
    h("span.soft", null, `${finding.count}×`, finding.cost && ` · ${finding.cost}`),
  ];
  return {
    title: `${finding.id} ${finding.title}`,
    crumbs: [[finding.id]],
    previous: siblingLink(DATA.findings, index - 1, (one) => link.finding(one.id)),
    next: siblingLink(DATA.findings, index + 1, (one) => link.finding(one.id)),
    body: [
      lead(titleOf(finding), null, badges),
      finding.place && h("p", null, sourceLink(finding.where.file, finding.where.line, finding.place)),
      finding.behind && h("p.soft", null, "in the library at ", h("code.inline", null, finding.behind)),
      sourceLine(finding.where),
      section("Why", null, h("p", null, whyOf(finding))),
      section(
        finding.fixes.length > 1 ? "Ways to fix it" : "Fix", null,
        h(`div.card.${family(finding)}`, null, fixes(finding.fixes))),
      finding.causes.length > 0 && section("What changed", "between compiles", valuesTable(finding.causes)),
      forecastPart(finding),
      seenPart(finding),
      finding.stack.length > 0 && section("How the program got there", "innermost last", stackTable(
        finding.stack.map((frame) => [frame.file, frame.line, frame.function, frame.source]))),
      finding.evidence && h("section", null, h("details", null,
        h("summary", null, "In the compiler's words"), h("pre.words", null, finding.evidence))),
      h("p.soft.terminal", null, "In a terminal: ", h("code", null, finding.next), " ",
        copyButton(finding.next, "the command")),
    ],
  };
}

function forecastPart(finding) {
  if (!finding.forecast.length) return null;
  const rows = finding.forecast.map((text) => {
    const [, sources, change] = /^(.*): (.*)$/.exec(text);
    const names = sources.split(", ").map((one) => [h("code.inline", null, one), " "]);
    return h("tr", null, h("td", null, names), h("td.num", null, change));
  });
  const note = "predicted, by playing the recorded guards through; each line on top of the ones above";
  return section("What would help", note, table(["if this no longer changed", ["recompiles", "num"]], rows));
}

const MOST_SEEN = 200;

function seenPart(finding) {
  const many = DATA.lanes.length > 1;
  const rows = finding.occurrences.slice(0, MOST_SEEN).map((one) => h("tr", null,
    h("td", null, one.compile ? compileChip(one.compile) : "–"),
    many && h("td", null, one.lane || "–"),
    h("td.mono.soft", null, one.time ? one.time.slice(6, 18) : "–"),
    h("td", null, h("span.plain", null, one.detail || "–")),
    h("td.mono", null,
      one.artifact >= 0 && compileBySlug.has(one.compile) && [h("a", { href: link.artifact(one.compile, one.artifact) }, "record"), " "],
      h("span.soft", null, one.record))));
  const rest = finding.count - rows.length;
  return section("Seen", count(finding.count, "time"),
    table(["compile", ...(many ? ["where"] : []), "time", "detail", "trace"], rows),
    rest > 0 && h("p.soft", null, `and ${rest} more`));
}
