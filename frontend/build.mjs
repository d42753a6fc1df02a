// Makes what browsers load: bundles with a digest in their names, the icons that pages use, and a list of all of it.
import { build } from "esbuild";
import { copyFile, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { createHash } from "node:crypto";
import { basename, join } from "node:path";
import { licences } from "./licences.mjs";

const OUT = process.env.WEFT_DIST ?? "../src/weft/web/static/dist";
const digest = (bytes) => createHash("sha256").update(bytes).digest("hex").slice(0, 10);

await rm(OUT, { recursive: true, force: true });
await mkdir(OUT, { recursive: true });
const addresses = {};

const built = await build({
  entryPoints: ["src/app.js", "src/theme.js", "src/styles.css"],
  bundle: true,
  splitting: true,
  format: "esm",
  target: "es2022",
  minify: true,
  legalComments: "linked",
  metafile: true,
  outdir: OUT,
  entryNames: "[name]-[hash]",
  chunkNames: "[name]-[hash]",
  assetNames: "[name]-[hash]",
});
for (const [file, made] of Object.entries(built.metafile.outputs)) {
  if (made.entryPoint) addresses[basename(made.entryPoint)] = basename(file);
}

// One file with the icons that pages use, each as a symbol: a page shows one by <use href="icons.svg#name">.
const icons = JSON.parse(await readFile("icons.json", "utf8"));
const symbols = [];
for (const [name, source] of Object.entries(icons)) {
  const svg = await readFile(`node_modules/bootstrap-icons/icons/${source}.svg`, "utf8");
  const inner = svg.replace(/^[\s\S]*?<svg[^>]*>/, "").replace(/<\/svg>\s*$/, "").trim();
  symbols.push(`<symbol id="${name}" viewBox="0 0 16 16" fill="currentColor">${inner}</symbol>`);
}
const sprite = `<svg xmlns="http://www.w3.org/2000/svg">${symbols.join("")}</svg>`;
addresses["icons.svg"] = `icons-${digest(sprite)}.svg`;
await writeFile(join(OUT, addresses["icons.svg"]), sprite);

const used = await licences(Object.keys(built.metafile.inputs), ["bootstrap-icons"]);
await writeFile(join(OUT, "licences.json"), JSON.stringify(used));

await writeFile(join(OUT, "addresses.json"), JSON.stringify(addresses, null, 2));
