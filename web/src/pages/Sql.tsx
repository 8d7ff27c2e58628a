/** Statements typed by hand, and their answers as table, chart and file. */
import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { ApiError } from "../api/client";
import { fetchCatalog, runSql, sqlCsv, type Answer, type TableColumns } from "../api/sql";
import { Icon } from "../components/icons";
import { ResultChart } from "../components/ResultChart";
import { ResultTable } from "../components/ResultTable";
import { SavedStatements, Schema } from "../components/SqlAside";
import { SqlEditor } from "../components/SqlEditor";
import { useMenu } from "../components/menu";
import { useShared } from "../context";
import { download } from "../explore/save";
import { formatCount } from "../lib/format";
import { writeRoute } from "../lib/address";
import { isPattern, marksOfAnswer } from "../lib/marks";
import { answerCsv, chartOf } from "../lib/result";
import { offsetOf, quotedName, readHistory, remember, statementAt, wordAt, type Range } from "../lib/sql";

const DRAFT = "headwater.sql.draft";
/** Statements of the history that are offered. */
const SHOWN_MAX = 20;

interface Ran {
  readonly sql: string;
  readonly ms: number;
  readonly answer: Answer | undefined;
  readonly error: ApiError | undefined;
}

export function Sql({ say }: { say: (text: string) => void }): JSX.Element {
  const { client, session, explorer } = useShared();
  const [text, setText] = useState(() => localStorage.getItem(DRAFT) ?? "");
  const [catalog, setCatalog] = useState<readonly TableColumns[]>([]);
  const [ran, setRan] = useState<Ran>();
  const [mark, setMark] = useState<Range>();
  const [running, setRunning] = useState<AbortController>();
  const [isChart, setChart] = useState(false);
  const area = useRef<HTMLTextAreaElement>(null);

  useEffect(() => {
    const control = new AbortController();
    const load = (): void => {
      void fetchCatalog(client, control.signal).then((outcome) => {
        if (outcome.ok) setCatalog(outcome.value);
      });
    };
    load();
    const stop = session.changed.subscribe(load);
    area.current?.focus();
    return () => {
      control.abort();
      stop();
    };
  }, [client, session]);

  useEffect(() => () => running?.abort(), [running]);

  const edit = (next: string): void => {
    setText(next);
    setMark(undefined);
    try {
      localStorage.setItem(DRAFT, next);
    } catch {
      // A full storage: the text is only not kept.
    }
  };

  const run = async (asChart?: boolean): Promise<void> => {
    const { selectionStart: from = text.length, selectionEnd: to = text.length } = area.current ?? {};
    const range = from < to ? { from, to } : statementAt(text, from);
    const sql = text.slice(range.from, range.to);
    if (sql.trim() === "") return;
    running?.abort();
    const control = new AbortController();
    setRunning(control);
    setMark(undefined);
    const begun = performance.now();
    const outcome = await runSql(client, sql, control.signal);
    setRunning((current) => (current === control ? undefined : current));
    if (control.signal.aborted && !outcome.ok) {
      setRan({
        sql,
        ms: performance.now() - begun,
        answer: undefined,
        error: { ...outcome.error, message: "Cancelled" },
      });
      return;
    }
    const ms = performance.now() - begun;
    if (outcome.ok) {
      setRan({ sql, ms, answer: outcome.value, error: undefined });
      if (asChart === true) {
        setChart(true);
        if (!chartOf(outcome.value)) say("A plot needs a column of times and one of numbers, and at least two rows.");
      }
      remember(localStorage, sql);
      if (/^\s*(create|alter|drop|insert)\b/i.test(sql)) {
        void fetchCatalog(client).then((fresh) => fresh.ok && setCatalog(fresh.value));
      }
      return;
    }
    const { error } = outcome;
    setRan({ sql, ms, answer: undefined, error });
    if (error.line !== undefined && error.column !== undefined) {
      const { from: a, to: b } = wordAt(sql, offsetOf(sql, error.line, error.column));
      setMark({ from: range.from + a, to: range.from + b });
    }
  };

  const put = (sql: string): void => {
    edit(sql);
    area.current?.focus();
  };

  /** Writes a name where the caret stands. */
  const insert = (name: string): void => {
    const element = area.current;
    if (!element) return;
    element.focus();
    // The old command is the only way to insert that undo knows of.
    if (!document.execCommand("insertText", false, name)) element.setRangeText(name);
    edit(element.value);
  };

  /** The statement that would run. */
  const current = (): string => {
    const { selectionStart: from = text.length, selectionEnd: to = text.length } = area.current ?? {};
    const range = from < to ? { from, to } : statementAt(text, from);
    return text.slice(range.from, range.to);
  };

  /** Marks what the answer tells on the plots, and goes there. */
  const markPlots = (): void => {
    if (!ran?.answer) return;
    const title = isPattern(ran.sql) ? "Matches" : "Rows of an answer";
    const marks = marksOfAnswer(ran.answer, title);
    if (!marks || marks.all.length === 0) {
      say("Marks need a column of times, such as FIRST(time) AS begin in MEASURES, and a row.");
      return;
    }
    explorer.marking.set(marks);
    location.hash = writeRoute({ page: "view", state: explorer.state() });
    explorer.marking.go(1);
  };

  const save = async (): Promise<void> => {
    if (!ran?.answer) return;
    if (!ran.answer.more) {
      download(new Blob([answerCsv(ran.answer)], { type: "text/csv" }), "headwater_sql.csv");
      return;
    }
    const whole = await sqlCsv(client, ran.sql);
    if (whole.ok) download(whole.value, "headwater_sql.csv");
    else say(whole.error.message);
  };

  return (
    <main class="sql-page">
      <Schema catalog={catalog} onInsert={insert} />
      <div class="sql">
        <SqlEditor value={text} area={area} catalog={catalog} mark={mark} onInput={edit} onRun={() => void run()} />
        <div class="toolbar">
          {running ? (
            <button type="button" class="primary" onClick={() => running.abort()}>
              Cancel
            </button>
          ) : (
            <button
              type="button"
              class="primary"
              title="Run the statement at the caret (Ctrl-Enter)"
              onClick={() => void run()}
            >
              Run
            </button>
          )}
          {!running && (
            <button
              type="button"
              class="ghost"
              title="Run the statement and plot its answer"
              onClick={() => void run(true)}
            >
              <Icon name="overlay" />
              <span class="wide">Plot this</span>
            </button>
          )}
          <History onChoose={put} />
          <SavedStatements current={current} onChoose={put} />
          <Said ran={ran} isRunning={running !== undefined} />
          <span class="spring" />
          {ran?.answer && (
            <ResultTools
              answer={ran.answer}
              isChart={isChart}
              onChart={setChart}
              onMark={markPlots}
              onSave={() => void save()}
            />
          )}
        </div>
        {ran?.error && (
          <Failed error={ran.error} onShow={mark && (() => area.current?.setSelectionRange(mark.from, mark.to))} />
        )}
        {ran?.answer && <Result answer={ran.answer} isChart={isChart} />}
        {!ran && <Examples catalog={catalog} onChoose={put} />}
      </div>
    </main>
  );
}

