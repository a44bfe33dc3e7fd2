// The index is read at once; the texts of a compile are unpacked when they are first looked at.

const DATA = JSON.parse(document.getElementById("index").textContent);
const compileBySlug = new Map(DATA.compiles.map((one) => [one.slug, one]));
const findingById = new Map(DATA.findings.map((one) => [one.id, one]));
const functionByName = new Map(DATA.functions.map((one) => [one.name, one]));
const unpacked = new Map();

/** Texts of all artifacts of a compile, by number. */
function textsOf(compiled) {
  if (!unpacked.has(compiled.block)) unpacked.set(compiled.block, unpack(compiled.block));
  return unpacked.get(compiled.block);
}

const unpack = (block) => unpackText(`block-${block}`);

async function unpackText(id) {
  const packed = atob(document.getElementById(id).textContent);
  const raw = new Uint8Array(packed.length);
  for (let i = 0; i < packed.length; i++) raw[i] = packed.charCodeAt(i);
  const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

const link = {
  finding: (id) => `#/f/${encodeURIComponent(id)}`,
  fn: (name) => `#/fn/${encodeURIComponent(name)}`,
  compile: (slug) => `#/c/${encodeURI(slug)}`,
  code: (slug, way) => `#/c/${encodeURI(slug)}/code${way ? `/${encodeURIComponent(way)}` : ""}`,
  src: (name, line) => `#/src/${encodeURIComponent(name)}${line ? `/${line}` : ""}`,
  versus: (slug, number, other, theirs) => `#/c/${encodeURI(slug)}/a/${number}/vs/${encodeURI(other)}/${theirs}`,
  artifact: (slug, number) => `#/c/${encodeURI(slug)}/a/${number}`,
};
const realCompiles = DATA.compiles.filter((one) => one.real);
const withCode = DATA.compiles.filter((one) => one.code);
const bracket = (slug) => `[${slug}]`;
