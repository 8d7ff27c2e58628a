/** Dark or light, and the colours a canvas needs, read from the style sheet. */
import { Emitter } from "./emitter";

export type ThemeChoice = "auto" | "light" | "dark";

const KEY = "headwater.theme";

export interface Palette {
  readonly series: readonly string[];
  readonly ink: string;
  readonly muted: string;
  readonly grid: string;
  readonly surface: string;
  readonly cursor: string;
  readonly danger: string;
  readonly accent: string;
}

export class Theme {
  readonly changed = new Emitter();
  choice: ThemeChoice;
  palette: Palette;

  constructor() {
    const saved = localStorage.getItem(KEY);
    this.choice = saved === "light" || saved === "dark" ? saved : "auto";
    this.mark();
    this.palette = read();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.refresh());
  }

  choose(choice: ThemeChoice): void {
    this.choice = choice;
    if (choice === "auto") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, choice);
    this.mark();
    this.refresh();
  }

  private mark(): void {
    document.documentElement.dataset["theme"] = this.choice;
  }

  private refresh(): void {
    this.palette = read();
    this.changed.emit();
  }
}

function read(): Palette {
  const style = getComputedStyle(document.documentElement);
  const colour = (name: string): string => style.getPropertyValue(name).trim();
  return {
    series: Array.from({ length: 8 }, (_, i) => colour(`--series-${i}`)),
    ink: colour("--ink"),
    muted: colour("--ink-soft"),
    grid: colour("--grid"),
    surface: colour("--surface"),
    cursor: colour("--cursor"),
    danger: colour("--danger"),
    accent: colour("--accent"),
  };
}
