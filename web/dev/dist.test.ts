/** What the build must be: small, without anything inline or from elsewhere, and with the notices it owes. Needs `make web`. */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { beforeAll, describe, expect, test } from "vitest";

const WEB = join(import.meta.dirname, "..");
const DIST = join(WEB, "dist");
const BYTES_MAX = 100_000;

let files: string[] = [];

beforeAll(() => {
  if (!existsSync(DIST)) throw new Error("web/dist is missing: run `make web` first");
  files = readdirSync(DIST, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name));
});

describe("the built page", () => {
  test("takes at most 100 kB over the wire", () => {
    const sizes = files.map((file) => [file, gzipSync(readFileSync(file), { level: 9 }).length] as const);
    const total = sizes.reduce((sum, [, size]) => sum + size, 0);
    expect(total, sizes.map(([file, size]) => `${file} ${size}`).join("\n")).toBeLessThanOrEqual(BYTES_MAX);
    expect(total).toBeGreaterThan(10_000);
  });

  test("has nothing inline that a strict policy forbids, and nothing from elsewhere", () => {
    const html = readFileSync(join(DIST, "index.html"), "utf8");
    expect(html).not.toMatch(/<style|style=|javascript:|\son\w+=/i);
    for (const [tag] of html.matchAll(/<script[^>]*>/g)) expect(tag).toMatch(/src="\.\/assets\//);
    for (const [, address] of html.matchAll(/(?:src|href)="([^"]*)"/g)) expect(address).toMatch(/^\.\/assets\//);
    for (const file of files.filter((name) => name.endsWith(".css"))) {
      expect(readFileSync(file, "utf8")).not.toMatch(/@import|url\(/);
    }
    for (const file of files.filter((name) => name.endsWith(".js"))) {
      expect(readFileSync(file, "utf8")).not.toMatch(/\beval\(|new Function\(/);
    }
  });

  test("names files by their content, so that they may be kept for ever", () => {
    for (const file of files.filter((name) => !name.endsWith("index.html"))) {
      expect(file.slice(DIST.length)).toMatch(/^\/assets\/.+-[\w-]{8}\.\w+$/);
    }
  });

  test("carries the notices of what it contains", () => {
    const notices = readFileSync(join(WEB, "THIRD_PARTY.txt"), "utf8");
    const shipped = files.find((file) => /THIRD_PARTY-[\w-]{8}\.txt$/.test(file));
    expect(shipped && readFileSync(shipped, "utf8")).toBe(notices);
    const { dependencies } = JSON.parse(readFileSync(join(WEB, "package.json"), "utf8")) as {
      dependencies: Record<string, string>;
    };
    for (const [name, version] of Object.entries(dependencies)) {
      const folder = join(WEB, "node_modules", name);
      const { license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as { license: string };
      expect(["MIT", "ISC", "BSD-2-Clause", "BSD-3-Clause", "Apache-2.0"]).toContain(license);
      expect(notices).toContain(`== ${name} ${version} (${license})`);
      expect(notices).toContain(readFileSync(join(folder, "LICENSE"), "utf8").trim());
    }
  });
});
