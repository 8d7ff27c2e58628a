/** The frame of the page: what is common to all parts, keys, the address, and windows above everything. */
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Help } from "./components/Help";
import { Icon, type IconName } from "./components/icons";
import { TokenDialog } from "./components/TokenDialog";
import { useEmitter, useShared } from "./context";
import { pressKey } from "./explore/keys";
import { readRoute, writeRoute, type Route } from "./lib/address";
import type { ThemeChoice } from "./lib/theme";
import { Explore } from "./pages/Explore";
import { Fleet } from "./pages/Fleet";
import { Sql } from "./pages/Sql";
import { Storage } from "./pages/Storage";

const ADDRESS_WAIT_MS = 250;
const NOTICE_MS = 6_000;

const THEMES: Readonly<Record<ThemeChoice, readonly [next: ThemeChoice, icon: IconName, title: string]>> = {
  auto: ["light", "auto", "Colours follow the system"],
  light: ["dark", "sun", "Light"],
  dark: ["auto", "moon", "Dark"],
};

export function App(): JSX.Element {
  const { explorer, session, theme } = useShared();
  useEmitter(session.changed);
  useEmitter(theme.changed);
  const page = useAddress();
  const [isHelp, setHelp] = useState(false);
  const [isTreeOpen, setTreeOpen] = useState(false);
  const [notice, setNotice] = useState<string>();
  const [isDismissed, setDismissed] = useState(false);
  const searchField = useRef<HTMLInputElement>(null);

  useEffect(
    () =>
      session.changed.subscribe(() => {
        setDismissed(false);
        if (!session.needed) explorer.retry();
      }),
    [session, explorer],
  );

  useEffect(() => {
    if (notice === undefined) return;
    const timer = setTimeout(() => setNotice(undefined), NOTICE_MS);
    return () => clearTimeout(timer);
  }, [notice]);

  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      if (event.defaultPrevented) return;
      if (event.key === "Escape") setTreeOpen(false);
      if (page !== "view" && event.key !== "?") return;
      const wasOurs = pressKey(event, explorer, {
        help: () => setHelp(true),
        search: () => {
          setTreeOpen(true);
          searchField.current?.focus();
        },
        scroll: (pages) => {
          const plots = document.querySelector(".plots");
          plots?.scrollBy({ top: plots.clientHeight * pages });
        },
      });
      if (wasOurs) event.preventDefault();
    };
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, [explorer, page]);

  const [nextTheme, themeIcon, themeTitle] = THEMES[theme.choice];
  return (
    <>
      <header class="top">
        {page === "view" && (
          <button
            type="button"
            class="ghost narrow"
            aria-label="Streams"
            aria-expanded={isTreeOpen}
            aria-controls="streams"
            onClick={() => setTreeOpen(!isTreeOpen)}
          >
            <Icon name="menu" />
          </button>
        )}
        <span class="brand">
          <Logo />
          <span class="brand-name">Headwater</span>
        </span>
        <nav class="nav" aria-label="Pages">
          <a
            href={writeRoute({ page: "view", state: explorer.state() })}
            aria-current={page === "view" ? "page" : undefined}
          >
            Plots
          </a>
          <a href="#/storage" aria-current={page === "storage" ? "page" : undefined}>
            Storage
          </a>
          <a href="#/sql" aria-current={page === "sql" ? "page" : undefined}>
            SQL
          </a>
          <a href="#/fleet" aria-current={page === "fleet" ? "page" : undefined}>
            Fleet
          </a>
        </nav>
        <span class="spring" />
        <button
          type="button"
          class="ghost"
          aria-label={`Colours: ${themeTitle}. Change`}
          title={themeTitle}
          onClick={() => theme.choose(nextTheme)}
        >
          <Icon name={themeIcon} />
        </button>
        <button
          type="button"
          class="ghost"
          aria-label="Keys and gestures"
          title="Keys and gestures (?)"
          onClick={() => setHelp(true)}
        >
          <Icon name="help" />
        </button>
      </header>
      {page === "storage" ? (
        <Storage />
      ) : page === "sql" ? (
        <Sql say={setNotice} />
      ) : page === "fleet" ? (
        <Fleet say={setNotice} />
      ) : (
        <Explore
          searchField={searchField}
          isTreeOpen={isTreeOpen}
          onTreeClose={() => setTreeOpen(false)}
          say={setNotice}
        />
      )}
      {notice !== undefined && (
        <p class="toast" role="alert">
          {notice}
        </p>
      )}
      {isHelp && <Help onClose={() => setHelp(false)} />}
      {session.needed && !isDismissed && <TokenDialog onClose={() => setDismissed(true)} />}
    </>
  );
}

/** Keeps the address and the explorer in step. Choosing channels makes an entry of the history, moving does not. */
function useAddress(): Route["page"] {
  const { explorer } = useShared();
  const [page, setPage] = useState<Route["page"]>(() => readRoute(location.hash).page);

  useEffect(() => {
    // What the address said at the start has been applied already.
    let written = location.hash;
    let channels = explorer.state().channels.join("\n");
    const read = (): void => {
      if (location.hash === written) return;
      const route = readRoute(location.hash);
      // Also of other pages: who comes back from one finds the address of the plots as it was.
      written = location.hash;
      setPage(route.page);
      if (route.page !== "view") return;
      channels = route.state.channels.join("\n");
      explorer.apply(route.state);
    };
    let timer: ReturnType<typeof setTimeout> | undefined;
    const write = (): void => {
      timer = undefined;
      if (readRoute(location.hash).page !== "view") return;
      const state = explorer.state();
      const address = writeRoute({ page: "view", state });
      if (address === location.hash) return;
      const now = state.channels.join("\n");
      const isNew = now !== channels && channels !== "";
      channels = now;
      history[isNew ? "pushState" : "replaceState"](null, "", address);
      written = location.hash;
      const fields = [...new Set(explorer.channels.all.map((channel) => channel.field))];
      document.title = fields.length > 0 ? `${fields.join(", ")} · Headwater` : "Headwater";
    };
    const later = (): void => {
      timer ??= setTimeout(write, ADDRESS_WAIT_MS);
    };
    const stops = [explorer.changed.subscribe(later), explorer.painted.subscribe(later)];
    addEventListener("hashchange", read);
    addEventListener("popstate", read);
    return () => {
      clearTimeout(timer);
      for (const stop of stops) stop();
      removeEventListener("hashchange", read);
      removeEventListener("popstate", read);
    };
  }, [explorer]);
  return page;
}

function Logo(): JSX.Element {
  return (
    <svg viewBox="0 0 24 24" width="20" height="20" aria-hidden="true">
      <path
        class="logo"
        d="M12 2.5c3.8 4.6 6.5 7.9 6.5 11.700A6.5 6.5 0 0 1 12 21.500a6.5 6.5 0 0 1-6.5-7.300C5.5 10.4 8.2 7.1 12 2.500Z"
      />
      <path class="logo-line" d="M7 14.500c1.7-1.6 3.3-1.6 5 0s3.3 1.6 5 0" />
    </svg>
  );
}
