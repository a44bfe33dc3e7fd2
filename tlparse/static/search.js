// The search box: names at once, and right after them the lines of the artifacts' texts.

const searchBox = document.getElementById("search");
const namesNow = () => [
  ...DATA.findings.map((one) => [one.title, `${one.id} ${one.place}`, link.finding(one.id)]),
  ...DATA.functions.map((one) => [one.name, place(one.file, one.line), link.fn(one.name)]),
  ...DATA.compiles.map((one) => [`${bracket(one.slug)} ${one.title}`, one.lane, link.compile(one.slug)]),
  ...DATA.compiles.flatMap((one) => one.artifacts.map((artifact) =>
    [`${bracket(one.slug)} ${nameOf(artifact)}`, artifact[1], link.artifact(one.slug, artifact[0])])),
  ...DATA.files.map((one) => [one.name, "your source", link.src(one.name)]),
  ["Where the time went", "", "#/time"],
  ["Cache: hits and misses", "", "#/cache"],
  ...(DATA.ranks.groups.length ? [["Ranks", "", "#/ranks"]] : []),
  ["The trace: records, damage, environment", "", "#/raw"],
];
const commandsNow = () => [
  ...SCREENS.map(([name, href], n) => [`Go to ${name.toLowerCase()}`, `${n + 1}`, href]),
  ["Light or dark", "t", () => toggleTheme()], ["Copy the link of this page", "y", () => copyText(location.href)],
  ["Copy a summary for an issue", "", () => copyText(summaryText())],
  ["Copy the time as a Chrome trace", "", () => copyText(JSON.stringify(chromeTrace()))],
  ["Mark this artifact to compare it", "d", () => markForDiff()], ["Keys and words", "?", () => openKeys()], ["Print", "", () => print()],
];
let names = null, namesOf = null; // made once for each state of the trace
const MOST_HITS = 60;
const PATIENCE = 180; // milliseconds without a key, before texts are looked through
const AT_ONCE = 48e6; // bytes of texts that are unpacked unasked

/** What a bug report begins with. */
function summaryText() {
  const rows = DATA.findings.map((one) => `- ${one.id} ×${one.count} ${one.title}${one.place ? ` (${one.place})` : ""}${one.fix.length ? `: ${one.fix[0]}` : ""}`);
  return [DATA.headline, ...rows].join("\n");
}
let chosen = 0;

function openSearch(begin = "") {
  const input = h("input", {
    type: "text", role: "combobox", "aria-controls": "hits", "aria-expanded": "true", "aria-autocomplete": "list", placeholder: "Finding, function, [0/2], artifact …",
    "aria-label": "Search", autocomplete: "off", spellcheck: "false",
  });
  const list = h("ul", { id: "hits", role: "listbox", "aria-label": "Results" });
  const hint = h("div.hint", { role: "status" });
  let waiting = 0;
  const update = () => {
    showHits(list, hint, matches(input.value));
    clearTimeout(waiting);
    asked++; // whatever is under way is of no interest any more
    waiting = setTimeout(() => searchTexts(input.value, list, hint, AT_ONCE), PATIENCE);
  };
  input.addEventListener("input", update);
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      choose(list, chosen + (event.key === "ArrowDown" ? 1 : -1));
      event.preventDefault();
    } else if (event.key === "Enter") {
      clearTimeout(waiting);
      if (event.ctrlKey || !list.children.length) searchTexts(input.value, list, hint, Infinity);
      else list.children[chosen].firstChild.click();
      event.preventDefault();
    }
  });
  input.value = begin;
  searchBox.replaceChildren(input, list, hint);
  searchBox.showModal();
  update();
}

