/** The real server with a database of its own, on a free port of this machine. */
import { spawn, spawnSync, type ChildProcess } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const START_MS = 30_000;

function binary(): string {
  const named = process.env["TESTED_BINARY"];
  if (named) return named;
  const target = process.env["CARGO_TARGET_DIR"] ?? join(homedir(), ".cache/headwater/target");
  const path = join(target, "debug/headwater");
  if (!existsSync(path)) throw new Error(`${path} is missing: run \`make browser\`, which builds it`);
  return path;
}

/** The environment without settings of a server that whoever runs the tests may have in it. */
function withoutSettings(): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("HEADWATER_")));
}

export class Headwater {
  private static readonly made = new Set<Headwater>();
  private child: ChildProcess | undefined;
  private log = "";
  private readonly folder = mkdtempSync(join(tmpdir(), "headwater-browser-"));
  readonly db = join(this.folder, "db");
  url = "";

  constructor() {
    Headwater.made.add(this);
  }

  /** Ends and removes whatever a failed test has left behind. */
  static async removeAll(): Promise<void> {
    for (const each of [...Headwater.made]) await each.remove();
  }

  /** Runs a command of `headwater` to its end; gives what it prints. */
  run(args: readonly string[], input = ""): string {
    const done = spawnSync(binary(), args, {
      input,
      encoding: "utf8",
      env: withoutSettings(),
      maxBuffer: 64 * 1024 * 1024,
    });
    if (done.status !== 0) throw new Error(`headwater ${args.join(" ")}: ${done.stderr}`);
    return done.stdout;
  }

  import(lines: readonly string[]): void {
    this.run(["import", "--db", this.db, "--format", "lp", "--precision", "ns", "-"], lines.join("\n") + "\n");
  }

  /** Makes a token that may read what a pattern names. */
  token(pattern: string): string {
    return this.run(["token", "create", "--db", this.db, "--name", "browser", "--read", pattern]).trim();
  }

  async start(...args: string[]): Promise<string> {
    const port = this.url === "" ? "0" : new URL(this.url).port;
    const child = spawn(binary(), ["serve", "--db", this.db, "--http-addr", `127.0.0.1:${port}`, ...args], {
      stdio: ["ignore", "pipe", "pipe"],
      env: withoutSettings(),
    });
    this.child = child;
    child.stderr.on("data", (data: Buffer) => (this.log += data.toString()));
    const lines = createInterface({ input: child.stdout });
    this.url = await new Promise<string>((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`the server does not come up: ${this.log}`)), START_MS);
      lines.once("line", (line) => {
        clearTimeout(timer);
        resolve(line.trim().replace(/\/?$/, "/"));
      });
      child.once("exit", (code) => {
        clearTimeout(timer);
        reject(new Error(`the server ended with ${code}: ${this.log}`));
      });
    });
    return this.url;
  }

  /** Writes lines with times in nanoseconds, as a device would. */
  async write(lines: readonly string[], token?: string): Promise<void> {
    const response = await fetch(new URL("write?precision=ns", this.url), {
      method: "POST",
      body: lines.join("\n"),
      ...(token === undefined ? {} : { headers: { authorization: `Bearer ${token}` } }),
    });
    if (response.status !== 204) throw new Error(`write: ${response.status} ${await response.text()}`);
  }

  /** Ends the server as an operator does; fails if it does not end well. */
  async stop(): Promise<void> {
    const { child } = this;
    if (!child) return;
    this.child = undefined;
    const code = await new Promise<number | null>((resolve) => {
      child.once("exit", resolve);
      child.kill("SIGTERM");
    });
    if (code !== 0) throw new Error(`the server ended with ${code}: ${this.log}`);
  }

  async remove(): Promise<void> {
    Headwater.made.delete(this);
    await this.stop();
    rmSync(this.folder, { recursive: true, force: true });
  }
}

const HOUR = 3_600n * 1_000_000_000n;
const TEN_YEARS_HOURS = 87_660;

/** Where the dense second of `probe` begins: some years before the end. */
export interface Sample {
  readonly lines: string[];
  readonly first: bigint;
  readonly last: bigint;
  readonly burst: bigint;
}

/** Ten years of hourly events, in the middle twenty seconds of a thousand events each, a gap, and thousands of streams. */
export function sample(now: bigint): Sample {
  const last = now - (now % HOUR);
  const first = last - BigInt(TEN_YEARS_HOURS) * HOUR;
  const lines: string[] = [];
  const wave = (hour: number): number =>
    11 - 9 * Math.cos((hour / 8766) * 2 * Math.PI) - 4 * Math.cos((hour / 24) * 2 * Math.PI);
  for (let k = 0; k <= TEN_YEARS_HOURS; k++) {
    const at = first + BigInt(k) * HOUR;
    const ripple = Math.sin(k * 12.9898) * 43758.5453;
    const noise = ripple - Math.floor(ripple);
    if (k < 60_000 || k > 61_500) {
      lines.push(
        `weather,site=north temperature=${(wave(k) + 5 * noise).toFixed(2)},wind=${(3 + 12 * noise ** 3).toFixed(2)} ${at}`,
      );
    }
    if (k % 3 === 0) lines.push(`weather,site=harbour temperature=${(wave(k) + 4 + 3 * noise).toFixed(2)} ${at}`);
    lines.push(`probe,id=p1 level=${(20 + wave(k) / 3).toFixed(3)} ${at}`);
  }
  const burst = first + 55_000n * HOUR + HOUR / 3n;
  for (let k = 0; k < 20_000; k++) {
    const at = burst + BigInt(k) * 1_000_000n;
    lines.push(`probe,id=p1 level=${(20 + 5 * Math.sin(k / 40) + Math.sin(k * 7.3)).toFixed(3)} ${at}`);
  }
  for (let n = 0; n < 3_000; n++) {
    const tags = `line=L${n % 12},machine=press-${String(n).padStart(4, "0")}`;
    for (let k = 0; k < 3; k++) {
      lines.push(
        `press,${tags} pressure=${(4 + k / 10 + n / 5000).toFixed(3)},load=${60 + k} ${last - BigInt(3 - k) * HOUR}`,
      );
    }
  }
  for (let k = 0; k < 500; k++) {
    lines.push(
      `valve,id=v\\ 1 open=${k % 7 < 4},state="${k % 7 < 4 ? "open" : "shut"}",turns.total=${k}i ${last - BigInt(500 - k) * HOUR}`,
    );
  }
  return { lines, first, last, burst };
}
