// The index is read at once; the texts of a compile are unpacked when they are first looked at.

let DATA, compileBySlug, findingById, functionByName, realCompiles, withCode, SCREENS;
const unpacked = new Map();

/** Take what the page is to show. A served page takes more when the trace has grown. */
function take(data) {
  DATA = data;
  compileBySlug = new Map(DATA.compiles.map((one) => [one.slug, one]));
  findingById = new Map(DATA.findings.map((one) => [one.id, one]));
  functionByName = new Map(DATA.functions.map((one) => [one.name, one]));
  realCompiles = DATA.compiles.filter((one) => one.real);
  withCode = DATA.compiles.filter((one) => one.code);
  SCREENS = screensOf();
  unpacked.clear();
}

/** What is packed of a compile, as the newest state of the trace has it. */
function packedOf(compiled, kind) {
  const id = `${kind}-${(compileBySlug.get(compiled.slug) || compiled).block}`;
  if (!unpacked.has(id)) {
    const state = DATA;
    unpacked.set(id, unpack(id).catch((error) => {
      if (DATA !== state) return packedOf(compiled, kind); // a served page has taken a newer one
      unpacked.delete(id);
      throw error;
    }));
  }
  return unpacked.get(id);
}

/** Texts of all artifacts of a compile, by number. */
const textsOf = (compiled) => packedOf(compiled, "block");

/** The texts of a split report lie beside it, each in a script that calls `tcBlock`. */
const awaited = new Map();
window.tcBlock = (id, packed) => awaited.get(id)(packed);
const besides = (id) => (DATA.live ? served(id) : new Promise((resolve, reject) => {
  awaited.set(id, resolve);
  document.head.append(h("script", { src: `${DATA.folder}/${id}.js`, error: () => reject(new Error(`no ${id}`)) }));
}));

/** A block is packed: a line with the sizes of its texts in bytes, then the texts. */
async function unpack(id) {
  const packed = atob(document.getElementById(id)?.textContent ?? await besides(id));
  const raw = new Uint8Array(packed.length);
  for (let i = 0; i < packed.length; i++) raw[i] = packed.charCodeAt(i);
  const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("gzip"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const words = new TextDecoder("utf-8", { ignoreBOM: true });
  let at = bytes.indexOf(10) + 1;
  return JSON.parse(words.decode(bytes.subarray(0, at))).map((size) => words.decode(bytes.subarray(at, (at += size))));
}

const link = {
  finding: (id) => `#/f/${encodeURIComponent(id)}`,
  fn: (name) => `#/fn/${encodeURIComponent(name)}`,
  compile: (slug) => `#/c/${encodeURI(slug)}`,
  code: (slug, way) => `#/c/${encodeURI(slug)}/code${way ? `/${encodeURIComponent(way)}` : ""}`,
  graph: (slug, number) => `#/c/${encodeURI(slug)}/graph${number === undefined ? "" : `/${number}`}`,
  passes: (slug, number) => `#/c/${encodeURI(slug)}/passes${number === undefined ? "" : `/${number}`}`,
  src: (name, line) => `#/src/${encodeURIComponent(name)}${line ? `/${line}` : ""}`,
  versus: (slug, number, other, theirs) => `#/c/${encodeURI(slug)}/a/${number}/vs/${encodeURI(other)}/${theirs}`,
  artifact: (slug, number) => `#/c/${encodeURI(slug)}/a/${number}`,
};
const bracket = (slug) => `[${slug}]`;

/** The screens of the report, each with the digit that opens it, and the first part of the routes that belong to it. */
const screensOf = () => [
  ["Findings", "#/", /^(f\/.*|findings)?$/], ["Functions", "#/functions", /^(fn\/|functions|c\/)/], ["Time", "#/time", /^time/], DATA.running.length > 0 && ["Running", "#/running", /^running/],
  DATA.files.length > 0 && ["Source", "#/source", /^(source|src\/)/], DATA.lookups.length > 0 && ["Cache", "#/cache", /^cache/],
  DATA.ranks.groups.length > 0 && ["Ranks", "#/ranks", /^ranks/], ["Trace", "#/raw", /^raw/],
].filter(Boolean);

take(JSON.parse(document.getElementById("index").textContent));