function Said({ ran, isRunning }: { ran: Ran | undefined; isRunning: boolean }): JSX.Element {
  let text = "";
  if (isRunning) text = "Running …";
  else if (ran?.answer) {
    const { rows, more } = ran.answer;
    const count = `${formatCount(rows.length)} ${rows.length === 1 ? "row" : "rows"}`;
    const what = more ? `the first ${count}, there are more` : count;
    text = `${what} · ${ran.ms < 100 ? ran.ms.toFixed(1) : Math.round(ran.ms)} ms`;
  }
  return (
    <span class="soft" role="status">
      {text}
    </span>
  );
}

interface FailedProps {
  readonly error: ApiError;
  /** Selects the word that the error is about; nothing where it is not known, or has been changed since. */
  readonly onShow: (() => void) | undefined;
}

function Failed({ error, onShow }: FailedProps): JSX.Element {
  return (
    <div class="notice error sql-error" role="alert">
      <p>
        {error.line !== undefined && onShow && (
          <button
            type="button"
            class="link"
            title="Select it"
            onClick={() => {
              document.querySelector<HTMLElement>(".sql-area")?.focus();
              onShow();
            }}
          >
            Line {error.line}, column {error.column}
          </button>
        )}
        {error.line !== undefined && !onShow && (
          <b>
            Line {error.line}, column {error.column}
          </b>
        )}
        {error.line !== undefined && ": "}
        {error.message}
      </p>
      {error.hint !== undefined && <p class="soft">{error.hint}</p>}
    </div>
  );
}

