// Whose work is in what browsers load: every package that a bundle has a part of, with its licence.
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";

const PACKAGE = /node_modules\/((?:@[^/]+\/)?[^/]+)\//;

export async function licences(inputs, also = []) {
  const names = new Set(also);
  for (const input of inputs) {
    const found = PACKAGE.exec(input);
    if (found) names.add(found[1]);
  }
  return Promise.all([...names].sort().map(licence));
}

async function licence(name) {
  const folder = join("node_modules", name);
  const told = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
  const file = (await readdir(folder)).find((each) => /^licen[cs]e/i.test(each));
  const text = file ? (await readFile(join(folder, file), "utf8")).trim() : "";
  return { name, version: told.version, licence: told.license ?? "", text };
}
