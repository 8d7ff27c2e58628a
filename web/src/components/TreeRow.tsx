/** A row of the list of streams: a table, a stream, a field, or that more come. */
import type { JSX } from "preact";
import { isPlottable, type FieldInfo } from "../api/streams";
import { formatCount, formatValue } from "../lib/format";
import { halves, pieces } from "../lib/match";
import type { Row } from "../lib/tree";
import { Icon } from "./icons";

/** The height of a row in CSS pixels, as the style sheet has it. */
export const ROW_PX = 28;

interface TreeRowProps {
  readonly row: Row;
  /** What was searched for: it is marked. */
  readonly words: readonly string[];
  readonly index: number;
  readonly isActive: boolean;
  readonly colour: string | undefined;
  readonly onClick: () => void;
}

export function TreeRow({ row, words, index, isActive, colour, onClick }: TreeRowProps): JSX.Element {
  const common = {
    id: `row-${index}`,
    role: "treeitem" as const,
    style: { transform: `translateY(${index * ROW_PX}px)` },
    onClick,
  };
  const state = isActive ? " active" : "";
  switch (row.kind) {
    case "more":
      return (
        <div {...common} class="row row-more soft">
          loading more…
        </div>
      );
    case "table":
      return (
        <div {...common} class={`row row-table${state}`} aria-level={1} aria-expanded={row.isOpen}>
          <Turn isOpen={row.isOpen} />
          <span class="row-name">
            <Marked text={row.list.table} words={words} />
          </span>
          <span class="row-value">{formatCount(row.list.total)}</span>
        </div>
      );
    case "stream": {
      const tags = row.info.tags.map(([key, value]) => `${key}=${value}`).join("  ");
      const [head, tail] = halves(tags);
      return (
        <div
          {...common}
          class={`row row-stream${state}`}
          aria-level={2}
          aria-expanded={row.isOpen}
          title={row.info.stream}
        >
          <Turn isOpen={row.isOpen} />
          <span class="row-name cut">
            {tags === "" && <span class="soft">without tags</span>}
            <span class="cut-head">
              <Marked text={head} words={words} />
            </span>
            <span class="cut-tail">
              <Marked text={tail} words={words} />
            </span>
          </span>
        </div>
      );
    }
    case "field": {
      const canPlot = isPlottable(row.field.type);
      return (
        <div
          {...common}
          class={`row row-field${state}${canPlot ? "" : " off"}`}
          aria-level={3}
          aria-selected={colour !== undefined}
          aria-disabled={!canPlot}
          title={canPlot ? `${row.channel} (${row.field.type})` : `${row.field.type} cannot be plotted`}
        >
          <span
            class={colour === undefined ? "box" : "box on"}
            style={colour === undefined ? {} : { backgroundColor: colour, borderColor: colour }}
          />
          <span class="row-name">
            <Marked text={row.field.name} words={words} />
          </span>
          <span class="row-value">{lastText(row.field)}</span>
        </div>
      );
    }
  }
}

function Turn({ isOpen }: { isOpen: boolean }): JSX.Element {
  return (
    <span class={isOpen ? "turn open" : "turn"}>
      <Icon name="chevron" />
    </span>
  );
}

function Marked({ text, words }: { text: string; words: readonly string[] }): JSX.Element {
  return (
    <>
      {pieces(text, words).map(({ text, isFound }, k) =>
        isFound ? <mark key={k}>{text}</mark> : <span key={k}>{text}</span>,
      )}
    </>
  );
}

function lastText(field: FieldInfo): string {
  const value = field.last?.value;
  if (value === undefined || value === null) return "";
  return typeof value === "number" ? formatValue(value, 5) : String(value);
}
