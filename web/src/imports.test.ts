/** The modules of the page stand in an order: no circle of imports, not even of types. */
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

type Graph = ReadonlyMap<string, readonly string[]>;

const ROOT = dirname(fileURLToPath(import.meta.url));
const IMPORT = /\b(?:from|import)\s*\(?\s*["'](\.[^"']*)["']/g;

/** Imports of every module below `root` from others there, by path. */
function readImports(root: string): Graph {
  const files = readdirSync(root, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && /\.tsx?$/.test(entry.name))
    .map((entry) => relative(root, join(entry.parentPath, entry.name)));
  const known = new Set(files);
  const graph = new Map<string, string[]>();
  for (const file of files) {
    const imported: string[] = [];
    for (const [, target = ""] of readFileSync(join(root, file), "utf8").matchAll(IMPORT)) {
      const path = join(dirname(file), target);
      const found = [path, `${path}.ts`, `${path}.tsx`, join(path, "index.ts")].find((name) => known.has(name));
      if (found !== undefined) imported.push(found);
      else if (!path.startsWith("..") && !/\.\w+$/.test(target))
        throw new Error(`${file} imports ${target}, which is no module`);
    }
    graph.set(file, imported);
  }
  return graph;
}

/** Circles of imports, one for each import that closes one. */
function circles(graph: Graph): string[] {
  const done = new Set<string>();
  const path: string[] = [];
  const result: string[] = [];
  const visit = (file: string): void => {
    const at = path.indexOf(file);
    if (at >= 0) result.push([...path.slice(at), file].join(" → "));
    if (at >= 0 || done.has(file)) return;
    path.push(file);
    for (const next of graph.get(file) ?? []) visit(next);
    path.pop();
    done.add(file);
  };
  for (const file of graph.keys()) visit(file);
  return result;
}

test("no modules of the page import each other in a circle", () => {
  const graph = readImports(ROOT);
  expect([...graph.values()].flat().length).toBeGreaterThan(100);
  expect(circles(graph)).toEqual([]);
});

test("a circle is found, however long it is", () => {
  const graph = new Map([
    ["a", ["b", "d"]],
    ["b", ["c"]],
    ["c", ["a"]],
    ["d", ["d"]],
  ]);
  expect(circles(graph)).toEqual(["a → b → c → a", "d → d"]);
});
