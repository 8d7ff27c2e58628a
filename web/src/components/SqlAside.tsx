/** What stands beside the editor of SQL: the tables with their columns, and statements that were given names. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { TableColumns } from "../api/sql";
import { quotedName, readSaved, save } from "../lib/sql";
import { useMenu } from "./menu";

/** So few tables show their columns at once. */
const OPEN_MAX = 3;

interface SchemaProps {
  readonly catalog: readonly TableColumns[];
  readonly onInsert: (name: string) => void;
}

export function Schema({ catalog, onInsert }: SchemaProps): JSX.Element {
  return (
    <aside class="schema" aria-label="Tables and columns">
      {catalog.length === 0 && <p class="soft">No tables.</p>}
      {catalog.map(({ table, columns }) => (
        <details key={table} open={catalog.length <= OPEN_MAX}>
          <summary title={table}>
            <span class="schema-name">{table}</span>
            <button
              type="button"
              class="ghost small"
              aria-label={`Insert ${table}`}
              title="Insert the name at the caret"
              onClick={(event) => {
                event.preventDefault();
                onInsert(quotedName(table));
              }}
            >
              +
            </button>
          </summary>
          {columns.map(({ name, type }) => (
            <button
              type="button"
              class="schema-column"
              key={name}
              title={`Insert ${name} at the caret`}
              onClick={() => onInsert(quotedName(name))}
            >
              <span class="schema-name">{name}</span>
              <span class="soft">{typeWord(type)}</span>
            </button>
          ))}
        </details>
      ))}
    </aside>
  );
}

/** A column's type in the words of the list of streams. */
export function typeWord(type: string): string {
  if (/^timestamp/i.test(type)) return "time";
  if (/^dictionary/i.test(type)) return "tag";
  const words: Readonly<Record<string, string>> = {
    float64: "f64",
    "double precision": "f64",
    int64: "i64",
    bigint: "i64",
    uint64: "u64",
    numeric: "u64",
    boolean: "bool",
    utf8: "text",
    utf8view: "text",
    text: "text",
    binary: "bytes",
    binaryview: "bytes",
    bytea: "bytes",
  };
  return words[type.toLowerCase()] ?? type;
}

interface SavedProps {
  readonly current: () => string;
  readonly onChoose: (sql: string) => void;
}

export function SavedStatements({ current, onChoose }: SavedProps): JSX.Element {
  const [open, setOpen] = useState(false);
  const [name, setName] = useState("");
  const [, setVersion] = useState(0);
  const menu = useMenu(open, () => setOpen(false));
  const all = open ? readSaved(localStorage) : [];
  const changed = (): void => setVersion((n) => n + 1);
  const sql = open ? current().trim() : "";
  return (
    <div class="menu-place" ref={menu}>
      <button
        type="button"
        class="ghost"
        aria-haspopup="menu"
        aria-expanded={open}
        title="Named statements, saved in this browser"
        onClick={() => setOpen(!open)}
      >
        Saved
      </button>
      {open && (
        <div class="popover menu sql-history" role="menu">
          {all.length === 0 && <p class="soft">Nothing is saved yet.</p>}
          {all.map((each) => (
            <div class="saved" key={each.name}>
              <button
                type="button"
                role="menuitem"
                title={each.sql}
                onClick={() => {
                  setOpen(false);
                  onChoose(each.sql);
                }}
              >
                {each.name}
              </button>
              <button
                type="button"
                class="saved-remove"
                aria-label={`Forget ${each.name}`}
                title="Forget"
                onClick={() => {
                  save(localStorage, each.name, undefined);
                  changed();
                }}
              >
                ×
              </button>
            </div>
          ))}
          <form
            class="saved"
            onSubmit={(event) => {
              event.preventDefault();
              if (name.trim() === "" || sql === "") return;
              save(localStorage, name.trim(), sql);
              setName("");
              changed();
            }}
          >
            <input
              type="text"
              aria-label="Name of the statement"
              placeholder={sql === "" ? "Write a statement first" : "Name for this statement"}
              disabled={sql === ""}
              value={name}
              onInput={(event) => setName(event.currentTarget.value)}
            />
            <button type="submit" class="primary" disabled={sql === "" || name.trim() === ""}>
              Save
            </button>
          </form>
        </div>
      )}
    </div>
  );
}