interface ResultToolsProps {
  readonly answer: Answer;
  readonly isChart: boolean;
  readonly onChart: (isChart: boolean) => void;
  readonly onMark: () => void;
  readonly onSave: () => void;
}

function ResultTools({ answer, isChart, onChart, onMark, onSave }: ResultToolsProps): JSX.Element {
  const hasChart = useMemo(() => chartOf(answer) !== undefined, [answer]);
  const hasTimes = answer.rows.length > 0 && answer.columns.some(({ type }) => type === "time");
  return (
    <>
      <div class="group segmented tabs" role="radiogroup" aria-label="Show as">
        {[false, true].map((each) => (
          <button
            type="button"
            key={String(each)}
            role="radio"
            class={(isChart && hasChart) === each ? "ghost on" : "ghost"}
            aria-checked={(isChart && hasChart) === each}
            disabled={each && !hasChart}
            title={each && !hasChart ? "A chart needs a column of times and one of numbers" : undefined}
            onClick={() => onChart(each)}
          >
            {each ? "Chart" : "Table"}
          </button>
        ))}
      </div>
      {hasTimes && (
        <button
          type="button"
          class="ghost"
          title="Mark each row on the plots, from its first time to its last"
          onClick={onMark}
        >
          <Icon name="flag" />
          <span class="wide">Mark on plots</span>
        </button>
      )}
      <button type="button" class="ghost" title="Save every row as CSV" onClick={onSave}>
        <Icon name="download" />
        <span class="wide">CSV</span>
      </button>
    </>
  );
}

function Result({ answer, isChart }: { answer: Answer; isChart: boolean }): JSX.Element {
  const chart = useMemo(() => chartOf(answer), [answer]);
  return chart && isChart ? <ResultChart chart={chart} /> : <ResultTable answer={answer} />;
}

function History({ onChoose }: { onChoose: (sql: string) => void }): JSX.Element {
  const [open, setOpen] = useState(false);
  const menu = useMenu(open, () => setOpen(false));
  const history = open ? readHistory(localStorage).slice(0, SHOWN_MAX) : [];
  return (
    <div class="menu-place" ref={menu}>
      <button
        type="button"
        class="ghost"
        aria-haspopup="menu"
        aria-expanded={open}
        title="Previous statements"
        onClick={() => setOpen(!open)}
      >
        History
      </button>
      {open && (
        <div class="popover menu sql-history" role="menu">
          {history.length === 0 && <p class="soft">No statement has run yet.</p>}
          {history.map((sql) => (
            <button
              type="button"
              key={sql}
              role="menuitem"
              title={sql}
              onClick={() => {
                setOpen(false);
                onChoose(sql);
              }}
            >
              <code>{sql.replace(/\s+/g, " ")}</code>
            </button>
          ))}
        </div>
      )}
    </div>
  );
}

/** Statements to begin with, made of what is there. */
function Examples({
  catalog,
  onChoose,
}: {
  catalog: readonly TableColumns[];
  onChoose: (sql: string) => void;
}): JSX.Element {
  const examples = ["SHOW TABLES"];
  const table = catalog.find(({ columns }) => columns.some(({ type }) => /float|double/i.test(type)));
  if (table) {
    const name = quotedName(table.table);
    const field = quotedName(table.columns.find(({ type }) => /float|double/i.test(type))?.name ?? "");
    const tag = table.columns.find(({ type }) => /dict/i.test(type))?.name;
    examples.push(
      `SELECT * FROM ${name} ORDER BY time DESC LIMIT 100`,
      tag === undefined
        ? `SELECT date_bin(INTERVAL '1 day', time) AS time, avg(${field}) AS mean\nFROM ${name}\nGROUP BY 1 ORDER BY 1`
        : `SELECT date_bin(INTERVAL '1 day', time) AS time, ${quotedName(tag)}, avg(${field}) AS mean\nFROM ${name}\nGROUP BY 1, 2 ORDER BY 1`,
    );
  }
  return (
    <section class="sql-examples">
      <h2>To begin with</h2>
      {examples.map((sql) => (
        <button type="button" key={sql} class="code" onClick={() => onChoose(sql)}>
          {sql}
        </button>
      ))}
      <p class="soft">
        <kbd>Ctrl</kbd> <kbd>Enter</kbd> runs the statement at the caret, <kbd>Ctrl</kbd> <kbd>Space</kbd> completes.
      </p>
    </section>
  );
}
