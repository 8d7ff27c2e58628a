/** Puts the page together. */
import { render } from "preact";
import "uplot/dist/uPlot.min.css";
import "./style/base.css";
import "./style/layout.css";
import "./style/sql.css";
import "./style/fleet.css";
import { Client } from "./api/client";
import { App } from "./app";
import { SharedContext } from "./context";
import { Explorer } from "./explore/explorer";
import { FirstLook } from "./explore/first";
import { readRoute } from "./lib/address";
import { Session } from "./lib/session";
import { Theme } from "./lib/theme";

const session = new Session();
const client = new Client(session, new URL(".", document.baseURI).href);
const route = readRoute(location.hash);
const first = new FirstLook(client);
if (route.page === "view") first.begin(route.state.channels.length > 0);
const theme = new Theme();
const explorer = new Explorer(client);
explorer.start();
if (route.page === "view") explorer.apply(route.state);

// Counters for tests and for whoever wants to look: how many frames, how many with a hole, requests at once.
Object.assign(globalThis, { headwater: { explorer: explorer.counters, loader: explorer.loader.counters } });

const place = document.getElementById("app");
if (place) {
  render(
    <SharedContext.Provider value={{ client, session, theme, explorer, first }}>
      <App />
    </SharedContext.Provider>,
    place,
  );
}
