// The trace itself: damage, records, logs, environment. And the page for what is not there.

const DEFECT_WORDS = {
  truncated: "cut off at the end",
  bad_json: "JSON that cannot be parsed",
  payload_md5: "contents that do not match their checksum",
  payload_missing: "contents that are announced and missing",
  no_header: "lines that are no records",
  orphan_payload: "contents without a record",
  bad_utf8: "bytes that are no UTF-8",
  bad_number: "numbers that are not finite",
  bad_record: "records of an unexpected form",
  no_event: "records without an event",
  many_events: "records with several events",
  unknown_string: "strings defined in another log",
};

function rawPage() {
  const raw = DATA.raw;
  const counts = [count(raw.records, "record"), count(raw.strings, "interned string"), count(raw.logs, "log")];
  const events = raw.events.map(([name, n, known]) => h("tr", null,
    h("td.mono", null, name), h("td.num", null, n),
    h("td.soft", null, !known && "not known to this version: shown as it is")));
  const logs = raw.sources.map(([name, size]) =>
    h("tr", null, h("td.mono", null, name), h("td.num", null, bytes(size))));
  const facts = DATA.environment.map(([name, value]) => [h("dt", null, name), h("dd.mono", null, value)]);
  return {
    title: "The trace",
    crumbs: [["trace"]],
    body: [
      lead("The trace", counts.join(", ")),
      section("Damage", null, damagePart(raw.defects)),
      section("Records by event", null, table(["event", ["count", "num"], ""], events)),
      section("Logs", raw.logs > raw.sources.length && `the first ${raw.sources.length} of ${raw.logs}`, table(["file", ["size", "num"]], logs)),
      loosePart(),
      settingsPart(),
      section("Environment", null,
        facts.length ? h("dl.pair", null, facts) : h("p.soft", null, "The trace does not say.")),
    ],
  };
}

/** What is not at its default, of all compiles, or of one. */
function settingsPart(one) {
  const settings = DATA.settings;
  if (!settings.known) return one ? null : section("Settings", null, h("p.soft", null, "The trace has none."));
  const mine = settings.changed.filter((row) => !one || !row.compiles.length || row.compiles.includes(one.slug));
  if (one && !mine.length) return null;
  const exact = settings.exact ? "" : ", the nearest version known here: some may only have another default there";
  const rows = mine.map((row) => h("tr", null, h("td.mono", null, row.name),
    h("td.mono", null, h("span.plain", null, row.value)), h("td.mono.soft", null, h("span.plain", null, row.default)),
    !one && h("td", null, row.compiles.length ? chips(row.compiles) : h("span.soft", null, "all"))));
  const body = mine.length ? table(["setting", "value", "default", ...(one ? [] : ["compiles"])], rows)
    : h("div.calm", null, `✓ All settings in the trace are at the defaults of ${settings.known}.`);
  return one ? body : section("Settings", `those that are not at the defaults of ${settings.known}${exact}`, body);
}

function damagePart(defects) {
  if (!defects.length) return h("div.calm", null, "✓ Every record could be read, and every checksum matches.");
  const rows = defects.map(([kind, n, places]) => h("tr", null,
    h("td", null, DEFECT_WORDS[kind] || kind), h("td.num", null, n),
    h("td.mono", null, h("span.plain", null, places.join("  ")))));
  return table(["kind", ["count", "num"], "where"], rows);
}

function loosePart() {
  const loose = DATA.compiles.filter((one) => !one.real && one.artifacts.length);
  if (!loose.length) return null;
  const chipOf = (one) => [
    h("a.chip.row", { href: link.compile(one.slug) }, bracket(one.slug)),
    ` ${count(one.artifacts.length, "artifact")} `,
  ];
  return section("Outside of any compile", "records that belong to no compile, or to one that was refused",
    h("p", null, loose.map(chipOf)));
}

function missingPage(what) {
  return {
    title: "Not in this report",
    crumbs: [["not found"]],
    body: [
      lead("Not in this report", `There is no ${what} here. It may come from another run.`),
      h("p", null, h("a.row", { href: "#/" }, "To the overview")),
    ],
  };
}