function matches(query) {
  const asked = query.startsWith(">");
  if (namesOf !== DATA) [names, namesOf] = [namesNow(), DATA];
  const words = query.slice(asked ? 1 : 0).toLowerCase().split(/\s+/).filter(Boolean);
  const hits = (asked ? commandsNow() : names).filter(([name, note]) => {
    const text = `${name} ${note}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
  return hits.slice(0, MOST_HITS);
}

function hitRow([name, note, href], within) {
  return h(`li${within ? ".within" : ""}`, { role: "presentation" },
    h("a", { href: typeof href === "string" ? href : location.hash || "#/", role: "option", tabindex: "-1", click: (event) => {
      searchBox.close();
      if (typeof href === "function") { event.preventDefault(); href(); }
    } }, h("span", null, name), h("small", null, note)));
}

function showHits(list, hint, hits) {
  list.replaceChildren(...hits.map((hit) => hitRow(hit, false)));
  hint.replaceChildren("Type to search names and texts, > for commands · ↑↓ to choose · Enter to open · Esc to close");
  choose(list, 0);
}

function choose(list, index) {
  const all = list.children;
  chosen = Math.max(0, Math.min(index, all.length - 1));
  [...all].forEach((item, n) => {
    item.firstChild.id = `hit-${n}`;
    item.firstChild.setAttribute("aria-selected", String(n === chosen));
  });
  searchBox.querySelector("input")?.setAttribute("aria-activedescendant", all[chosen] ? `hit-${chosen}` : "");
  if (all[chosen]) all[chosen].scrollIntoView({ block: "nearest" });
}

/** The first line of a text that holds all words. */
function lineWith(text, words) {
  const lower = text.toLowerCase();
  for (let at = lower.indexOf(words[0]); at >= 0; at = lower.indexOf(words[0], at + 1)) {
    const from = lower.lastIndexOf("\n", at) + 1, to = lower.indexOf("\n", at);
    if (words.every((word) => lower.slice(from, to < 0 ? undefined : to).includes(word))) return [text.slice(from, to < 0 ? undefined : to), at - from];
    if (to < 0) return null;
    at = to;
  }
  return null;
}

/** A line around the place found, what was found marked. */
function excerpt(line, at, length) {
  const from = Math.max(0, at - 50), cut = line.slice(from, from + 120), start = at - from;
  return [from > 0 ? "…" : "", cut.slice(0, start).trimStart(), h("mark", null, cut.slice(start, start + length)), cut.slice(start + length)];
}

let asked = 0;

/** Add what the texts hold to the hits, as far as `most` bytes of them; another search ends this one. */
async function searchTexts(query, list, hint, most) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean).sort((a, b) => b.length - a.length);
  if (query.startsWith(">") || !words.length || words[0].length < 2) return;
  const mine = ++asked;
  const named = [...list.children].filter((row) => !row.matches(".within"));
  const rows = [];
  let bytes = 0, seen = 0, paused = performance.now();
  hint.textContent = "Searching the texts …";
  for (const one of DATA.compiles) {
    bytes += one.artifacts.reduce((sum, artifact) => sum + artifact[7], 0);
    if (rows.length >= MOST_HITS || (seen && bytes > most)) break;
    let texts;
    try { texts = await textsOf(one); } catch { hint.textContent = "This browser cannot unpack the texts (it lacks DecompressionStream)."; return; }
    if (performance.now() - paused > 12) { // keys come first
      await new Promise((resolve) => { setTimeout(resolve); });
      paused = performance.now();
    }
    if (mine !== asked || !list.isConnected) return;
    texts.forEach((text, number) => {
      const found = rows.length < MOST_HITS && lineWith(text, words);
      if (!found) return;
      rows.push(hitRow([excerpt(...found, words[0].length), `${bracket(one.slug)} ${nameOf(one.artifacts[number])}`, link.artifact(one.slug, number)], true));
    });
    seen++;
  }
  const before = chosen;
  list.replaceChildren(...named, ...rows);
  choose(list, before);
  const message = rows.length ? `${count(rows.length, "artifact")}${rows.length >= MOST_HITS ? " or more" : ""} with “${query.trim()}”` : `No artifact holds “${query.trim()}”`;
  const left = rows.length >= MOST_HITS ? 0 : DATA.compiles.length - seen;
  hint.replaceChildren(message, ...(left ? [` in the first ${count(seen, "compile")} · `, h("button.copy", { type: "button", click: () => searchTexts(query, list, hint, Infinity) }, `Search the other ${left} too (Ctrl-Enter)`)] : []));
}
