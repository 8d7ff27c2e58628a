/** Rows of an answer; only those in view are in the document. */
import type { JSX } from "preact";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Answer } from "../api/sql";
import { cellText, columnWidths, isNumber } from "../lib/result";

/** Height of a row in CSS pixels, as the style sheet has it. */
const ROW_PX = 26;
/** Rows drawn beyond both ends of what is in view. */
const MARGIN = 12;

export function ResultTable({ answer }: { answer: Answer }): JSX.Element {
  const place = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 600 });
  const widths = useMemo(() => columnWidths(answer), [answer]);

  useLayoutEffect(() => {
    const element = place.current;
    if (!element) return;
    const look = (): void => setView({ top: element.scrollTop, height: element.clientHeight });
    element.scrollTop = 0;
    look();
    const observer = new ResizeObserver(look);
    observer.observe(element);
    element.addEventListener("scroll", look, { passive: true });
    return () => {
      observer.disconnect();
      element.removeEventListener("scroll", look);
    };
  }, [answer]);

  const { rows, columns } = answer;
  const first = Math.max(0, Math.floor(view.top / ROW_PX) - MARGIN);
  const end = Math.min(rows.length, Math.ceil((view.top + view.height) / ROW_PX) + MARGIN);
  const total = widths.reduce((sum, width) => sum + width, 0);
  return (
    <div class="result-scroll" ref={place} tabIndex={0} role="region" aria-label="Rows">
      <table class="result" style={{ width: `${total}ch` }} aria-rowcount={rows.length + 1}>
        <colgroup>
          {widths.map((width, k) => (
            <col key={k} style={{ width: `${width}ch` }} />
          ))}
        </colgroup>
        <thead>
          <tr>
            {columns.map(({ name, type }, k) => (
              <th key={k} class={isNumber(type) ? "num" : ""} title={`${name}: ${type}`} scope="col">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {first > 0 && <tr aria-hidden="true" style={{ height: `${first * ROW_PX}px` }} />}
          {rows.slice(first, end).map((row, k) => (
            <tr key={first + k} aria-rowindex={first + k + 2}>
              {columns.map(({ type }, c) => {
                const cell = row[c];
                const text = cellText(cell);
                return (
                  <td key={c} class={isNumber(type) ? "num" : ""} title={text.length > 40 ? text : undefined}>
                    {cell === null ? <span class="null">NULL</span> : text}
                  </td>
                );
              })}
            </tr>
          ))}
          {end < rows.length && <tr aria-hidden="true" style={{ height: `${(rows.length - end) * ROW_PX}px` }} />}
        </tbody>
      </table>
    </div>
  );
}
